"""The picture of a curve: what it names, that nothing lies over anything else, and that it is always the same."""

from __future__ import annotations

import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenpulse.reporting.kv import Curve, grid
from tokenpulse.reporting.picture import arrange, check
from tokenpulse.reporting.text import several

pytest.importorskip("matplotlib")


def curve_of(references: list[int], rate: float | None = None) -> Curve:
    """The exact curve of a short trace, by the stack itself."""
    stack: list[int] = []
    distances = []
    for block in references:
        if block in stack:
            place = stack.index(block)
            distances.append(len(stack) - place)
            del stack[place]
        stack.append(block)
    distinct = len(stack)
    found = np.array(distances, dtype=np.int64)

    def at(size: int) -> dict[str, int]:
        hits = int(np.sum(found <= size))
        evicted = len(references) - hits - min(size, distinct)
        return {"blocks": size, "hits": hits, "evicted": evicted, "refilled": len(found) - hits}

    every = [at(size) for size in range(1, distinct + 1)]

    def under(limit: float) -> dict[str, int]:
        over = [one["blocks"] for one in every if one["evicted"] and one["refilled"] / one["evicted"] >= limit]
        return at(max(over, default=0) + 1)

    sizes = grid(distinct)
    points = [at(size) for size in sizes]
    knee = max(every, key=lambda one: one["hits"] * distinct - one["blocks"] * every[-1]["hits"], default=None)
    raw: dict[str, Any] = {
        "references": len(references),
        "distinct": distinct,
        "sampled_references": len(references),
        "sampled_distinct": distinct,
        **{name: np.array([point[name] for point in points]) for name in ("hits", "evicted", "refilled")},
        "knee": knee,
        "refill_under": {"0.05": under(0.05) if every else None, "0.15": under(0.15) if every else None},
    }
    return Curve.of(raw, sizes, rate=rate, seed=3, block_tokens=16)


def trace(kind: str) -> list[int]:
    rng = random.Random(5)
    return {
        "tiny": [1, 2, 1, 3],
        "one block": [5] * 10,
        "nothing twice": list(range(400)),
        "a loop": list(range(150)) * 3,
        "hot and cold": [rng.randrange(12) if rng.random() < 0.9 else 100 + i for i in range(3000)],
        "skewed": [int(rng.paretovariate(0.7)) % 5000 for _ in range(3000)],
        "even": [rng.randrange(60) for _ in range(2000)],
    }[kind]


KINDS = ("tiny", "one block", "nothing twice", "a loop", "hot and cold", "skewed", "even")


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_lies_over_anything_else(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    seen: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *args, **named: (seen.append(self), save(self, *args, **named)))
    curve = curve_of(trace(kind))
    curve.plot(tmp_path / "curve.png", blocks=curve.points[0]["blocks"])
    (figure,) = seen
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    upper, lower = figure.axes
    names = [text.get_text() for text in figure.texts if "hit " in text.get_text()]
    axis = [label for axes in (upper, lower) for label in (*axes.get_xticklabels(), *axes.get_yticklabels())]
    axis = [label for label in axis if label.get_text() and label.get_visible()]
    labels = [axes.xaxis.label for axes in (upper, lower)] + [axes.yaxis.label for axes in (upper, lower)]
    texts = [*figure.texts, *upper.texts, *lower.texts, *axis, *labels]
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in texts if text.get_text().strip()]
    # Ticks outside an axis' range are made but not drawn.
    shown = [
        (name, box)
        for name, box in boxes
        if not (box.x0 < -20 or box.x1 > figure.bbox.x1 + 20 or box.y0 < -20 or box.y1 > figure.bbox.y1 + 20)
    ]
    assert len(shown) > 8
    for name, box in shown:
        assert 0 <= box.x0 < box.x1 <= figure.bbox.x1, name
        assert 0 <= box.y0 < box.y1 <= figure.bbox.y1, name
    for place, (name, box) in enumerate(shown):
        for other, beside in shown[place + 1 :]:
            assert not box.overlaps(beside), (name, other)
    # Every size worth knowing is named, once.
    sizes = [point["blocks"] for point in (curve.knee, *curve.refill_under.values(), curve.points[0]) if point]
    assert len(names) == len(set(sizes))
    for size in sizes:
        assert sum(f" {several(size, 'block')}\n" in name for name in names) == 1


