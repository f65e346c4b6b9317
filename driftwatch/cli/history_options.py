"""The options that name history: one table for every verb, read into one :class:`History`."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Collection
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from driftwatch.cli.database import DATABASE_VARIABLE, DEFAULT_CONFIG, config_here
from driftwatch.cli.history import History
from driftwatch.cli.options import Database, Span, Time
from driftwatch.database_place import PostgresPlace, SqliteFile
from driftwatch.knobs import COLUMN_KNOBS, flag_of

Command = TypeVar("Command", bound=Callable[..., Any])
Option = Callable[[Callable[..., Any]], Callable[..., Any]]

_FILE = click.Path(path_type=Path, dir_okay=False)
_NUMBER = click.IntRange(min=1)


def _option(*names: str, **more: Any) -> Option:
    return click.option(*names, **{"metavar": "FILE"} | more)


_OPTIONS: dict[str, tuple[Option, ...]] = {
    "at": (
        _option("--at", type=Time(), metavar=None, help="Moment to look at: 2026-01-31T14:05Z or "
                "24h (ago); default: the newest scrape."),
    ),
    "recordings": (
        _option("--recording", "recordings", type=click.Path(path_type=Path), multiple=True,
                metavar="PATH", help="Read this recording; may be repeated."),
    ),
    "prometheus": (
        _option("--prometheus", metavar="URL", help="Read history from a Prometheus API."),
        _option("--match", "selector", multiple=True, metavar="LABEL=VALUE",
                help="With --prometheus: only series with this label value; repeat it with the "
                "same label for several values."),
    ),
    "span": (
        _option("--from", "since", type=Time(), metavar=None, help="Start: 2026-01-31T14:05Z or "
                "24h (ago); required with --prometheus."),
        _option("--to", "until", type=Time(), metavar=None,
                help="End; required with --prometheus."),
    ),
    "baseline": (
        _option("--baseline", type=Span(), metavar=None,
                help="Window whose lengths, rates and speed are the reference."),
    ),
    "db": (
        _option("--db", type=Database(), metavar="DATABASE", help="SQLite file or "
                f"postgresql://USER@HOST/NAME; default: ${DATABASE_VARIABLE}, else the "
                "configuration's, else ./driftwatch.db."),
    ),
    "config": (
        _option("-c", "--config", type=_FILE, default=config_here,
                help=f"Configuration with pools and database; default: ./{DEFAULT_CONFIG}."),
    ),
    "pools": (
        _option("-c", "--config", type=_FILE, help="Read pools, latency targets and rules from "
                f"this file; default: ./{DEFAULT_CONFIG}, but none with a recording, --prometheus "
                "or a URL."),
    ),
    "serving": (
        *(
            _option(flag, type=_NUMBER, metavar="N", help=f"vLLM runs with this {flag}; overrides "
                    "the configuration, for every server.")
            for flag in map(flag_of, COLUMN_KNOBS)
        ),
        _option("--startup-log", type=_FILE, metavar=None,
                help="Read both settings from vLLM's start-up log."),
    ),
}  # fmt: skip
# of a command that looks at one window of a target
WINDOW_OPTIONS = ("at", "recordings", "prometheus", "span", "baseline", "db", "pools", "serving")
_SERVING_NAMES = (*COLUMN_KNOBS, "startup_log")
_NAMES = (*(name for name in History.__dataclass_fields__ if name != "serving"), *_SERVING_NAMES)


def history_options(*groups: str) -> Callable[[Command], Command]:
    """Options of these groups of the table; the command gets them as ``history``."""

    def add(command: Command) -> Command:
        @functools.wraps(command)
        def with_history(**options: Any) -> Any:
            named = {name: options.pop(name) for name in _NAMES if name in options}
            serving = {name: named.pop(name) for name in _SERVING_NAMES if name in named}
            return command(history=History(serving=serving, **named), **options)

        decorated: Any = with_history
        for group in reversed(groups):
            for option in reversed(_OPTIONS[group]):
                decorated = option(decorated)
        return decorated  # type: ignore[no-any-return]

    return add


def config_option(help_text: str) -> Option:
    """``-c FILE`` of a command that reads no history."""
    return _option("-c", "--config", type=click.Path(path_type=Path), help=help_text)


json_option: Option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document."
)


def repeat_options(*, at: datetime | None = None, without: Collection[str] = ()) -> str:
    """The history options as they were typed, a blank before each, for the next command.

    Args:
        at: the moment that was looked at; None = the next command chooses.
        without: names of History that the next command does not take.
    """
    context = click.get_current_context()
    words = [] if at is None else [f" --at {typed(at)}"]
    for option in context.command.params:
        name = option.name or ""
        if name not in _NAMES or name == "at" or name in without:
            continue
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            values = context.params[name]
            for value in values if isinstance(values, tuple) else (values,):
                flag = min(option.opts, key=len) if isinstance(option, click.Option) else None
                flag = flag or "--recording"  # replay takes recordings as arguments
                words.append(f" {flag} {shlex.quote(typed(value))}")
    return "".join(words)


def typed(value: object) -> str:
    """As it is typed: times in UTC to the microsecond, a window as FROM..TO."""
    from driftwatch.pipeline.explain import Window

    if isinstance(value, Window):
        return f"{typed(value.start)}..{typed(value.end)}"
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return value.typed if isinstance(value, SqliteFile | PostgresPlace) else str(value)
