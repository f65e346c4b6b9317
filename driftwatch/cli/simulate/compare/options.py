"""Options of ``driftwatch simulate compare``: the requests, the loads, the policies' settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from driftwatch.cli.finite import SEED, TOKENS, Finite

Command = TypeVar("Command", bound=Callable[..., Any])

POLICIES = ("static", "dynamic", "continuous", "hybrid", "back-pressure")


class Rates(click.ParamType[Any]):
    """Positive numbers, separated by commas, sorted."""

    name = "n,n,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Text to numbers."""
        if isinstance(value, tuple):
            return value
        try:
            rates = tuple(sorted({float(word) for word in str(value).split(",")}))
        except ValueError:
            self.fail(f"{value!r} is no list of numbers, e.g. 5,10,20", param, ctx)
        if not all(0 < one < 1e6 for one in rates):
            self.fail("rates are above 0 and below 1,000,000", param, ctx)
        return rates


class Counts(click.ParamType[Any]):
    """Whole numbers from 1, separated by commas, in their order; ``64*10`` repeats one."""

    name = "n,n,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Text to whole numbers."""
        if isinstance(value, tuple):
            return value
        numbers: list[int] = []
        for word in str(value).split(","):
            number, _, repeated = word.strip().partition("*")
            parts = (number, repeated or "1")
            if not all(p.isascii() and p.isdecimal() and 0 < len(p) < 8 for p in parts):
                self.fail(f"{value!r} is no list of whole numbers, e.g. 64,128,256", param, ctx)
            numbers.extend([int(number)] * int(repeated or "1"))
            if len(numbers) > 1_000_000:
                self.fail("at most 1,000,000 numbers", param, ctx)
        if not numbers or min(numbers) < 1:
            self.fail("numbers are at least 1", param, ctx)
        return tuple(numbers)


class Policies(click.ParamType[Any]):
    """Names of policies, separated by commas."""

    name = "name,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Text to names, in their order, once each."""
        if isinstance(value, tuple):
            return value
        names = tuple(dict.fromkeys(word.strip() for word in str(value).split(",")))
        if wrong := [name for name in names if name not in POLICIES]:
            self.fail(f"no policy {', '.join(wrong)}: one of {', '.join(POLICIES)}", param, ctx)
        return names


def _share(*, above: bool = False, below: bool = False) -> Finite:
    return Finite(0, 1, min_open=above, max_open=below)


_ABOVE_0 = Finite(min=0, min_open=True, max=1e9)
_GENERATION = Finite(min=1, max=1e9)
_OPTIONS = (
    click.option(
        "--requests",
        "requests_file",
        type=click.Path(path_type=Path),
        help="Take the lengths of a request log or trace, in its order; its times are not used.",
    ),
    click.option("--prompt-tokens", type=TOKENS, help="Else: mean prompt, log-normal."),
    click.option(
        "--prompt-cv",
        type=Finite(0, 20),
        default=1.0,
        show_default=True,
        help="sd / mean of the prompts.",
    ),
    click.option("--generation-tokens", type=_GENERATION, help="Mean generation, log-normal."),
    click.option(
        "--generation-cv",
        type=Finite(0, 20),
        default=1.0,
        show_default=True,
        help="sd / mean of the generations.",
    ),
    click.option(
        "--mix-size",
        type=click.IntRange(100, 1_000_000),
        default=10_000,
        show_default=True,
        help="Lengths drawn; repeated where more are needed.",
    ),
    click.option(
        "--seed",
        type=SEED,
        default=0,
        show_default=True,
        help="Of lengths, arrivals and cancellations.",
    ),
    click.option(
        "--rates",
        type=Rates(),
        help="Requests per second (default: eight, up to a "
        "little above what continuous batching can do).",
    ),
    click.option(
        "--concurrency",
        type=Counts(),
        help="Closed loop instead: clients that each wait for their answer.",
    ),
    click.option(
        "--duration-seconds",
        type=_ABOVE_0,
        default=120.0,
        show_default=True,
        help="Arrivals last so long, and longer where that is under 2,000 requests.",
    ),
    click.option(
        "--policies",
        type=Policies(),
        default=",".join(POLICIES),
        show_default=True,
        help="Which to compare.",
    ),
    click.option(
        "--batch-size",
        type=click.IntRange(1, 100_000),
        default=32,
        show_default=True,
        help="Of static and dynamic batching.",
    ),
    click.option(
        "--max-wait-seconds",
        type=Finite(0, 1e9),
        default=0.05,
        show_default=True,
        help="Dynamic: a batch starts once its oldest waited so long.",
    ),
    click.option(
        "--buckets",
        type=Counts(),
        help="Static, dynamic and --padding: pad prompts to "
        "these lengths, a batch from one bucket.",
    ),
    click.option(
        "--prefill-share",
        type=_share(above=True, below=True),
        default=0.8,
        show_default=True,
        help="Hybrid: share of the time for prompts while answers wait too.",
    ),
    click.option(
        "--queue-limit",
        type=click.IntRange(1, 10_000_000),
        default=256,
        show_default=True,
        help="Back-pressure: most requests inside, waiting or running.",
    ),
    click.option(
        "--reject-share",
        type=_share(above=True),
        default=0.8,
        show_default=True,
        help="Back-pressure: reject over this share of the limit.",
    ),
    click.option(
        "--retry-seconds",
        type=_ABOVE_0,
        default=0.5,
        show_default=True,
        help="Back-pressure: a rejected client tries again so much later.",
    ),
    click.option("--timeout-seconds", type=_ABOVE_0, help="Clients give up so long after arrival."),
    click.option(
        "--cancel-ratio",
        type=_share(),
        default=0.0,
        show_default=True,
        help="Share of clients that cancel of themselves.",
    ),
    click.option(
        "--cancel-after-seconds",
        type=_ABOVE_0,
        default=1.0,
        show_default=True,
        help="Mean time after which those do (exponential).",
    ),
    click.option(
        "--free-given-up/--keep-given-up",
        default=True,
        show_default=True,
        help="Whether the server stops working for who gave up.",
    ),
    click.option(
        "--slo-p99-seconds",
        type=_ABOVE_0,
        help="Limit on the p99 end-to-end time, for "
        "the knee and the goodput (default: --knee-factor).",
    ),
    click.option(
        "--knee-factor",
        type=Finite(1, 1e6),
        default=3.0,
        show_default=True,
        help="That limit as a multiple of the p99 of requests served alone.",
    ),
)


_OF_MIX = {
    *("requests_file", "prompt_tokens", "prompt_cv", "generation_tokens"),
    *("generation_cv", "mix_size", "seed"),
}
# what the other two answers use
OF_PADDING = frozenset({*_OF_MIX, "batch_size", "buckets", "padding", "as_json"})
OF_LENGTHS = frozenset({"lengths", "buckets", "padding", "as_json"})
OF_CAUSES = frozenset(
    {
        *(*_OF_MIX, "rates", "concurrency", "duration_seconds", "batch_size", "max_wait_seconds"),
        *("buckets", "timeout_seconds", "cancel_ratio", "cancel_after_seconds", "free_given_up"),
    }
)


def compare_options(command: Command) -> Command:
    """Requests, loads and the policies' settings."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _named() -> frozenset[str]:
    """Names of the options above, as the command takes them."""
    command = click.command()(compare_options(lambda: None))
    return frozenset(option.name for option in command.params if option.name)


OWN = _named()
