"""Derives `sketch.json` from the definition, by means that neither engine uses: comparison of whole powers for the
index, 60-digit decimals for the edges, sorted lists for ranks, the official protobuf classes for the bytes.

Run it by hand: `python tests/vectors/derive.py`. It imports nothing of tokenpulse.
"""

from __future__ import annotations

import json
import math
from decimal import Context, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

EXACT = Context(prec=60)
LOW, HIGH = -20, 12


def is_above(ns: int, index: int, scale: int) -> bool:
    """Whether ns / 10^9 > 2^(index / 2^scale), both raised to the power 2^scale."""
    m = 2**scale
    return Fraction(ns**m, 10 ** (9 * m)) > Fraction(2) ** index


def bucket(ns: int, scale: int) -> int | str:
    m = 2**scale
    low, high = LOW * m, HIGH * m
    if not is_above(ns, low, scale):
        return "zero"
    if is_above(ns, high, scale):
        return "overflow"
    while high - low > 1:  # above low, not above high
        middle = (low + high) // 2
        low, high = (middle, high) if is_above(ns, middle, scale) else (low, middle)
    return low


def edge_decimal(index: int, scale: int) -> Decimal:
    return EXACT.power(Decimal(2), EXACT.divide(Decimal(index), Decimal(2**scale)))


def edge(index: int, scale: int) -> float:
    return float(edge_decimal(index, scale))


def edge_ns(index: int, scale: int) -> int:
    """The largest whole ns that is not above an edge."""
    ns = int(EXACT.multiply(edge_decimal(index, scale), Decimal(10**9)))
    while is_above(ns + 1, index, scale) is False:
        ns += 1
    while is_above(ns, index, scale):
        ns -= 1
    return ns


def estimate(ns: int, scale: int, values: list[int]) -> float:
    """What the bucket of a value answers, in seconds, clamped to the range of the values."""
    least, most = float(min(values)) / 1e9, float(max(values)) / 1e9
    where = bucket(ns, scale)
    if where == "zero":
        answer = 0.0
    elif where == "overflow":
        answer = most
    else:
        lo, hi = edge(where, scale), edge(where + 1, scale)
        answer = 2 * lo * hi / (lo + hi)
    return max(least, min(answer, most))


def quantile(values: list[int], q: float, scale: int) -> float:
    if q in (0, 1):
        return float(min(values) if q == 0 else max(values)) / 1e9
    rank = max(1, math.ceil(q * float(len(values))))
    return estimate(sorted(values)[rank - 1], scale, values)


def encoded(values: list[int], scale: int, rule: str | None, rejected: dict[str, int], total: int) -> bytes:
    from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint

    point = ExponentialHistogramDataPoint()

    def put(key: str, value: str | int) -> None:
        attribute = point.attributes.add()
        attribute.key = f"tokenpulse.{key}"
        if isinstance(value, str):
            attribute.value.string_value = value
        else:
            attribute.value.int_value = value

    put("version", 1)
    put("sum_ns", str(total))
    if values:
        put("min_ns", min(values))
        put("max_ns", max(values))
        point.min, point.max = float(min(values)) / 1e9, float(max(values)) / 1e9
    if rule is not None:
        put("itl_rule", rule)
    for reason in ("nan", "infinite", "negative", "range"):
        if rejected.get(reason):
            put(f"rejected.{reason}", rejected[reason])
    point.count, point.sum, point.scale = len(values), float(total) / 1e9, scale
    places = [bucket(value, scale) for value in values]
    point.zero_count, point.zero_threshold = places.count("zero"), 2.0**-20
    indices = [HIGH * 2**scale if place == "overflow" else place for place in places if place != "zero"]
    if indices:
        point.positive.offset = min(indices)
        point.positive.bucket_counts.extend(indices.count(i) for i in range(min(indices), max(indices) + 1))
    return point.SerializeToString(deterministic=True)


