"""`tokenpulse report`: from logs to a report on standard output."""

from __future__ import annotations

from dataclasses import replace

import click

import tokenpulse
from tokenpulse.cli.ending import check_duration, check_file, conclude, extras
from tokenpulse.cli.options import (
    by_option,
    check_price,
    cut_options,
    json_option,
    price_options,
    slo_options,
    strict_option,
    threads_option,
)
from tokenpulse.cli.progress import progress_bar
from tokenpulse.compressed import check_output
from tokenpulse.grammar import AUTO, request_rate_of, since_ns, slo_sets
from tokenpulse.model import ITL_RULES
from tokenpulse.reporting import Report


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@slo_options()
@click.option(
    "--itl",
    type=click.Choice(ITL_RULES),
    default="token",
    show_default=True,
    help="What an emission of k tokens after a gap gives: k values of gap/k; one of the gap; "
    "one of the gap and k-1 of 0.",
)
@by_option("Also report on each group.")
@click.option(
    "--timeline", metavar="10s|auto", help="Also report on each bin of time of this width; auto: on at most 240."
)
@cut_options
@click.option(
    "--profile",
    "profiles",
    multiple=True,
    metavar="NAME|all",
    help="Also what that tool would have said of these requests: vllm, sglang, aiperf, guidellm, inference-perf, "
    "genai-perf, llmperf, mlperf, tokenpulse; all: side by side. May be given several times.",
)
@click.option(
    "--request-rate", metavar="R", help="Requests a second that the client was asked for, where no file says it."
)
@price_options("report what the run cost")
@click.option("--html", metavar="FILE", help="Also write the report as one page with pictures.")
@click.option("--sketches", metavar="FILE", help="Also write everything that merge and compare need.")
@threads_option
@json_option
@strict_option
@click.pass_context
def report(
    context: click.Context,
    paths: tuple[str, ...],
    slos: tuple[str, ...],
    where: tuple[str, ...],
    itl: str,
    by: tuple[str, ...],
    timeline: str | None,
    begin: str | None,
    end: str | None,
    steady: bool,
    profiles: tuple[str, ...],
    request_rate: str | None,
    gpu_hour: float | None,
    gpus: float | None,
    cost_by: str | None,
    html: str | None,
    sketches: str | None,
    threads: int | None,
    as_json: bool,
    strict: bool,
) -> None:
    """Report latency, throughput and goodput of request and event logs, and of files of other tools.

    PATH is a file of request or event lines, of vLLM, SGLang, AIPerf, genai-perf, GuideLLM, inference-perf,
    genai-bench, llmperf or InferenceX, a trace of Azure, Mooncake or BurstGPT, or a table (Parquet, Arrow, CSV); plain,
    gzip or Zstandard. - is standard input. Several are reported on together.
    """
    sets = slo_sets(slos, where)
    check_duration("--timeline", timeline if timeline != AUTO else None)
    check_duration("--from", begin, since_ns)
    check_duration("--to", end, since_ns)
    check_price(gpu_hour, gpus, cost_by)
    _can_write(paths, html, sketches)
    # A page shows how latency went over time, and compare measures by it how far requests depend on one another.
    hidden = timeline is None and (html is not None or sketches is not None)
    with progress_bar() as progress, extras():
        made = tokenpulse.report(
            paths,
            slo=sets,
            itl=itl,
            by=by,
            timeline=AUTO if hidden else timeline,
            progress=progress,
            threads=threads,
            from_=begin,
            to=end,
            steady=steady,
            profile=profiles,
            request_rate=None if request_rate is None else request_rate_of(request_rate),
            gpu_hour=gpu_hour,
            gpus=gpus,
            cost_by=cost_by,
        )
    _write(made, html, sketches)
    if hidden:
        made = replace(made, timeline=[], timeline_width_seconds=None, timeline_asked_seconds=None)
    if as_json:
        conclude(context, made, None, strict)
    else:
        from tokenpulse.reporting.table import write

        conclude(context, made, write, strict)


def _can_write(paths: tuple[str, ...], html: str | None, sketches: str | None) -> None:
    """Find out before the work whether its results can be written."""
    for option, output in (("--html", html), ("--sketches", sketches)):
        check_file(option, output)
        if output is not None:
            check_output(output, paths)
    if html is not None and html == sketches:
        raise ValueError("--html and --sketches must be two files")
    with extras():
        if html is not None:
            from tokenpulse.reporting.html import check as check_html

            check_html()
        if sketches is not None:
            from tokenpulse.sketches import check as check_sketches

            check_sketches(sketches)


def _write(made: Report, html: str | None, sketches: str | None) -> None:
    if html is not None:
        from tokenpulse.reporting.html import write as write_html

        write_html(made, html)
    if sketches is not None:
        from tokenpulse.sketches import Saved, save

        saved = Saved(
            reduction=made.reduction,
            slos=made.slos,
            itl=made.rules["itl"],
            absent=made.absent,
            definitions=made.definitions,
            reported=made.reported,
            **made.made_with,
        )
        save(sketches, saved)
