"""The page: its sections in order, each there only if the report has something to say in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tokenpulse.reporting.html import attainment, distribution, head, latency, load, others, sections, strata, words
from tokenpulse.reporting.html.markup import Child, Markup, join, tag
from tokenpulse.reporting.html.series import Timeline
from tokenpulse.reporting.html.style import sheet
from tokenpulse.reporting.html.svg import drawing
from tokenpulse.reporting.report import Report

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""What the page may load: nothing. A browser holds it to that, should some text get past the escaping."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page with a heading; empty ones are left out."""

    name: str
    heading: str
    parts: list[Child]


def render(report: Report) -> str:
    """The whole page, in ASCII."""
    with drawing():
        shown = [section for section in _sections(report, Timeline(report)) if section.parts]
    links = [tag("a", section.heading, href=f"#{section.name}") for section in shown]
    body = tag(
        "body",
        tag(
            "header",
            tag("h1", head.headline(report)),
            *head.measured(report),
        ),
        tag("nav", *links, aria_label="Sections"),
        tag(
            "main",
            *(
                tag("section", tag("h2", section.heading), *section.parts, id=section.name, aria_label=section.heading)
                for section in shown
            ),
        ),
        tag("footer", "Made by tokenpulse. This page is whole: it loads nothing and runs no script."),
    )
    top = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", head.title(report)),
        tag("style", Markup(sheet())),
    )
    whole = join(Markup("<!DOCTYPE html>\n"), tag("html", top, body, lang="en"), Markup("\n"))
    # Whatever encoding the page is stored or sent in, ASCII reads the same.
    return whole.encode("ascii", "xmlcharrefreplace").decode("ascii")


def _sections(report: Report, timeline: Timeline) -> Iterator[Section]:
    known = report.requests["attempted"] is not None
    ended = bool(known and report.requests["attempted"] and report.requests["by_status"])
    key: list[Child] = [head.tiles(report), head.accounting(report)] if known else []
    yield Section("key", "Key figures", key)
    yield Section("latency", "Latency", list(sections.latencies(report)) if ended else [])
    yield Section("over-time", "Latency over time", _over_time(report, timeline))
    yield Section("distributions", "Distributions", list(distribution.figures(report)))
    yield Section("goodput", "Goodput", _goodput(report) if ended else [])
    yield Section("availability", "Availability", list(sections.served(report)) if ended else [])
    yield Section("cost", "Cost", list(sections.cost(report)))
    yield Section("load", "Load", [*load.figures(report, timeline), *sections.where_time_went(report.flow)])
    yield Section("throughput", "Throughput over time", list(load.throughput(report, timeline)))
    keys = words.listed(list(dict.fromkeys(words.key(name) for one in report.by for name in one["key"])), "and")
    yield Section("groups", f"By {keys}", list(strata.figures(report)) if report.by else [])
    yield Section(
        "workload",
        "Workload",
        [*others.workload(report.workload), *load.workload(report, timeline)] if report.workload else [],
    )
    yield Section("reported", "Reported by the tools themselves", list(others.reported(report)))
    yield Section("unusable", "What could not be used", list(sections.unusable(report)))
    yield Section("definitions", "Definitions", list(sections.definitions(report)))


def _over_time(report: Report, timeline: Timeline) -> list[Child]:
    found: list[Child] = list(latency.figures(report, timeline))
    if found or not any(report.latency.values()):
        return found
    why = report.absent.get("timeline", "the report was made without a timeline")
    return [tag("p", f"Not shown: {why}.", class_="muted")]


def _goodput(report: Report) -> list[Child]:
    tables: Iterable[Markup] = sections.goodput(report) if words.judged(report) else ()
    return [one for one in (*tables, attainment.draw(report)) if one]
