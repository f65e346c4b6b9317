"""What was changed on a server shortly before an incident began. Pure."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta

import polars as pl

from driftwatch.knobs import COLUMN_KNOBS
from driftwatch.numbers import knob, moment

# a change so long before the incident may have caused it
WITHIN = timedelta(hours=1)
_MINUTE = timedelta(minutes=1)
# flag of a minute → what happened in it, the weightiest first
_EVENTS = {
    "restarted": "restarted",
    "configuration_changed": "other settings",
    "release_changed": "another release",
}
_WHERE_READ = re.compile(r" \([^)]*\)| since [-\d]+ [\d:]+ UTC")


def recent_change(minutes: pl.DataFrame, release: str | None, today: date) -> str | None:
    """``restarted 12:00 UTC, vLLM 0.32.0 → 0.33.0``; None where no change is known.

    ``minutes``: of one server, from :data:`WITHIN` before the incident began, in order of time;
    ``release``: the evidence column ``release_change``; ``today``: whose times have no date.
    """
    flags = [name for name in _EVENTS if name in minutes.columns]
    changed = minutes.filter(pl.any_horizontal(pl.col(flags).fill_null(value=False)))
    if changed.is_empty():
        return None
    row = changed.row(-1, named=True)
    word = next(word for name, word in _EVENTS.items() if row.get(name))
    at: datetime = row["end"]
    parts = [f"{word} {moment(at - _MINUTE, today)}"]
    if release is not None and "→" in release:
        parts.append(_WHERE_READ.sub("", release).replace("vllm ", "vLLM "))
    return ", ".join([*parts, *_settings(minutes, at)])


def _settings(minutes: pl.DataFrame, at: datetime) -> list[str]:
    """Settings that are other ones after a change; inferred ones are not compared."""
    found = []
    for name in COLUMN_KNOBS:
        known = minutes.filter(pl.col(name).is_not_null())
        if name == "max_num_seqs":
            known = known.filter(~pl.col("max_num_seqs_inferred").fill_null(value=True))
        before = known.filter(pl.col("end") < at)[name].to_list()
        after = known.filter(pl.col("end") >= at)[name].to_list()
        if before and after and before[-1] != after[-1]:
            found.append(f"{name} {knob(before[-1])} → {knob(after[-1])}")
    return found
