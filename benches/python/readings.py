"""How a report's sums are formed from a log, by tokenpulse and by others: each the quickest way that its library has.

All form the same sums, and no more: the report forms distributions of every metric beside. The sum of the gaps between
tokens is the last time less the first, so that it needs no gap; for request lines peers also do what a report must, and
look at every gap for the least and the greatest.

Each reading is made by a process of its own, on as many cores as it is told:

    python benches/python/readings.py polars events 1

reads paths from standard input, and prints the seconds that it took, the sums, and its peak of memory.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from operator import sub
from pathlib import Path
from time import perf_counter
from typing import Any

BLOCK = 16 << 20
"""Bytes of lines that are decoded at a time."""


@dataclass(frozen=True)
class Sums:
    """Sums in nanoseconds."""

    requests: int
    tokens: int
    ttft: int
    itl: int
    e2e: int
    gaps: int
    least: int | None = None
    """Of the gaps, where every gap was looked at."""
    greatest: int | None = None

    def agree(self, other: Sums) -> bool:
        """Whether both say the same of what both looked at."""
        pairs = zip(asdict(self).values(), asdict(other).values(), strict=True)
        return all(one == two for one, two in pairs if one is not None and two is not None)


@dataclass(frozen=True)
class Read:
    """What one reading came to."""

    seconds: float
    sums: Sums
    peak: int
    """Bytes of memory at most, of the whole process so far."""


Reading = Callable[[str, int], Sums]
"""From a path, on so many cores."""


def report(path: str, cores: int) -> Sums:
    import tokenpulse

    report = tokenpulse.report(path, threads=cores)
    assert report.unusable == 0
    ttft, itl, e2e = (report.latency[metric] for metric in ("ttft", "itl", "e2e"))
    assert ttft is not None
    assert itl is not None
    assert e2e is not None
    return Sums(
        report.requests["attempted"],
        report.tokens["output"],
        ttft["sum_ns"],
        itl["sum_ns"],
        e2e["sum_ns"],
        itl["count"],
        *(round(itl[end] * 1e9) for end in ("min", "max")),
    )


def polars_events(path: str, _: int) -> Sums:
    import polars as pl

    kind, t = pl.col("ev"), pl.col("t_ns")
    emits = kind == "tokens"
    requests = (
        pl.scan_ndjson(path, schema={"t_ns": pl.Int64, "id": pl.String, "ev": pl.String, "k": pl.Int64})
        .select(
            "id",
            arrive=pl.when(kind == "arrive").then(t),
            emit=pl.when(emits).then(t),
            end=pl.when(kind == "end").then(t),
            k=pl.when(emits).then(pl.col("k").fill_null(1)),
        )
        .group_by("id")
        .agg(
            pl.col("arrive").min(),
            first=pl.col("emit").min(),
            last=pl.col("emit").max(),
            n=pl.col("k").sum(),
            emissions=pl.col("emit").count(),
            end=pl.col("end").max(),
        )
    )
    first, last, arrive = pl.col("first"), pl.col("last"), pl.col("arrive")
    sums = requests.select(
        requests=arrive.count(),
        tokens=pl.col("n").sum(),
        ttft=(first - arrive).sum(),
        itl=(last - first).sum(),
        e2e=pl.when(pl.col("end").is_not_null()).then(last - arrive).sum(),
        gaps=pl.when(first.is_not_null()).then(pl.col("emissions").cast(pl.Int64) - 1).sum(),
    )
    return Sums(**sums.collect(engine="streaming").row(0, named=True))


def polars_requests(every_gap: bool) -> Reading:
    def read(path: str, _: int) -> Sums:
        import polars as pl

        offsets = pl.col("dt_ns").list
        first, last, n = offsets.first(), offsets.last(), offsets.len().cast(pl.Int64)
        gaps = pl.col("gaps").list
        rows = pl.scan_ndjson(path, schema={"dt_ns": pl.List(pl.Int64)})
        if every_gap:
            rows = rows.with_columns(gaps=offsets.diff())
        sums = rows.select(
            requests=pl.len(),
            tokens=n.sum(),
            ttft=first.sum(),
            itl=(gaps.sum() if every_gap else last - first).sum(),
            e2e=last.sum(),
            gaps=pl.when(n > 0).then(n - 1).sum(),
            **({"least": gaps.min().min(), "greatest": gaps.max().max()} if every_gap else {}),
        )
        return Sums(**sums.collect(engine="streaming").row(0, named=True))

    return read


DUCKDB = {
    "events": """
        with requests as (
            select
                id,
                min(t_ns) filter (ev = 'arrive') as arrive,
                min(t_ns) filter (ev = 'tokens') as first,
                max(t_ns) filter (ev = 'tokens') as last,
                sum(coalesce(k, 1)) filter (ev = 'tokens') as n,
                count(*) filter (ev = 'tokens') as emissions,
                count(*) filter (ev = 'end') as ends
            from read_json(?, format = 'newline_delimited',
                columns = {t_ns: 'BIGINT', id: 'VARCHAR', ev: 'VARCHAR', k: 'BIGINT'})
            group by id
        )
        select count(arrive), sum(n), sum(first - arrive), sum(last - first), sum(last - arrive) filter (ends > 0),
            sum(emissions - 1) filter (emissions > 0)
        from requests
    """,
    "requests, every gap": """
        with requests as (
            select dt_ns, [dt_ns[i + 1] - dt_ns[i] for i in range(1, len(dt_ns))] as gaps
            from read_json(?, format = 'newline_delimited', columns = {dt_ns: 'BIGINT[]'})
        )
        select count(*), sum(len(dt_ns)), sum(dt_ns[1]), sum(list_sum(gaps)), sum(dt_ns[-1]), sum(len(gaps)),
            min(list_min(gaps)), max(list_max(gaps))
        from requests
    """,
    "requests": """
        with requests as (
            select len(dt_ns) as n, dt_ns[1] as first, dt_ns[-1] as last
            from read_json(?, format = 'newline_delimited', columns = {dt_ns: 'BIGINT[]'})
        )
        select count(*), sum(n), sum(first), sum(last - first), sum(last), sum(n - 1) filter (n > 0)
        from requests
    """,
}


def duckdb(kind: str) -> Reading:
    def read(path: str, cores: int) -> Sums:
        import duckdb

        with duckdb.connect(config={"threads": cores}) as connection:
            found = connection.execute(DUCKDB[kind], [path]).fetchone()
        assert found is not None
        return Sums(*map(int, found))

    return read


def orjson_events(path: str, _: int) -> Sums:
    import orjson

    requests = tokens = ttft = itl = e2e = gaps = 0
    in_flight: dict[str, list[Any]] = {}
    loads = orjson.loads
    with open(path, "rb") as log:
        for line in log:
            event = loads(line)
            kind = event["ev"]
            if kind == "tokens":
                request = in_flight.get(event["id"])
                if request is not None:
                    t = event["t_ns"]
                    tokens += event.get("k", 1)
                    arrive, last = request
                    if last is None:
                        ttft += t - arrive
                    else:
                        itl += t - last
                        gaps += 1
                    request[1] = t
            elif kind == "arrive":
                in_flight[event["id"]] = [event["t_ns"], None]
                requests += 1
            elif kind == "end":
                request = in_flight.pop(event["id"], None)
                if request is not None and request[1] is not None:
                    e2e += request[1] - request[0]
    return Sums(requests, tokens, ttft, itl, e2e, gaps)


def orjson_requests(every_gap: bool) -> Reading:
    def read(path: str, _: int) -> Sums:
        import orjson

        loads = orjson.loads
        with open(path, "rb") as log:
            rows = (loads(line)["dt_ns"] for line in log)
            return of_gaps(rows) if every_gap else of_offsets(rows)

    return read


def of_offsets(rows: Iterator[list[int]]) -> Sums:
    requests = tokens = ttft = itl = e2e = gaps = 0
    for offsets in rows:
        requests += 1
        if offsets:
            first, last, n = offsets[0], offsets[-1], len(offsets)
            tokens += n
            ttft += first
            e2e += last
            itl += last - first
            gaps += n - 1
    return Sums(requests, tokens, ttft, itl, e2e, gaps)


def of_gaps(rows: Iterator[list[int]]) -> Sums:
    """With the quickest idiom that the language has for differences."""
    requests = tokens = ttft = itl = e2e = gaps = 0
    least, greatest = sys.maxsize, -1
    for offsets in rows:
        requests += 1
        if offsets:
            tokens += len(offsets)
            ttft += offsets[0]
            e2e += offsets[-1]
            between = list(map(sub, offsets[1:], offsets))
            if between:
                gaps += len(between)
                itl += sum(between)
                least = min(least, min(between))
                greatest = max(greatest, max(between))
    return Sums(requests, tokens, ttft, itl, e2e, gaps, least, greatest)


def blocks(path: str) -> Iterator[bytes]:
    """Whole lines, so many bytes of them at a time."""
    with open(path, "rb") as log:
        while block := log.read(BLOCK):
            yield block + log.readline()


def msgspec_events(path: str, _: int) -> Sums:
    import msgspec

    Event: Any = msgspec.defstruct("Event", [("t_ns", int), ("ev", str), ("id", str, ""), ("k", int, 1)], gc=False)  # noqa: N806
    requests = tokens = ttft = itl = e2e = gaps = 0
    in_flight: dict[str, list[Any]] = {}
    decode = msgspec.json.Decoder(Event).decode_lines
    for block in blocks(path):
        for event in decode(block):
            kind = event.ev
            if kind == "tokens":
                request = in_flight.get(event.id)
                if request is not None:
                    t = event.t_ns
                    tokens += event.k
                    arrive, last = request
                    if last is None:
                        ttft += t - arrive
                    else:
                        itl += t - last
                        gaps += 1
                    request[1] = t
            elif kind == "arrive":
                in_flight[event.id] = [event.t_ns, None]
                requests += 1
            elif kind == "end":
                request = in_flight.pop(event.id, None)
                if request is not None and request[1] is not None:
                    e2e += request[1] - request[0]
    return Sums(requests, tokens, ttft, itl, e2e, gaps)


def msgspec_requests(path: str, _: int) -> Sums:
    import msgspec

    Request: Any = msgspec.defstruct("Request", [("dt_ns", list[int])], gc=False)  # noqa: N806
    decode = msgspec.json.Decoder(Request).decode_lines
    return of_gaps(request.dt_ns for block in blocks(path) for request in decode(block))


READINGS: dict[str, dict[str, Reading]] = {
    "events": {
        "tokenpulse": report,
        "polars": polars_events,
        "duckdb": duckdb("events"),
        "msgspec": msgspec_events,
        "orjson": orjson_events,
    },
    "requests": {
        "tokenpulse": report,
        "polars": polars_requests(every_gap=True),
        "duckdb": duckdb("requests, every gap"),
        "msgspec": msgspec_requests,
        "orjson": orjson_requests(every_gap=True),
        "polars, no gap": polars_requests(every_gap=False),
        "duckdb, no gap": duckdb("requests"),
        "orjson, no gap": orjson_requests(every_gap=False),
    },
}
ON_ONE_CORE_ONLY = ("msgspec", "orjson")


class Reader:
    """A process that reads logs as one library does, on so many cores."""

    def __init__(self, name: str, kind: str, cores: int) -> None:
        command = [sys.executable, __file__, name, kind, str(cores)]
        # Some libraries make as many threads as they are told when they are loaded.
        threads = dict.fromkeys(("POLARS_MAX_THREADS", "OMP_NUM_THREADS"), str(cores))
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **threads}
        )

    def read(self, path: Path) -> Read:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{path}\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return Read(answer["seconds"], Sums(**answer["sums"]), answer["peak"])

    def close(self) -> None:
        self._process.communicate()


def peak() -> int:
    """The most memory that this process has had, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():
        # What getrusage says begins with what the parent had.
        return 1024 * next(
            int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM:")
        )
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def serve(name: str, kind: str, cores: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])
    reading = READINGS[kind][name]
    for line in sys.stdin:
        started = perf_counter()
        sums = reading(line.rstrip("\n"), cores)
        seconds = perf_counter() - started
        print(json.dumps({"seconds": seconds, "sums": asdict(sums), "peak": peak()}), flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: readings.py NAME KIND CORES")
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]))
