"""The figures of a page: nothing lies over anything else or is cut off, and what they show is so."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise
from xml.etree import ElementTree as ET

import pytest
from html_reports import MS, REPORTS, SECOND, made, report_of, requests, same, text_of

from tokenpulse.reporting.html import scale
from tokenpulse.reporting.html.attainment import Map
from tokenpulse.reporting.html.distribution import Shape
from tokenpulse.reporting.html.latency import limits_of, placed
from tokenpulse.reporting.html.panel import Limit, axes_at, spread
from tokenpulse.reporting.html.series import Timeline, counted_run, percentiles, whole_run
from tokenpulse.reporting.html.style import BANDS, DARK, LIGHT
from tokenpulse.reporting.html.svg import FONT, width_of

pytest.importorskip("matplotlib")

HIGH = 0.75 * FONT
"""How much of a text's height has ink in it, about."""


@dataclass(frozen=True)
class Box:
    text: str
    left: float
    right: float
    top: float
    bottom: float

    def meets(self, other: Box) -> bool:
        return (
            min(self.right, other.right) - max(self.left, other.left) > 0.5
            and min(self.bottom, other.bottom) - max(self.top, other.top) > 0.5
        )


@cache
def pictures(kind: str) -> dict[str, ET.Element]:
    """Every drawing of a page by its name."""
    found = {}
    for one in re.findall(r"<svg .*?</svg>", text_of(kind), re.DOTALL):
        root = ET.fromstring(one.replace("&nbsp;", "&#160;"))
        found[root.attrib["aria-labelledby"].split("-t ")[0]] = root
    return found


def boxes(root: ET.Element) -> Iterator[Box]:
    """Where the texts of a drawing stand, in the font by which there is room for them."""
    for text in root.iter("text"):
        told = (text.text or "").replace("\xa0", " ")
        x, y, wide = float(text.attrib["x"]), float(text.attrib["y"]), width_of(told)
        anchor = re.search(r"text-anchor:(\w+)", text.attrib.get("style", ""))
        left = x - {"middle": wide / 2, "end": wide}.get(anchor[1] if anchor else "", 0.0)
        yield Box(told, left, left + wide, y - HIGH, y)


@pytest.mark.parametrize("kind", REPORTS)
def test_no_text_lies_over_another_or_is_cut_off(kind: str) -> None:
    seen = 0
    for name, root in pictures(kind).items():
        width, height = map(float, root.attrib["viewBox"].split()[2:])
        found = list(boxes(root))
        seen += len(found)
        for box in found:
            assert box.left >= -1, (name, box)
            assert box.right <= width + 1, (name, box)
            assert box.top >= -1, (name, box)
            assert box.bottom <= height + 1, (name, box)
        assert [(name, a.text, b.text) for a, b in combinations(found, 2) if a.meets(b)] == []
    assert seen or kind == "nothing"


@pytest.mark.parametrize("kind", REPORTS)
def test_nothing_is_drawn_outside(kind: str) -> None:
    for name, root in pictures(kind).items():
        width, height = map(float, root.attrib["viewBox"].split()[2:])
        clipped = {id(path) for path in root.iter("path") if "clip-path" in path.attrib}
        clipped |= {id(path) for defs in root.iter("defs") for path in defs.iter("path")}
        for path in root.iter("path"):
            if id(path) in clipped:
                continue
            numbers = [float(one) for one in re.findall(r"-?\d+(?:\.\d+)?", path.attrib["d"])]
            assert all(-6 <= x <= width + 6 for x in numbers[::2]), name
            assert all(-6 <= y <= height + 6 for y in numbers[1::2]), name


def test_every_line_is_named_at_its_end() -> None:
    found = pictures("events")
    names = {name: [box.text for box in boxes(root)] for name, root in found.items()}
    for width in ("w", "n"):
        assert {"P50", "P90", "P99"} <= set(names[f"time-itl-{width}"])
        assert {"P50", "P90", "max", "chat 500 ms", "fast 100 ms"} <= set(names[f"time-ttft-{width}"])
        assert {"in the system", "no token yet", "in the queue"} <= set(names[f"load-system-{width}"])
        assert {"arrived", "ended"} <= set(names[f"load-rates-{width}"])
        assert {"succeeded", "good: chat", "good: fast"} <= set(names[f"load-requests-{width}"])
        assert {"50 %", "90 %", "99 %"} <= set(names[f"map-{width}"])
        assert sum(text.startswith("chat: ") for text in names[f"map-{width}"]) == 1
    assert "conv" in names["by-ttft"]
    assert any(text.startswith("P99 ") for text in names["shape-ttft"])
    assert any(text.startswith("chat 500 ms: ") and text.endswith(" within") for text in names["shape-ttft"])


