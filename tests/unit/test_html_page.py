"""The page of a report: whole in itself, the same each time, proper for every report, no place for foreign markup."""

from __future__ import annotations

import errno
import io
import os
import pickle
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from command import FIXTURES
from html_reports import HOSTILE, REPORTS, Page, made, report_of, requests, text_of

import tokenpulse
from tokenpulse.reporting import html
from tokenpulse.reporting.text import count, ms, percent, printable

pytest.importorskip("matplotlib")

LOADS = {"src", "srcset", "poster", "action", "formaction", "background", "data", "cite", "longdesc", "manifest"}
KNOWN = {
    *("html", "head", "meta", "title", "style", "body", "header", "nav", "main", "section", "footer"),
    *("h1", "h2", "h3", "p", "a", "b", "dl", "div", "dt", "dd", "span", "figure", "figcaption", "details", "summary"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td"),
    *("svg", "desc", "g", "path", "use", "defs", "clippath", "rect", "text"),
}


@cache
def page_of(kind: str) -> Page:
    return Page(text_of(kind))


@pytest.mark.parametrize("kind", REPORTS)
def test_a_page_is_proper_and_whole(kind: str) -> None:
    text, page = text_of(kind), page_of(kind)
    assert text.isascii()
    assert text.startswith('<!DOCTYPE html>\n<html lang="en">')
    assert len(text) < 1_500_000
    assert (page.unbalanced, page.open) == ([], [])
    assert {tag for tag, _ in page.elements} <= KNOWN
    # Nothing is loaded, nothing runs.
    names = {name for _, attributes in page.elements for name in attributes}
    assert not names & LOADS
    assert not [name for name in names if name.startswith("on")]
    links = [value for _, attributes in page.elements for name, value in attributes.items() if "href" in name]
    assert links
    assert all(link is not None and link.startswith("#") for link in links)
    assert re.findall(r"url\((?!#)|@import|@font-face|expression\(", text) == []
    assert [place for place in re.findall(r"https?://[^\"'\s]*", text) if place != "http://www.w3.org/2000/svg"] == []
    policy = [one["content"] for one in page.all("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]
    # Every id is there once, and whatever refers to one finds it.
    ids = Counter(attributes["id"] for _, attributes in page.elements if "id" in attributes)
    assert [name for name, times in ids.items() if times > 1] == []
    used = set(re.findall(r"url\(#([^)]+)\)", text)) | {link[1:] for link in links if link}
    for _, attributes in page.elements:
        used |= set((attributes.get("aria-labelledby") or "").split())
    assert used <= set(ids)
    assert not {"nan", "NaN", "inf", "None", "-0"} & set(page.words.split())


@pytest.mark.parametrize("kind", REPORTS)
def test_what_is_drawn_is_told_in_words_too(kind: str) -> None:
    page = page_of(kind)
    pictures = page.all("svg")
    assert all(one["role"] == "img" and one["aria-labelledby"] and one["viewbox"] for one in pictures)
    assert sum("desc" in place for place, _ in page.texts) >= len(pictures)
    shown = Counter(one.get("class") for one in pictures)
    assert shown["wide"] == shown["narrow"]
    # A figure has a heading, and most have a table.
    figures = page.all("figure")
    assert len([1 for place, _ in page.texts if place[-2:] == ("figcaption", "h3")]) == len(figures)
    assert len(page.all("table")) == sum("caption" in place for place, _ in page.texts)


def test_figures_are_the_reports() -> None:
    report, words = report_of("events"), page_of("events").words
    requests_ = report.requests
    assert f"{count(requests_['attempted'])} requests in " in words
    for name in ("succeeded", "failed", "aborted", "rejected", "lost", "in_flight"):
        assert re.search(rf"{name.replace('_', ' ')} {count(requests_[name])} ", words), name
    assert f"= attempted {count(requests_['attempted'])}" in words
    for figures in report.latency.values():
        if figures:
            told = f"{count(figures['count'])} {ms(figures['mean'])} {ms(figures['p50'])} {ms(figures['p90'])}"
            assert told in words
    for one in report.goodput:
        assert f"{one['name']} ttft < " in words
        assert f"{count(one['good'])} {count(one['judged'])} {percent(one['attainment'])}" in words
    for one in report.by:
        assert f"{one['key']['tenant']} {count(one['requests']['attempted'])} " in words
    assert "Checks on the run" in words
    assert "Little's law" in words


def test_what_was_not_used_is_said() -> None:
    lines = requests(30, 10)
    lines += [{"a": 1}, {"t_ns": 5, "ev": "end", "id": "nobody", "status": "stop"}, "a text", lines[0]]
    words = Page(html.render(made(lines))).words
    assert "line skipped: unknown_kind 1 neither a request nor a known event" in words
    assert "line skipped: not_object 1 JSON, but not an object" in words
    assert "event refused: unknown 1 request never arrived, ended or lost" in words
    assert "not measured: Scheduling time" in words
    alike = Page(text_of("nothing")).words
    assert "0 requests" in alike


def test_text_of_a_log_is_no_markup() -> None:
    text, page = text_of("many classes"), page_of("many classes")
    assert "<script" not in text
    assert "<img" not in text
    assert "onerror=alert(2)" in page.words
    assert printable(HOSTILE) in page.words
    assert "\x1b" not in text
    assert "\u202e" not in text
    # In a figure there is room for the beginning only; there and in its description it is text as well.
    assert any("text" in place and data.startswith("<script>alert(1)</script>") for place, data in page.texts)
    assert any("desc" in place and printable(HOSTILE) in data for place, data in page.texts)


def test_ids_sets_and_notices_are_no_markup() -> None:
    lines = requests(20, 5)
    for line in lines:
        line["id"] = HOSTILE + line["id"]
    text = html.render(made(lines, f"{HOSTILE.replace(':', ' ').replace(',', ' ').replace('=', ' ')}:ttft=1s,tpot=1s"))
    page = Page(text)
    assert (page.unbalanced, page.open) == ([], [])
    assert {tag for tag, _ in page.elements} <= KNOWN
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert printable(HOSTILE) + "r" in page.words


@pytest.mark.parametrize("kind", ["many classes", "all alike"])
def test_the_same_report_gives_the_same_page(kind: str) -> None:
    assert html.render(REPORTS[kind]()) == text_of(kind)


SETTINGS_OF_ITS_OWN = """
import sys
import matplotlib
matplotlib.rcParams.update({"axes.facecolor": "red", "font.size": 30, "svg.fonttype": "path", "axes.grid": True})
before = matplotlib.rcParams.copy()
sys.path.insert(0, sys.argv[1])
from html_reports import REPORTS
from tokenpulse.reporting import html
html.write(REPORTS["one request"](), sys.argv[2])
assert "matplotlib.pyplot" not in sys.modules
assert {name for name in before if name != "backend" and matplotlib.rcParams[name] != before[name]} == set()
"""


def test_neither_settings_nor_a_display_matter(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SETTINGS_OF_ITS_OWN, str(Path(__file__).parent), str(tmp_path / "page.html")]
    subprocess.run(command, check=True, timeout=120, env={"PYTHONHASHSEED": "7"})
    assert (tmp_path / "page.html").read_text() == text_of("one request")


def test_a_page_is_written_to_a_path_or_a_file(tmp_path: Path) -> None:
    report, text = report_of("one request"), text_of("one request")
    html.write(report, tmp_path / "page.html")
    html.write(report, str(tmp_path / "other.html"))
    file = io.StringIO()
    html.write(report, file)
    assert (tmp_path / "page.html").read_bytes() == (tmp_path / "other.html").read_bytes() == text.encode()
    assert file.getvalue() == text
    with pytest.raises(FileNotFoundError):
        html.write(report, tmp_path / "nowhere" / "page.html")


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report = report_of("one request")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for attempt in (html.check, lambda: html.render(report), lambda: html.write(report, tmp_path / "page.html")):
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'tokenpulse\[plot\]'"):
            attempt()
    assert list(tmp_path.iterdir()) == []


def test_loading_the_package_does_not_load_matplotlib() -> None:
    asked = "import sys, tokenpulse.reporting.html as html; print('matplotlib' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout == "False\n"


def test_a_report_that_was_pickled_gives_the_same_page() -> None:
    report = report_of("one request")
    assert html.render(pickle.loads(pickle.dumps(report))) == text_of("one request")


def test_colours_and_paper() -> None:
    text = text_of("events")
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    sheet = style[1]
    assert "@media screen and (prefers-color-scheme:dark)" in sheet  # on paper it is never dark
    assert "@page{size:A4" in sheet
    defined = set(re.findall(r"--([\w-]+):#", sheet))
    used = set(re.findall(r"var\(--([\w-]+)\)", text))
    assert used <= defined
    # Only the sheet has colours of its own: what is drawn has the page's.
    assert re.findall(r"#[0-9a-fA-F]{6}\b", text.replace(sheet, "")) == []


def test_a_page_takes_its_place_only_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.html"
    page.write_text("the page of yesterday")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left") as wrong:
        html.write(report_of("demo"), page)
    assert wrong.value.filename == str(page)
    assert page.read_text() == "the page of yesterday"
    assert list(tmp_path.iterdir()) == [page]


def test_figures_of_a_cut_are_not_called_those_of_the_whole_run() -> None:
    assert "Latency of the whole run" in text_of("demo")
    assert "Latency of the part that is counted" in text_of("cut")
    assert "Latency of the whole run" not in text_of("cut")
    assert "Over the whole run" not in text_of("cut")


def test_what_the_client_is_judged_by_need_not_be_all() -> None:
    assert "not judged; needs the times at which requests were meant to be sent or the requested rate" in text_of(
        "demo"
    )
    report = tokenpulse.report(FIXTURES / "demo_requests.jsonl", request_rate=1.0)
    assert report.flow is not None
    assert report.flow["saturation"]["verdict"] == "not saturated"
    text = re.sub(r"<[^>]*>", " ", html.render(report))
    assert "not saturated" in text
    assert "; needs" not in text[text.index("not saturated") :][:80]
