"""The picture of a capacity: what it names, that no text lies over another, and that it is always the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rated_runs import SLO, every, write

import tokenpulse
from tokenpulse.reporting import capacity_plot

pytest.importorskip("matplotlib")


def made(folder: Path, **options: Any) -> tokenpulse.Capacity:
    fates = (lambda _: "good", every(30, "ttft"), every(6, "ttft"), lambda n: "good" if n < 30 else "ttft")
    paths = [write(folder / str(rate), rate, 300, fate) for rate, fate in zip((5, 20, 24, 30), fates, strict=True)]
    return tokenpulse.capacity(paths, slo=SLO, **options)


CASES: dict[str, dict[str, Any]] = {
    "rates": {},
    "costs": {"gpu_hour": 3, "cost_limit": 0.0001},
    "a setting": {"varied": ("batch_max", [16, 32, 64, 128])},
    "words": {"varied": ("policy", ["a", "b", "c", "d"]), "gpu_hour": 3},
    "one target": {"targets": [0.5]},
    "none kept": {"targets": [0.9999999], "from_": "1s"},
}


@pytest.mark.parametrize("case", CASES)
def test_nothing_lies_over_anything_else(case: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    seen: list[Any] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *args, **named: (seen.append(self), save(self, *args, **named)))
    found = made(tmp_path, **CASES[case])
    capacity_plot.draw(found, tmp_path / "capacity.png")
    (figure,) = seen
    renderer = figure.canvas.get_renderer()
    axis = [
        tick.label1
        for axes in figure.axes
        for which in (axes.xaxis, axes.yaxis)
        for tick in which.get_major_ticks()
        if tick.label1.get_visible()
        and min(which.get_view_interval()) <= tick.get_loc() <= max(which.get_view_interval())
    ]
    labels = [label for axes in figure.axes for label in (axes.xaxis.label, axes.yaxis.label)]
    inside = [text for axes in figure.axes for text in axes.texts]
    inside += figure.axes[1].get_legend().get_texts()
    texts = [text for text in (*figure.texts, *axis, *labels, *inside) if text.get_text().strip()]
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in texts]
    assert len(boxes) > 12
    for name, box in boxes:
        assert 0 <= box.x0 < box.x1 <= figure.bbox.x1, name
        assert 0 <= box.y0 < box.y1 <= figure.bbox.y1, name
    for place, (name, box) in enumerate(boxes):
        for other, beside in boxes[place + 1 :]:
            assert not box.overlaps(beside), (name, other)
    assert len(figure.axes) == 2 + ("gpu_hour" in CASES[case])


def test_a_cost_beyond_the_picture_is_marked_at_its_edge(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    seen: list[Any] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *args, **named: (seen.append(self), save(self, *args, **named)))
    fates = (lambda _: "good", lambda n: "ttft" if n else "good")
    paths = [write(tmp_path / str(rate), rate, 300, fate) for rate, fate in zip((5, 30), fates, strict=True)]
    found = tokenpulse.capacity(paths, slo=SLO, gpu_hour=3)
    cheap, dear = (one["cost_per_good"] for one in found.slos[0]["runs"])
    capacity_plot.draw(found, tmp_path / "capacity.png")
    costs = seen[0].axes[2]
    marks = [list(line.get_xdata()) for line in costs.lines if line.get_marker() == "^"]
    assert 1000 * dear > costs.get_ylim()[1] > 1000 * capacity_plot.DEAREST * cheap
    assert marks == [[found.runs[1]["offered_per_second"]]]


def test_the_highest_rates_are_named_once(tmp_path: Path) -> None:
    found = made(tmp_path)
    capacity_plot.draw(found, tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    for keeps in found.slos[0]["keeps"]:
        assert text.count(f"{100 * keeps['target']:g} % attained: {keeps['rate']:.1f} req/s") == 1
    assert "TTFT binds first" in text
    above = tokenpulse.capacity(tmp_path / "5", slo=SLO)
    capacity_plot.draw(above, tmp_path / "b.svg")
    assert "90 % and 99 % attained: at least 5.00 req/s" in (tmp_path / "b.svg").read_text()


def test_the_same_capacity_gives_the_same_picture(tmp_path: Path) -> None:
    found = made(tmp_path)
    for name in ("a.svg", "b.svg"):
        capacity_plot.draw(found, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    found = made(tmp_path)
    with pytest.raises(ValueError, match="no slo set is named 'chat'"):
        capacity_plot.draw(found, tmp_path / "a.svg", slo="chat")
    at_once = tokenpulse.capacity(write(tmp_path / "burst", 1e6, 20), slo=SLO)
    with pytest.raises(ValueError, match="no run has a rate"):
        capacity_plot.draw(at_once, tmp_path / "a.svg")
    with pytest.raises(ValueError, match=r"must end in .svg or .png"):
        capacity_plot.draw(found, tmp_path / "a.gif")
