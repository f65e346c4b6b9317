"""The command to type next: about the same moment, recording, store and settings as this one."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from datetime import datetime

import click
from click.core import ParameterSource

from driftwatch.knobs import COLUMN_KNOBS

# Options that verbs share and that decide what is looked at.
_SHARED = (
    "recording",
    "prometheus",
    "selector",
    "step_seconds",
    "since",
    "until",
    "baseline",
    "pins",
    "config",
    "db",
    *COLUMN_KNOBS,
    "startup_log",
    "arguments",
    "pid",
)


def repeat_options(
    context: click.Context, *, at: datetime | None = None, without: Collection[str] = ()
) -> str:
    """Options for behind the next verb and its target, a blank before each; those typed here.

    Args:
        at: the moment that was looked at; None = the next verb chooses.
    """
    words = [] if at is None else [f" --at {at.isoformat().replace('+00:00', 'Z')}"]
    for option in context.command.params:
        name = option.name or ""
        if name not in _SHARED or name in without:
            continue
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            values = context.params[name]
            for value in values if isinstance(values, tuple) else (values,):
                words.append(f" {min(option.opts, key=len)} {shlex.quote(_typed(value))}")
    return "".join(words)


def _typed(value: object) -> str:
    """A value as it is typed: times in UTC, a window as FROM..TO."""
    from driftwatch.pipeline.explain import Window

    if isinstance(value, Window):
        return f"{_typed(value.start)}..{_typed(value.end)}"
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return str(value)
