"""Options of ``driftwatch recommend`` and how their texts are read."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from driftwatch.cli.history_options import WINDOW_OPTIONS, history_options, json_option
from driftwatch.cli.options import Duration
from driftwatch.durations import parse_duration
from driftwatch.errors import UsageError
from driftwatch.model import Slo

Command = TypeVar("Command", bound=Callable[..., Any])

_LARGEST = 10_000_000  # of a knob: more is a typing error
_SLO_EXAMPLE = "--slo ttft=1s,tpot=50ms,share=0.95"
_ABOVE = {"share": 1.0, "ttft": 3600.001, "tpot": 3600.001}  # no target is that large


class SloText(click.ParamType[Slo]):
    """Latency targets: ``ttft=1s,tpot=50ms,share=0.95``."""

    name = "targets"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Text to targets."""
        if isinstance(value, Slo):
            return value
        targets: dict[str, float] = {}
        for part in str(value).split(","):
            name, _, amount = (piece.strip() for piece in part.partition("="))
            if name not in _ABOVE:
                close = difflib.get_close_matches(name, _ABOVE, n=1)
                hint = f"; did you mean {close[0]}?" if close else ":"
                self.fail(f"no target {name!r}{hint} write {_SLO_EXAMPLE}", param, ctx)
            try:
                number = float(amount) if name == "share" else _seconds(amount)
            except ValueError as error:
                self.fail(f"{part!r}: {error}; write {_SLO_EXAMPLE}", param, ctx)
            if name in targets or not 0 < number < _ABOVE[name]:
                why = "is given twice" if name in targets else "is out of range"
                self.fail(f"{part!r} {why}: write {_SLO_EXAMPLE}", param, ctx)
            targets[name] = number
        if not {"ttft", "tpot"} & set(targets):
            self.fail(f"neither ttft nor tpot: write {_SLO_EXAMPLE}", param, ctx)
        return Slo(targets.get("ttft"), targets.get("tpot"), targets.get("share", Slo().share))


def _seconds(text: str) -> float:
    """``50ms``, ``1s``, ``1m30s``; ``0.25s`` too, as people write targets with fractions."""
    for unit, length in (("ms", 0.001), ("s", 1.0)):
        number = text.removesuffix(unit)
        if "." in number and number.replace(".", "", 1).isdecimal():
            return float(number) * length
    return parse_duration(text)


def recommend_options(command: Command) -> Command:
    """All of them but the target."""
    command = history_options(*WINDOW_OPTIONS)(command)
    for option in reversed((*_options(), json_option)):
        command = option(command)
    return command


def _options() -> tuple[Callable[[Command], Command], ...]:
    file = click.Path(path_type=Path, dir_okay=False)
    return (
        click.option(
            "--window",
            "length",
            type=Duration(),
            help="Length of the window (default: since the traffic last changed, 1h at most).",
        ),
        click.option(
            "--slo",
            type=SloText(),
            help=f"Latency targets to judge by: {_SLO_EXAMPLE.removeprefix('--slo ')} "
            "(default: the pool's, else twice the baseline's p95).",
        ),
        click.option(
            "--what-if",
            "what_if",
            multiple=True,
            metavar="KNOB=VALUE",
            help="Ask about this value as well: max_num_seqs=512, replicas=3, "
            "prefix_hit_ratio=0.5; repeat it: scheduler settings form one "
            "configuration, the rest are tried one by one.",
        ),
        click.option(
            "--requests",
            "log",
            type=file,
            metavar="FILE",
            help="The request log of the window (JSONL, CSV, Parquet), in any order: exact "
            "arrivals.",
        ),
        click.option(
            "--model",
            metavar="NAME",
            help="The model, or its config.json (- reads it from standard input).",
        ),
        click.option(
            "--gpu",
            metavar="NAME",
            help="The GPU, or a YAML file of it, if no metric names it.",
        ),
        click.option(
            "--seed", type=click.IntRange(min=0), default=0, help="Seed of the random numbers."
        ),
    )


def parse_what_ifs(texts: tuple[str, ...]) -> dict[str, float]:
    """``--what-if`` texts as knob → value.

    Raises UsageError: with every text that cannot be.
    """
    from driftwatch.recommend.alternatives import WHAT_IFS

    targets: dict[str, float] = {}
    wrong: list[str] = []
    for text in texts:
        name, equals, amount = (piece.strip() for piece in text.partition("="))
        name = name.replace("-", "_")
        if not equals:
            wrong.append(f"{text!r} is no KNOB=VALUE")
        elif name not in WHAT_IFS:
            close = difflib.get_close_matches(name, WHAT_IFS, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            wrong.append(f"no knob {name!r}{hint}")
        elif name in targets:
            wrong.append(f"{name} is given twice")
        elif (value := _knob_value(name, amount)) is None:
            bound = "between 0 and 1" if name.endswith("_ratio") else "a whole number of 1 or more"
            wrong.append(f"{name} is {bound}, not {amount!r}")
        else:
            targets[name] = value
    if wrong:
        raise UsageError(
            f"--what-if: {'; '.join(wrong)}", help_text=f"knobs: {', '.join(WHAT_IFS)}"
        )
    return targets


def _knob_value(name: str, amount: str) -> float | None:
    try:
        value = float(amount)
    except ValueError:
        return None
    if name.endswith("_ratio"):
        return value if 0 <= value < 1 else None
    return value if 1 <= value <= _LARGEST and value == int(value) else None