def index_cases() -> list[dict[str, Any]]:
    cases = []
    for scale in (0, 1, 3, 6, 8):
        m = 2**scale
        # Ties: whole powers of two in seconds are whole ns down to 2^-9, and lie in the bucket below.
        values = {0, 1, 953, 954, 955, 1000, 10**6, 4096 * 10**9, 4096 * 10**9 + 1, 2**63 - 1}
        for exponent in (-9, -1, 0, 1, 11):
            tie = 10**9 * 2**exponent if exponent >= 0 else 10**9 // 2**-exponent
            values |= {tie - 1, tie, tie + 1}
        for index in (LOW * m + 1, -7 * m + m // 2, m // 3, 5 * m + 1, HIGH * m - 1):
            values |= {edge_ns(index, scale), edge_ns(index, scale) + 1}
        cases += [{"scale": scale, "ns": ns, "bucket": bucket(ns, scale)} for ns in sorted(values)]
    return cases


def edge_cases() -> list[dict[str, Any]]:
    cases = []
    for scale in range(9):
        m = 2**scale
        picks = sorted({LOW * m, LOW * m + 1, -1, 0, 1, m // 2, m - 1, m, 3 * m + m // 3, HIGH * m - 1, HIGH * m})
        cases += [{"scale": scale, "index": i, "seconds": edge(i, scale).hex()} for i in picks]
    return cases


def conversion_cases() -> list[dict[str, Any]]:
    """Seconds to ns: the product as the nearest double of the exact one, then to the nearest integer, ties to even."""
    cases: list[dict[str, Any]] = []
    doubles = [0.0, 1e-9, 0.5e-9, 1.5e-9, 2.5e-9, 0.1, 0.3, 1 / 3, 1.0000000005, 1e-6, 123.456789012, 9.2e9, 5e-324]
    for x in doubles:
        product = float(Fraction(x) * 10**9)  # the conversion of a Fraction is correctly rounded
        cases.append({"seconds": x.hex(), "ns": round(Fraction(product))})
    refused = [
        ("nan", math.nan),
        ("infinite", math.inf),
        ("negative", -math.inf),
        ("negative", -1e-12),
        ("negative", -5e-324),
        ("negative", -1.0),
        ("range", 9223372036.854775807),
        ("range", 1e300),
        ("range", 1.7e308),
    ]
    cases += [{"seconds": x.hex(), "rejected": reason} for reason, x in refused]
    cases.append({"seconds": (-0.0).hex(), "ns": 0})
    return cases


SAMPLES = {
    "one": [1_500_000],
    "ties": [10**9, 10**9, 2 * 10**9, 500_000_000],
    "ramp": [k * 1_234_567 for k in range(1, 101)],
    "ends": [0, 0, 953, 954, 4096 * 10**9, 4096 * 10**9 + 1, 2**62],
    "zeros": [0, 1, 2, 900],
}


def quantile_cases() -> list[dict[str, Any]]:
    qs = [0.0, 0.001, 0.1, 0.25, 0.29, 0.5, 0.57, 0.9, 0.95, 0.99, 0.999, 1.0]
    return [
        {"scale": scale, "values_ns": values, "q": [q.hex() for q in qs], "seconds": [a.hex() for a in answers]}
        for values in SAMPLES.values()
        for scale in (0, 6, 8)
        for answers in [[quantile(values, q, scale) for q in qs]]
    ]


def cdf_cases() -> list[dict[str, Any]]:
    values, scale = SAMPLES["ramp"], 6
    xs = [0.0, 0.001234566, 0.001234567, 0.01, 0.0617, 0.1, 0.1234566, 0.1234567, 1.0]
    answers = []
    for x in xs:
        below = sum(estimate(value, scale, values) <= x for value in values)
        answers.append(0.0 if x < min(values) / 1e9 else 1.0 if x >= max(values) / 1e9 else below / len(values))
    return [{"scale": scale, "values_ns": values, "x": [x.hex() for x in xs], "share": [a.hex() for a in answers]}]


def merge_cases() -> list[dict[str, Any]]:
    pairs = [("ramp", 6, "ties", 6), ("ramp", 8, "ends", 3), ("zeros", 0, "ramp", 8), ("one", 5, "one", 4)]
    return [
        {
            "left": {"scale": a, "values_ns": SAMPLES[left]},
            "right": {"scale": b, "values_ns": SAMPLES[right]},
            "hex": encoded(both, min(a, b), None, {}, sum(both)).hex(),
        }
        for left, a, right, b in pairs
        for both in [SAMPLES[left] + SAMPLES[right]]
    ]


def difference_cases() -> list[dict[str, Any]]:
    cases = []
    for earlier, earlier_scale, added, scale in [
        ([10**6], 6, [2 * 10**6, 3 * 10**9], 6),
        (SAMPLES["ramp"], 8, [0, 5], 6),
        ([], 6, [4096 * 10**9 + 5], 6),
        ([2**40], 6, [], 6),
    ]:
        later = earlier + added
        least = most = None
        if added:
            first, last = bucket(min(added), scale), bucket(max(added), scale)
            least = {"zero": 0, "overflow": 4096 * 10**9 + 1}.get(first) if isinstance(first, str) else None
            least = edge_ns(first, scale) + 1 if least is None else least
            most = {"zero": 953, "overflow": max(later)}.get(last) if isinstance(last, str) else None
            most = edge_ns(last + 1, scale) if most is None else most
        cases.append(
            {
                "earlier": {"scale": earlier_scale, "values_ns": earlier},
                "later": {"scale": scale, "values_ns": later},
                "count": len(added),
                "sum_ns": sum(added),
                "min_ns": least,
                "max_ns": most,
            }
        )
    return cases


def bytes_cases() -> list[dict[str, Any]]:
    cases = []
    for name, values, scale, rule, rejected in [
        ("empty", [], 6, None, {}),
        ("empty of scale 0 with a rule", [], 0, "stamp", {}),
        ("one", SAMPLES["one"], 6, None, {}),
        ("ends", SAMPLES["ends"], 8, "token", {"nan": 1, "infinite": 2, "negative": 300, "range": 4}),
        ("ramp", SAMPLES["ramp"], 6, "chunk", {}),
        ("zeros", SAMPLES["zeros"], 0, None, {"negative": 1}),
        ("one second, the tie at index -1", [10**9], 3, None, {}),
        ("just over a second, offset 0", [10**9 + 1], 3, None, {}),
    ]:
        code = encoded(values, scale, rule, rejected, sum(values)).hex()
        cases.append(
            {"name": name, "scale": scale, "itl_rule": rule, "values_ns": values, "rejected": rejected, "hex": code}
        )
    return cases


def split_cases() -> list[dict[str, Any]]:
    """A gap of 10 ns to 3 tokens: three of 3 ns, the sum 10."""
    return [
        {"gap_ns": gap, "k": k, "value_ns": gap // k, "count": k, "sum_ns": gap}
        for gap, k in [(10, 3), (1, 2), (0, 5), (7_000_000, 7), (5, 2**32 - 1)]
    ]


def refused_bytes() -> list[dict[str, str]]:
    """One-field changes of a good sketch that must each be refused."""
    from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint

    good = encoded([1000, 10**6, 5 * 10**12], 6, "token", {"nan": 1}, 1000 + 10**6 + 5 * 10**12)
    cases = [{"name": "cut short", "hex": good[:-3].hex()}, {"name": "no bytes", "hex": ""}]

    def changed(name: str) -> Any:
        cases.append({"name": name, "hex": ""})
        return ExponentialHistogramDataPoint.FromString(good)

    def done(point: Any) -> None:
        cases[-1]["hex"] = point.SerializeToString(deterministic=True).hex()

    for key in ("version", "sum_ns", "min_ns", "max_ns"):
        point = changed(f"without {key}")
        kept = [attribute for attribute in point.attributes if attribute.key != f"tokenpulse.{key}"]
        del point.attributes[:]
        point.attributes.extend(kept)
        done(point)
    for key, value in [("version", 2), ("min_ns", 5 * 10**12), ("max_ns", 10**6), ("min_ns", -1)]:
        point = changed(f"{key} {value}")
        for attribute in point.attributes:
            if attribute.key == f"tokenpulse.{key}":
                attribute.value.int_value = value
        done(point)
    for key, text in [("sum_ns", "-1"), ("sum_ns", "1"), ("sum_ns", "x"), ("sum_ns", "9" * 30), ("itl_rule", "vllm")]:
        point = changed(f"{key} {text}")
        for attribute in point.attributes:
            if attribute.key == f"tokenpulse.{key}":
                attribute.value.string_value = text
        done(point)
    fields = [("zero_threshold", 0.0), ("zero_threshold", 2.0**-21), ("scale", 9), ("scale", -1), ("count", 4)]
    for name, value in fields:
        point = changed(f"{name} {value}")
        setattr(point, name, value)
        done(point)
    for offset in (-1281, 768):
        point = changed(f"offset {offset}")
        point.positive.offset = offset
        done(point)
    point = changed("negative buckets")
    point.negative.bucket_counts.extend([1])
    done(point)
    return cases


def main() -> None:
    """Writes `sketch.json`."""
    sections: dict[str, Any] = {
        "index": index_cases(),
        "edges": edge_cases(),
        "seconds": conversion_cases(),
        "quantiles": quantile_cases(),
        "cdf": cdf_cases(),
        "merges": merge_cases(),
        "differences": difference_cases(),
        "splits": split_cases(),
        "bytes": bytes_cases(),
        "refused_bytes": refused_bytes(),
        "relative_error": [
            {"scale": scale, "error": ((edge(1, scale) - 1) / (edge(1, scale) + 1)).hex()} for scale in range(9)
        ],
    }
    lines = []
    for section, cases in sections.items():
        rows = ",\n".join(f"  {json.dumps(case)}" for case in cases)
        lines.append(f"{json.dumps(section)}: [\n{rows}\n]")
    Path(__file__).with_name("sketch.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
