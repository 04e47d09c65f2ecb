"""`tokenpulse simulate`: a serving engine in miniature, to a log of events and what it adds up to."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

import tokenpulse
from tokenpulse.cli.capacity import check_plot
from tokenpulse.cli.capacity import show as show_capacity
from tokenpulse.cli.ending import check_duration
from tokenpulse.cli.options import SLO_FORM, json_option
from tokenpulse.grammar import parse_duration, since_ns, slo_sets
from tokenpulse.simulate import known_gpus, known_models, run
from tokenpulse.simulate.faults import FAULTS
from tokenpulse.simulate.lengths import FORM
from tokenpulse.simulate.scheduler import POLICIES

STDOUT = "-"

_Command = TypeVar("_Command", bound=Callable[..., Any])

MACHINE = (
    click.option("--model", metavar="NAME", help=f"One of {', '.join(known_models())}. [llama-3.1-70b-fp8]"),
    click.option("--gpu", metavar="NAME", help=f"One of {', '.join(known_gpus())}. [h100-sxm]"),
    click.option("--gpus", type=int, metavar="N", help="How many share each layer of the model. [8]"),
)
ARRIVALS = (
    click.option(
        "--arrivals",
        metavar="poisson|bursty|closed|FILE",
        help="When requests arrive; FILE is a trace of Azure, BurstGPT or Mooncake, with lengths of its own. [poisson]",
    ),
    click.option("--rate", type=float, metavar="R", help="Requests per second. [10; of a trace its own]"),
    click.option("--burstiness", type=float, metavar="CV", help="Deviation of the gaps over their mean, bursty. [3]"),
    click.option("--in-flight", type=int, metavar="N", help="Requests that are always in flight, closed. [64]"),
    click.option("--prompt", metavar="LENGTHS", help=f"Tokens of a prompt: {FORM}. [lognormal:550]"),
    click.option("--output", metavar="LENGTHS", help="Tokens of an answer, likewise. [lognormal:150,cv=0.6]"),
    click.option("--prefix-share", type=float, metavar="SHARE", help="Of a prompt, what others share. [0.25]"),
    click.option("--abort-rate", type=float, metavar="SHARE", help="Of requests, those whose client gives up. [0]"),
    click.option("--patience", metavar="2s", help="After how long, on average. [2s]"),
)
ENGINE = (
    click.option("--policy", type=click.Choice(POLICIES), help="What a step may mix. [chunked]"),
    click.option("--chunk", type=int, metavar="N", help="Most tokens that a step computes. [2048]"),
    click.option("--prefill-quota", type=int, metavar="N", help="Most tokens of prompts in a step. [the chunk's]"),
    click.option("--batch-max", type=int, metavar="N", help="Most requests in the batch. [128]"),
    click.option("--kv-blocks", type=int, metavar="N", help="Blocks of the KV cache. [what the memory has room for]"),
    click.option("--block-tokens", type=int, metavar="N", help="Tokens of a block. [16]"),
    click.option(
        "--prefix-cache/--no-prefix-cache", default=None, help="Whether blocks are kept and shared. [they are]"
    ),
    click.option("--timeout", metavar="30s", help="When the server gives a request up. [never]"),
    click.option("--speculate", type=int, metavar="K", help="Drafts that a request computes in a step. [0]"),
    click.option("--acceptance", type=float, metavar="SHARE", help="Of drafts, those that are right. [0.7]"),
)
TROUBLE = (
    click.option(
        "--fault",
        metavar="NAME[:INTENSITY]",
        help=f"What goes wrong, from 0 to 1 badly: {', '.join(FAULTS)}. [nothing; 1]",
    ),
    click.option("--fault-from", metavar="40s", help="When it begins. [after a third of the duration]"),
)
SWEEP = (
    click.option("--sweep", metavar="rate=2:40:2", help="Simulate each value of a setting, and report the capacity."),
    click.option("--slo", "slos", multiple=True, metavar=SLO_FORM, help="The limits that a sweep judges by."),
    click.option("--gpu-hour", type=float, metavar="PRICE", help="What a GPU costs for an hour: a sweep's costs."),
    click.option(
        "--target",
        "targets",
        type=float,
        multiple=True,
        metavar="0.99",
        help="An attainment that a sweep is to keep. May be given several times. [0.9 and 0.99]",
    ),
    click.option("--cost-limit", metavar="0.001|40/h", help="The most that a good request of a sweep may cost."),
    click.option("--plot", metavar="FILE", help="Draw a sweep into FILE (.svg or .png)."),
)
OF_A_SWEEP = ("slos", "gpu_hour", "targets", "cost_limit", "plot")
DURATIONS = {"duration": parse_duration, "timeout": parse_duration, "patience": parse_duration, "fault_from": since_ns}


def _all_options(command: _Command) -> _Command:
    for option in reversed((*MACHINE, *ARRIVALS, *ENGINE, *TROUBLE, *SWEEP)):
        command = option(command)
    return command


@click.command()
@click.option("--seed", type=int, metavar="N", help="The same seed gives the same requests. [0]")
@click.option("--duration", metavar="120s", default="120s", show_default=True, help="Simulated time.")
@_all_options
@click.option(
    "-o",
    "out",
    metavar="FILE.jsonl[.gz|.zst]|-",
    help="Write the events there; - is standard output. Of a sweep: a directory that keeps the runs.",
)
@json_option
def simulate(sweep: str | None, out: str | None, as_json: bool, **options: Any) -> None:
    """Simulate an LLM server: continuous batching, a KV cache with shared prefixes, step times by the roofline.

    Prints what it adds up to; with -o also writes the events as a log that every other command reads.
    """
    for name, parse in DURATIONS.items():
        check_duration(f"--{name.replace('_', '-')}", options[name], parse)
    settings = {name: value for name, value in options.items() if value not in (None, ())}
    judging = {name: settings.pop(name) for name in OF_A_SWEEP if name in settings}
    if sweep is not None:
        _sweep(sweep, out, settings, judging, as_json=as_json)
    elif judging:
        raise ValueError(
            "--slo, --gpu-hour, --target, --cost-limit and --plot are of a --sweep; report and capacity judge a log"
        )
    else:
        _check_used(settings)
        _one(settings, out, as_json=as_json)


def _check_used(settings: dict[str, Any], swept: str | None = None) -> None:
    """Raise ValueError for a setting, given or swept, that none of the others would let have an effect."""
    given = {*settings, swept}
    if swept != "arrivals":
        arrivals = settings.get("arrivals", "poisson")
        for name, kind in (("burstiness", "bursty"), ("in_flight", "closed")):
            if name in given and arrivals != kind:
                raise ValueError(f"--{name.replace('_', '-')} is of --arrivals {kind}; arrivals are {arrivals}")
        if "rate" in given and arrivals == "closed":
            raise ValueError("--rate is of an open loop; --arrivals closed has as many requests as --in-flight says")
    policy = settings.get("policy", "chunked")
    if swept != "policy":
        if "prefill_quota" in given and policy != "chunked":
            raise ValueError(f"--prefill-quota is of --policy chunked; the policy is {policy}")
        if "chunk" in given and policy == "decode-first":
            raise ValueError("--chunk is of the policies chunked and prefill-first; decode-first takes prompts whole")
    for name, other in (("patience", "abort_rate"), ("acceptance", "speculate"), ("fault_from", "fault")):
        if name in given and swept != other and not settings.get(other):
            raise ValueError(f"--{name.replace('_', '-')} needs --{other.replace('_', '-')}")


def _one(settings: dict[str, Any], out: str | None, *, as_json: bool) -> None:
    """Simulate once, and say what it adds up to: on standard error where the events went to standard output."""
    from tokenpulse.reporting import simulation_table

    meter = tokenpulse.Meter(windows=(), burn=False)
    result = run(out=sys.stdout.buffer if out == STDOUT else out, meter=meter, **settings)
    made = simulation_table.Simulated(result, meter.snapshot().total)
    stream = sys.stderr if out == STDOUT else sys.stdout
    if as_json:
        from tokenpulse.reporting.json import dumps

        print(dumps(made), file=stream)
    else:
        simulation_table.write(made, stream)


def _sweep(sweep: str, out: str | None, settings: dict[str, Any], judging: dict[str, Any], *, as_json: bool) -> None:
    """Simulate every value, and show the capacity."""
    from tokenpulse.simulate.sweep import Sweep
    from tokenpulse.simulate.sweep import sweep as simulate_each

    plot, slos = judging.pop("plot", None), judging.pop("slos", ())
    if not slos:
        raise ValueError("--sweep needs --slo, the limits that make a request good")
    if out == STDOUT:
        raise ValueError("-o of a sweep must be a directory: it is several runs")
    if plot is not None:
        check_plot(plot)
    asked = Sweep.parse(sweep)
    _check_used(settings, asked.name)
    found = simulate_each(asked, slo=slo_sets(slos), out=out, capacity=judging, **settings)
    show_capacity(found, as_json=as_json, plot=plot)