def test_a_limit_far_off_is_named_with_an_arrow() -> None:
    report = made(requests(200, 60, spread=1.2), ["low:ttft=1us,tpot=1us", "high:ttft=1000s,tpot=100s"])
    drawn, axis = placed(limits_of(report, "ttft"), [0.01, 0.3, 2.0])
    assert [limit.name for limit in drawn] == ["low 1 \u00b5s \u2193", "high 1,000 s \u2191"]
    assert axis.log
    assert 0.005 < axis.low < 0.01
    assert 2 < axis.high < 4
    # On an axis from 0 one that is low is on it, and one that is near is drawn where it is.
    drawn, axis = placed([Limit("low", 0.001), Limit("near", 0.5)], [0.1, 0.3])
    assert ([limit.name for limit in drawn], axis.low) == (["low", "near"], 0)
    assert axis.high >= 0.5


def test_ticks_leave_room_for_each_other() -> None:
    from matplotlib.figure import Figure

    rng = random.Random(8)
    left_out = 0
    for _ in range(60):
        low = 10 ** rng.uniform(-5, 1)
        axis = scale.logarithmic(low, low * 10 ** rng.uniform(0.05, 4), rng.choice((4, 5, 8)))
        figure = Figure(figsize=(4, 3), dpi=72)
        axes = axes_at(figure, 40, 10, 200, 100)
        scale.across(axes, axis)
        told = [label.get_text() for label in axes.get_xticklabels()]
        places = [axes.transData.transform((tick, 0))[0] for tick in axis.ticks]
        shown = [(place, text) for place, text in zip(places, told, strict=True) if text]
        assert len(shown) >= 2
        for (place, text), (after, beside) in pairwise(shown):
            assert after - place >= (width_of(text) + width_of(beside)) / 2
        left_out += len(places) - len(shown)
    assert left_out


def test_names_are_spread_with_as_little_as_can_be() -> None:
    rng = random.Random(4)
    for _ in range(300):
        places = [rng.uniform(0, 100) for _ in range(rng.randrange(1, 8))]
        found = spread(places, 12, 0, 100)
        ordered = sorted(found)
        assert all(b - a >= 12 - 1e-9 for a, b in pairwise(ordered))
        assert -1e-9 <= ordered[0] <= ordered[-1] <= 100 + 1e-9
        assert sorted(range(len(places)), key=places.__getitem__) == sorted(range(len(places)), key=found.__getitem__)
        if len(places) == 1 or min(b - a for a, b in pairwise(sorted(places))) >= 12:
            assert found == pytest.approx(places)
    assert spread([50.0] * 5, 30, 0, 100) == [0, 25, 50, 75, 100]


def test_joined_bins_have_the_percentiles_of_wider_ones() -> None:
    lines = requests(3000, 400)
    fine, coarse = (made(lines, timeline_ns=width * SECOND, bins=1000) for width in (1, 32))
    timeline = Timeline(fine)
    found = {round(one.start + 1_764_000_000, 3): one for one in timeline.joined(32)}
    first = timeline.offset + 1_764_000_000
    assert first % 32 == pytest.approx(0)  # so that bins lie alike
    assert len(found) == len(coarse.timeline) > 10
    for place, one in enumerate(coarse.timeline):
        joined = found[round(one["start_seconds"], 3)]
        for metric in ("ttft", "tpot", "itl"):
            if one["latency"][metric]:
                sketch = timeline.sketch(metric, joined.places)
                assert sketch.to_bytes() == coarse.timeline_sketches[place][metric].to_bytes()


