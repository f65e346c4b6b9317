"""Options of ``driftwatch simulate compare``: the requests, the loads, the policies' settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from driftwatch.cli.engine_options import option, with_all
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
    option(
        "--requests requests_file",
        click.Path(path_type=Path),
        "Take the lengths of a request log or trace, in its order; its times are not used.",
    ),
    option("--prompt-tokens", TOKENS, "Else: mean prompt, log-normal."),
    option("--prompt-cv", Finite(0, 20), "sd / mean of the prompts.", default=1.0),
    option("--generation-tokens", _GENERATION, "Mean generation, log-normal."),
    option("--generation-cv", Finite(0, 20), "sd / mean of the generations.", default=1.0),
    option(
        "--mix-size",
        click.IntRange(100, 1_000_000),
        "Lengths drawn; repeated where more are needed.",
        default=10_000,
    ),
    option("--seed", SEED, "Seed of lengths, arrivals and cancellations.", default=0),
    option(
        "--rates",
        Rates(),
        "Requests per second (default: eight, up to a "
        "little above what continuous batching can do).",
    ),
    option(
        "--concurrency", Counts(), "Closed loop instead: clients that each wait for their answer."
    ),
    option(
        "--duration-seconds",
        _ABOVE_0,
        "Arrivals last so long, and longer where that is under 2,000 requests.",
        default=120.0,
    ),
    option("--policies", Policies(), "Policies to compare.", default=",".join(POLICIES)),
    option(
        "--batch-size",
        click.IntRange(1, 100_000),
        "Batch size of static and dynamic batching.",
        default=32,
    ),
    option(
        "--max-wait-seconds",
        Finite(0, 1e9),
        "Dynamic: a batch starts once its oldest waited so long.",
        default=0.05,
    ),
    option(
        "--buckets bucket_tokens",
        Counts(),
        "Static, dynamic and --padding: pad prompts to these lengths, a batch from one bucket.",
    ),
    option(
        "--prefill-share prefill_share_ratio",
        _share(above=True, below=True),
        "Hybrid: share of the time for prompts while answers wait too.",
        default=0.8,
    ),
    option(
        "--queue-limit",
        click.IntRange(1, 10_000_000),
        "Back-pressure: most requests inside, waiting or running.",
        default=256,
    ),
    option(
        "--reject-share reject_share_ratio",
        _share(above=True),
        "Back-pressure: reject over this share of the limit.",
        default=0.8,
    ),
    option(
        "--retry-seconds",
        _ABOVE_0,
        "Back-pressure: a rejected client tries again so much later.",
        default=0.5,
    ),
    option("--timeout-seconds", _ABOVE_0, "How long after its arrival a client gives up."),
    option("--cancel-ratio", _share(), "Share of clients that cancel of themselves.", default=0.0),
    option(
        "--cancel-after-seconds",
        _ABOVE_0,
        "Mean time after which those do (exponential).",
        default=1.0,
    ),
    option(
        "--free-given-up/--keep-given-up",
        text="Whether the server drops requests whose client gave up.",
        default=True,
    ),
    option(
        "--slo-p99-seconds",
        _ABOVE_0,
        "Limit on the p99 end-to-end time, for the knee and the goodput (default: --knee-factor).",
    ),
    option(
        "--knee-factor",
        Finite(1, 1e6),
        "That limit as a multiple of the p99 of requests served alone.",
        default=3.0,
    ),
)


_OF_MIX = {
    *("requests_file", "prompt_tokens", "prompt_cv", "generation_tokens"),
    *("generation_cv", "mix_size", "seed"),
}
# what the other two answers use
OF_PADDING = frozenset({*_OF_MIX, "batch_size", "bucket_tokens", "padding", "as_json"})
OF_LENGTHS = frozenset({"lengths", "bucket_tokens", "padding", "as_json"})
OF_CAUSES = frozenset(
    {
        *(*_OF_MIX, "rates", "concurrency", "duration_seconds", "batch_size", "max_wait_seconds"),
        *(
            "bucket_tokens",
            "timeout_seconds",
            "cancel_ratio",
            "cancel_after_seconds",
            "free_given_up",
        ),
    }
)


def compare_options(command: Command) -> Command:
    """Requests, loads and the policies' settings."""
    return with_all(_OPTIONS)(command)


def _named() -> frozenset[str]:
    """Names of the options above, as the command takes them."""
    command = click.command()(compare_options(lambda: None))
    return frozenset(option.name for option in command.params if option.name)


OWN = _named()
