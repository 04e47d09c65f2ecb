"""What each tool makes of the same few requests, worked out by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
from profiling import document, run

from tokenpulse import readers
from tokenpulse.model import SLO
from tokenpulse.profiles import PROFILES, profile, side_by_side
from tokenpulse.records import Ragged


def test_a_limit_that_is_met_exactly() -> None:
    """Under a limit of exactly its own TTFT a request is good to everyone but tokenpulse."""
    one = run([0.25, 0.5], tool="vllm", run={"duration": 2.0})
    limits = {"ttft": 0.25, "tpot": 0.5}
    assert profile("vllm", one, goodput=limits)["request_goodput"] == 0.5
    assert profile("aiperf", one, goodput=limits)["good_request_count"]["avg"] == 1.0
    assert profile("guidellm", one, goodput=limits)["slo_attainment"] == 1.0
    assert profile("inference-perf", one, goodput=limits)["successes"]["goodput_metrics"]["good_requests"] == 1
    assert profile("genai-perf", one, goodput=limits)["request_goodput"]["avg"] == 1 / 0.75
    assert profile("tokenpulse", one, goodput=limits)["goodput"]["good"] == 0
    assert profile("tokenpulse", one, goodput={"ttft": 0.26, "tpot": 0.51})["goodput"]["good"] == 1


def test_a_request_of_one_token() -> None:
    """It has no TPOT: 0 to vLLM, good to tokenpulse, bad to AIPerf and inference-perf, not judged by GuideLLM."""
    one = run([0.1], run={"duration": 1.0})
    limits = {"ttft": 0.2, "tpot": 0.001}
    vllm = profile("vllm", one, goodput=limits)
    assert (vllm["mean_tpot_ms"], vllm["request_goodput"]) == (0.0, 1.0)
    assert profile("tokenpulse", one, goodput=limits)["goodput"]["attainment"] == 1.0
    assert profile("aiperf", one, goodput=limits)["good_request_count"]["avg"] == 0.0
    assert "inter_token_latency" not in profile("aiperf", one)
    assert profile("inference-perf", one, goodput=limits)["successes"]["goodput_metrics"]["good_requests"] == 0
    assert profile("guidellm", one, goodput=limits)["slo_determined_requests"] == 0


def test_chunks_of_several_tokens() -> None:
    """A chunk of 3 tokens 0.3 s after the first: one gap to vLLM, three of 0.1 to tokenpulse and SGLang, zeros else."""
    one = run([0.1, 0.3], tokens=[4], chunks=[[1, 3]])
    assert profile("vllm", one)["mean_itl_ms"] == pytest.approx(300)
    assert profile("sglang", one)["max_itl_ms"] == pytest.approx(100)
    itl = profile("tokenpulse", one)["latency"]["itl"]
    assert (itl["count"], itl["max"]) == (3, 0.1)
    deltas = profile("inference-perf", one)["successes"]["latency"]["inter_token_latency"]
    assert (deltas["min"], deltas["median"], deltas["max"]) == (0.0, 0.0, pytest.approx(0.3))
    assert profile("aiperf", one)["inter_token_latency"]["avg"] == pytest.approx(100)
    assert profile("llmperf", one)["results_inter_token_latency_s_mean"] == pytest.approx(0.1)


def test_what_tpot_divides_and_by_what() -> None:
    one = run([0.2, 0.1, 0.1], tail=0.6)
    assert profile("vllm", one)["mean_tpot_ms"] == pytest.approx(400)  # (1.0 - 0.2) / 2
    assert profile("tokenpulse", one)["latency"]["tpot"]["mean"] == pytest.approx(0.1)  # (0.4 - 0.2) / 2
    assert profile("guidellm", one)["time_per_output_token_ms"]["successful"]["mean"] == pytest.approx(400 / 3)
    assert profile("mlperf", one)["Mean Time to Output Token (ns)"] == 400_000_000


def test_guidellm_weighs_by_tokens() -> None:
    """Two requests: 1 gap of 0.5 s, 3 gaps of 0.1 s. Weighted by gaps the mean is 0.2, not 0.3."""
    found = profile("guidellm", run([0.1, 0.5], [0.1, 0.1, 0.1, 0.1]))["inter_token_latency_ms"]["successful"]
    assert found["mean"] == pytest.approx(200)
    assert found["count"] == 4
    assert found["median"] == pytest.approx(100)


def test_mlperf_takes_a_place_of_the_sorted_and_whole_means() -> None:
    one = run(*([0.001 * (k + 1), 0.5] for k in range(100)))
    found = profile("mlperf", one, goodput={"ttft": 0.1, "tpot": 0.5})
    assert found["50.00 percentile first token latency (ns)"] == 51_000_000
    assert found["99.00 percentile first token latency (ns)"] == 100_000_000
    assert found["Mean First Token latency (ns)"] == 50_500_000
    met = {name: one["met"] for name, one in found["Performance constraints satisfied"].items()}
    assert met["given"] is True
    assert met["Llama2-70B"] is False  # TPOT 500 > 200 ms
    assert found["Completed samples per second"] == pytest.approx(99 / 99.6)


def test_llmperf_has_the_deviation_of_a_sample() -> None:
    found = profile("llmperf", run([0.1, 0.1], [0.3, 0.1]))
    assert found["results_ttft_s_stddev"] == pytest.approx(np.std([0.1, 0.3], ddof=1))
    assert profile("llmperf", run([0.1, 0.1]))["results_ttft_s_stddev"] is None
    assert profile("vllm", run([0.1, 0.1], [0.3, 0.1]))["std_ttft_ms"] == pytest.approx(100)


def test_genai_perf_rounds_to_nanoseconds() -> None:
    found = profile("genai-perf", run([0.1, 0.1, 0.1, 0.1], tokens=[8]))["inter_token_latency"]
    assert found["avg"] == 42.857143  # 300,000,000 / 7 = 42,857,142.86 ns


def test_failures() -> None:
    """A request that broke after its first token, one that never had one, one that the client gave up."""
    one = run([0.1, 0.1], [0.4], [], [0.2], status=["stop", "error", "reject", "abort"], run={"duration": 4.0})
    vllm = profile("vllm", one)
    assert (vllm["completed"], vllm["failed"], vllm["mean_ttft_ms"]) == (1, 3, 100.0)
    ours = profile("tokenpulse", one, goodput={"ttft": 1.0, "tpot": 1.0})
    assert ours["latency"]["ttft"]["count"] == 3
    assert ours["goodput"]["judged"] == 3
    assert {key: ours["requests"][key] for key in ("succeeded", "failed", "rejected", "aborted")} == {
        "succeeded": 1,
        "failed": 1,
        "rejected": 1,
        "aborted": 1,
    }
    aiperf = profile("aiperf", one)
    assert aiperf["error_request_count"]["avg"] == 3.0
    # Of four, three took for ever: the place nearest to a third of the way is the first of them.
    assert (aiperf["adj_time_to_first_token"]["count"], "p50" in aiperf["adj_time_to_first_token"]) == (4, False)
    assert profile("guidellm", one)["request_totals"] == {"successful": 1, "errored": 2, "incomplete": 1, "total": 4}
    assert profile("inference-perf", one)["failures"]["count"] == 3


def test_warm_up_is_left_out() -> None:
    one = run([9.0, 9.0], [0.1, 0.1], warmup=np.array([True, False]))
    for name in PROFILES:
        assert profile(name, one)["tokenpulse"]["headline"]["ttft.mean"] == pytest.approx(0.1), name


def test_limits_of_the_run_itself() -> None:
    one = run([0.1, 0.1], run={"duration": 1.0, "goodput": {"ttft": 0.2}})
    assert profile("vllm", one)["request_goodput"] == 1.0
    assert profile("vllm", one, goodput={"ttft": 0.05})["request_goodput"] == 0.0
    assert profile("vllm", one, goodput=SLO(ttft=0.2, tpot=0.05))["tokenpulse"]["limits"] == {"ttft": 0.2, "tpot": 0.05}


def test_limits_of_a_guidellm_file(tmp_path) -> None:
    said = document("guidellm_errors.json.gz")
    said["benchmarks"][0]["config"] = {"slo": {"ttft_ms": 300.0, "tpot_ms": None, "e2el_ms": 1000.0}}
    path = tmp_path / "benchmarks.json"
    path.write_text(json.dumps(said))
    (one,) = readers.read(str(path))
    found = profile("guidellm", one)
    assert found["tokenpulse"]["limits"] == {"ttft": 0.3, "e2e": 1.0}
    requests = said["benchmarks"][0]["requests"]
    told = [one for one in requests["successful"] if one["time_to_first_token_ms"] is not None]
    good = sum(one["time_to_first_token_ms"] <= 300 and one["request_latency"] <= 1.0 for one in told)
    assert 0 < good < len(told)
    assert found["slo_determined_requests"] == len(told) + len(requests["errored"])
    assert found["slo_attainment"] == good / found["slo_determined_requests"]
    assert found["request_goodput"]["successful"]["count"] == good
    assert found["request_goodput"]["successful"]["mean"] == pytest.approx(good / 9.0, rel=1e-4)
    assert found["request_goodput"]["errored"]["count"] == 0


def test_limits_that_a_tool_does_not_have_are_named() -> None:
    one = run([0.1, 0.1])
    for name in ("vllm", "aiperf", "guidellm", "genai-perf"):
        found = profile(name, one, goodput={"ttft": 1.0, "itl": 0.01})
        assert "goodput limit itl" in found["tokenpulse"]["absent"], name
    judged = profile("inference-perf", one, goodput={"ttft": 1.0, "itl": 0.01})
    assert judged["successes"]["goodput_metrics"]["itl_attainment_percentage"] == 0.0


def test_misuse() -> None:
    one = run([0.1, 0.1])
    with pytest.raises(ValueError, match=r"must be one of tokenpulse, vllm, .*, got 'vlm'"):
        profile("vlm", one)
    for limit in (0, -1.0, float("nan"), float("inf"), True):
        with pytest.raises(ValueError, match="goodput limit ttft must be a positive number of seconds"):
            profile("vllm", one, goodput={"ttft": limit})


def test_a_run_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokenpulse.profiles.registry.LIMIT", 3)
    with pytest.raises(ValueError, match="at most 3, got 4"):
        profile("vllm", run([0.1, 0.1, 0.1], [0.1]))


def test_a_whole_second_is_what_vllm_counts_in() -> None:
    """Two requests that never met, in the same second: two at once to vLLM; chunks of a second are its tokens."""
    one = run([0.1, 0.1], [0.1, 0.1], start=np.array([0.0, 0.5]), arrive_ns=np.array([0, 500_000_000]))
    found = profile("vllm", one)
    assert (found["max_concurrent_requests"], found["max_output_tokens_per_s"]) == (2, 4.0)


def test_other_percentiles_of_a_file() -> None:
    one = run([0.1, 0.1], tool="vllm", summary={"p99.9_ttft_ms": 1.0, "p10_itl_ms": 1.0})
    assert {"p99.9_e2el_ms", "p10_ttft_ms"} <= profile("vllm", one).keys()
    assert "p99_ttft_ms" not in profile("vllm", one)
    chosen = {"successes": {"latency": {"request_latency": {"mean": 1, "median": 1, "p12.5": 1}}}}
    found = profile("inference-perf", run([0.1, 0.1], tool="inference-perf", summary=chosen))
    assert list(found["successes"]["latency"]["time_to_first_token"]) == ["mean", "min", "max", "median", "p12.5"]


def test_client_queue_of_vllm() -> None:
    told = {"run": {"duration": 1.0, "concurrency": 2, "requested_rate": 5.0}, "queue": np.array([0.5])}
    found = profile("vllm", run([0.1, 0.1], **told))
    assert found["mean_client_queue_time_ms"] == 500.0
    assert found["p99_e2el_including_client_queue_ms"] == pytest.approx(700)


def test_side_by_side_says_why() -> None:
    rows = {row["figure"]: row for row in side_by_side(run([0.1, 0.2], [0.3, 0.4, 0.1], tail=0.1))}
    assert rows["ttft.mean"]["why"] is None
    assert "linear (vllm" in rows["ttft.p50"]["why"]
    assert "GuideLLM" in rows["tpot.mean"]["why"]
    assert rows["ttft.std"]["why"] == "n - 1 in the deviation (llmperf)"
    assert rows["itl.mean"]["values"]["vllm"] == pytest.approx(0.7 / 3)


def test_gaps_from_points_in_time() -> None:
    one = run([0.1, 0.2, 0.3])
    assert one.gaps is not None
    points = run([0.1, 0.2, 0.3], gaps=None, emissions=Ragged.of([[0.1, 0.3, 0.6]]))
    assert profile("vllm", points)["median_itl_ms"] == pytest.approx(profile("vllm", one)["median_itl_ms"])