def test_bins_are_joined_until_they_have_values_enough() -> None:
    timeline = Timeline(made(requests(3000, 400)))
    ttft, itl = percentiles(timeline, "ttft"), percentiles(timeline, "itl")
    assert ttft is not None
    assert itl is not None
    assert ttft.names == itl.names == ("p50", "p90", "p99")
    assert ttft.width > itl.width
    counts = sorted(sketch.count for _, sketch in ttft.bins)
    assert counts[len(counts) // 10] >= 100
    few = percentiles(Timeline(made(requests(60, 400))), "ttft")
    assert few is not None
    assert few.names == ("p50", "p90", "max")
    assert percentiles(timeline, "scheduling") is None


def test_rates_over_time_add_up_to_all() -> None:
    # The first bin has a tenth of a second of this one.
    late = made(requests(500, 77, start_ns=900 * MS), timeline_ns=SECOND)
    assert Timeline(late).offset == pytest.approx(-0.9)
    for report in (made(requests(500, 77)), late, report_of("cut"), report_of("events")):
        timeline = Timeline(report)
        for size in (1, 3, 16, 1000):
            ends = counted_run(report, timeline)
            bins = timeline.stretches(size, ends)
            assert bins[0].start == ends[0]
            assert all(a.end == b.start for a, b in pairwise(bins))
            assert bins[-1].end <= ends[1]
            for name, amount in (("output", report.tokens["output"]), ("prompt", report.tokens["prompt"])):
                rates = timeline.per_second(bins, lambda one, name=name: one["tokens"][name])  # type: ignore[misc]
                total = sum((one.value or 0) * (one.end - one.start) for one in rates)
                assert total == pytest.approx(amount)


def test_the_axis_of_time_ends_with_the_run_and_begins_with_a_cut() -> None:
    report = report_of("cut")
    timeline = Timeline(report)
    start, end = counted_run(report, timeline)
    assert 19 < start <= 20.2
    assert 60 < end < 65
    assert whole_run(report, timeline)[0] == 0
    assert whole_run(report, timeline)[1] > 99
    # What is found lost an hour later is no part of the run.
    lines = [{"t_ns": 0, "id": "lost", "ev": "arrive"}, *requests_as_events()]
    late = made([*lines, {"t_ns": 9000 * SECOND, "id": "lost", "ev": "tokens"}])
    assert late.requests["lost"] == 1
    assert whole_run(late, Timeline(late))[1] < 9100


def requests_as_events() -> Iterator[dict[str, object]]:
    for i in range(20):
        yield {"t_ns": i * SECOND, "id": str(i), "ev": "arrive"}
        yield {"t_ns": i * SECOND + 10 * MS, "id": str(i), "ev": "tokens"}
        yield {"t_ns": i * SECOND + 10 * MS, "id": str(i), "ev": "end", "status": "stop"}


def test_requests_before_their_first_token_are_counted() -> None:
    # Always three in the system, of which one has no token yet.
    drawing = pictures("all alike")["load-system-w"]
    assert {"in the system", "no token yet"} <= {box.text for box in boxes(drawing)}
    desc = drawing.find("desc")
    assert desc is not None
    assert "The mean is 2.9" in (desc.text or "")


def test_a_distribution_has_every_value() -> None:
    report = made([*requests(400, 50), *same(7, [0, 0]), *same(5, [5000 * SECOND])])
    sketch = report.sketches["ttft"]
    shape = Shape.of(sketch)  # type: ignore[arg-type]
    assert shape is not None
    assert shape.zeros == 7
    assert shape.zeros + sum(shape.counts) == shape.total == sketch.count
    edges, counts = shape.bars()
    assert len(edges) == len(counts) + 1 <= 61
    assert sum(counts) == sum(shape.counts)
    xs, ys = shape.shares()
    assert ys[-1] == 1.0
    for x, y in list(zip(xs, ys, strict=True))[::17]:
        assert y == pytest.approx(sketch.cdf(x), abs=1e-12)
    assert Shape.of(made(same(3, [0, 0])).sketches["ttft"]) is None  # type: ignore[arg-type]


def test_the_map_is_the_share_within_both_limits() -> None:
    lines = requests(800, 60)
    report = made(lines, "ttft=0.2s,tpot=30ms")
    found = Map.of(report)
    assert found is not None
    ended = [line for line in lines if line["status"] != "abort"]
    for row in range(0, len(found.ttft), 7):
        for column in range(0, len(found.tpot), 7):
            kept = 0
            for line in ended:
                offsets = line["dt_ns"]
                if line["status"] in ("stop", "length") and offsets and offsets[0] <= found.ttft[row] * 1e9:
                    tpot = (offsets[-1] - offsets[0]) // (len(offsets) - 1) if len(offsets) > 1 else 0
                    kept += tpot <= found.tpot[column] * 1e9
            assert found.share[row, column] == pytest.approx(kept / len(ended))
    # It holds the SLO's limits, and ends above all values.
    assert found.ttft[0] < 0.2 < found.ttft[-1]
    assert found.tpot[0] < 0.03 < found.tpot[-1]
    assert found.share[-1, -1] == pytest.approx(report.requests["succeeded"] / len(ended))
    assert Map.of(report_of("one token each")) is None
    assert Map.of(report_of("nothing")) is None


def luminance(colour: str) -> float:
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_colours_can_be_told_apart_whatever_hues_one_sees(theme: dict[str, str]) -> None:
    for name in ("ink", "muted", "p50", "p90", "p99", "first", "second", "third", "good", "bad"):
        assert contrast(theme[name], theme["paper"]) >= 4.5, name
    assert contrast(theme["muted"], theme["panel"]) >= 4.5
    # Percentiles that stand in one figure differ in lightness, and so do the bands of the map, in order.
    assert contrast(theme["p50"], theme["p90"]) > 1.4
    assert contrast(theme["p90"], theme["p99"]) > 1.4
    bands = [luminance(theme[f"band{i}"]) for i in range(BANDS)]
    assert bands in (sorted(bands), sorted(bands, reverse=True))
    assert all(contrast(theme[f"band{i}"], theme[f"band{i + 1}"]) > 1.05 for i in range(BANDS - 1))
    assert LIGHT.keys() == DARK.keys()