def test_names_find_a_place() -> None:
    rng = random.Random(9)
    left, right, pad = 0.1, 0.95, 0.006
    crossed: list[int] = []
    for _ in range(300):
        n = rng.randrange(1, 5)
        lines = sorted(rng.uniform(left, right) for _ in range(n))
        if rng.random() < 0.3:
            lines = sorted(min(right, lines[0] + 0.002 * i) for i in range(n))
        wide = [rng.uniform(0.18, 0.27) for _ in range(n)]
        placed = arrange(lines, wide, pad, left, right)
        assert sorted(row for row, _ in placed) == list(range(n))
        for i, (row, to_left) in enumerate(placed):
            start, end = (lines[i] - pad - wide[i], lines[i]) if to_left else (lines[i], lines[i] + pad + wide[i])
            assert left <= start + 1e-9
            assert end <= right + 1e-9
            # Of four names as wide as these, one in hundreds of layouts leaves no other way.
            crossed += [j for j, (other, _) in enumerate(placed) if other > row and start < lines[j] < end and n < 4]
    assert crossed == []


def test_the_same_curve_gives_the_same_picture(tmp_path: Path) -> None:
    curve = curve_of(trace("skewed"))
    pictures = []
    for name in ("a.svg", "b.SVG"):
        curve.plot(tmp_path / name)
        pictures.append((tmp_path / name).read_bytes())
    assert pictures[0] == pictures[1]
    text = pictures[0].decode()
    assert text.startswith("<?xml")
    assert "<dc:date>" not in text
    for told in ("knee: ", "refill &lt; 5 %: ", "refill &lt; 15 %: ", "cache size, blocks of 16 tokens", "exact"):
        assert told in text
    other = curve_of(trace("skewed"), rate=0.1)
    other.plot(tmp_path / "c.svg")
    assert "estimated from 10 % of the blocks, seed 3" in (tmp_path / "c.svg").read_text()


SETTINGS_OF_ITS_OWN = """
import sys, pickle
import matplotlib
matplotlib.rcParams.update({"axes.facecolor": "red", "font.size": 30, "text.usetex": False, "svg.fonttype": "none"})
before = matplotlib.rcParams.copy()
pickle.load(sys.stdin.buffer).plot(sys.argv[1])
assert "matplotlib.pyplot" not in sys.modules
assert {name for name in before if name != "backend" and matplotlib.rcParams[name] != before[name]} == set()
"""


def test_neither_settings_nor_a_display_matter(tmp_path: Path) -> None:
    import pickle

    curve = curve_of(trace("even"))
    curve.plot(tmp_path / "here.svg")
    command = [sys.executable, "-c", SETTINGS_OF_ITS_OWN, str(tmp_path / "there.svg")]
    subprocess.run(command, input=pickle.dumps(curve), check=True, timeout=120)
    assert (tmp_path / "here.svg").read_bytes() == (tmp_path / "there.svg").read_bytes()


def test_a_png_has_the_size_it_should(tmp_path: Path) -> None:
    curve_of(trace("even")).plot(tmp_path / "curve.png")
    encoded = (tmp_path / "curve.png").read_bytes()
    assert encoded.startswith(b"\x89PNG")
    assert (int.from_bytes(encoded[16:20], "big"), int.from_bytes(encoded[20:24], "big")) == (1200, 960)


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in .svg or .png, got '.*curve.pdf'"):
        curve_of([1, 1]).plot(tmp_path / "curve.pdf")
    with pytest.raises(ValueError, match="no blocks"):
        curve_of([]).plot(tmp_path / "curve.svg")
    with pytest.raises(FileNotFoundError):
        curve_of([1, 1]).plot(tmp_path / "nowhere" / "curve.svg")
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'tokenpulse\[plot\]'"):
        check("curve.svg")


def test_points_of_the_curve_are_in_order() -> None:
    sizes = [point["blocks"] for point in curve_of(trace("skewed")).points]
    assert all(one < other for one, other in pairwise(sizes))
