"""`tokenpulse kv`: from logs of a KV cache, or a trace of block hashes, to a report on standard output."""

from __future__ import annotations

from collections.abc import Sequence

import click

import tokenpulse
from tokenpulse import engine
from tokenpulse.cli.ending import check_duration, conclude
from tokenpulse.cli.options import json_option, strict_option
from tokenpulse.cli.progress import progress_bar
from tokenpulse.grammar import path_names
from tokenpulse.kv import POLICIES, STREAMS
from tokenpulse.kv.report import NO_CURVE


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "--stream",
    type=click.Choice(STREAMS),
    help="Events: whether each store is a copy that an eviction takes away (the default), or a store of a block that "
    "is there means nothing and the first eviction removes it.",
)
@click.option("--remember", type=int, metavar="N", help="How many evicted blocks to remember. [events: 1000000]")
@click.option("--ttl", metavar="30m", help="How long to remember them. [events: 30m]")
@click.option(
    "--sample",
    type=float,
    metavar="RATE",
    help="Events: follow only this share of the blocks, such as 0.1. Trace: estimate the curve from it.",
)
@click.option("--blocks", type=int, metavar="N", help="Trace: the size of the cache. [room for all]")
@click.option("--policy", type=click.Choice(POLICIES), help="Trace: which block makes room. [lru]")
@click.option("--block-tokens", type=int, metavar="512", help="Trace: tokens of a block. [512]")
@click.option("--curve", is_flag=True, help="Trace: also hit rate and refill rate of LRU caches of every size.")
@click.option("--sizes", metavar="1000,10000", help="Further sizes for the curve, each 1 or more.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    help="Which blocks the curve is estimated from; with --curve and --sample. [0]",
)
@click.option(
    "--plot",
    metavar="FILE.svg|.png",
    help="Draw the curve into a file; implies --curve. Needs the extra: pip install tokenpulse[plot].",
)
@json_option
@strict_option
@click.pass_context
def kv(
    context: click.Context,
    paths: tuple[str, ...],
    stream: str | None,
    remember: int | None,
    ttl: str | None,
    sample: float | None,
    blocks: int | None,
    policy: str | None,
    block_tokens: int | None,
    curve: bool,
    sizes: str | None,
    seed: int | None,
    plot: str | None,
    as_json: bool,
    strict: bool,
) -> None:
    """Report what a KV cache evicted, and how much of that it had to compute again.

    PATH is a JSON lines file, plain, gzip or Zstandard, with KV cache events (our own, or vLLM's as published) or with
    a trace of block hashes by request; - is standard input. Several are reported on together.
    """
    check_duration("--ttl", ttl)
    if plot is not None:
        _can_plot(plot, paths)
    with progress_bar() as progress:
        made = tokenpulse.kv_report(
            paths,
            stream=stream,
            remember=remember,
            ttl=ttl,
            sample=sample,
            blocks=blocks,
            policy=policy,
            block_tokens=block_tokens,
            curve=curve or plot is not None,
            sizes=_numbers(sizes),
            seed=seed,
            progress=progress,
        )
    if plot is not None and made.curve is not None:
        made.curve.plot(plot, blocks)
    if as_json:
        conclude(context, made, None, strict)
    else:
        from tokenpulse.reporting.kv_table import write

        conclude(context, made, write, strict)


def _numbers(text: str | None) -> list[int]:
    """Sizes as people list them."""
    try:
        return [int(part) for part in text.split(",")] if text is not None else []
    except ValueError:
        raise ValueError(f"--sizes must be whole numbers, such as 1000,10000; got {text!r}") from None


def _can_plot(path: str, inputs: Sequence[str]) -> None:
    """Find out before the work whether the picture can be drawn."""
    from tokenpulse.reporting.picture import check

    try:
        check(path)
    except ModuleNotFoundError as missing:
        # Of events no picture can be drawn with Matplotlib either: nobody should install it for them.
        with progress_bar() as progress:
            if engine.read_kv(path_names(inputs), progress=progress)["kind"] == "events":
                raise ValueError(NO_CURVE) from None
        raise click.ClickException(str(missing)) from None
