"""Changes on servers shortly before an incident or during it. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import date, datetime, timedelta

import polars as pl

from driftwatch.collect.schema import KEY
from driftwatch.knobs import COLUMN_KNOBS, least_budget
from driftwatch.minutes.engine import STUCK_SECONDS
from driftwatch.model import Finding, TargetKey
from driftwatch.notify.advice import BEFORE_IT
from driftwatch.numbers import knob, moment, span
from driftwatch.pipeline.minutes import PastMinutes

# A change this long before an incident may have caused it; restarts this close are one rollout.
WITHIN = timedelta(hours=1)
RELEASE_WITHIN = timedelta(days=1)  # an engine may be slower since a restart hours ago
_MINUTE = timedelta(minutes=1)
# flag of a minute → its words, the most important first
_CHANGES = {
    "restarted": "restarted",
    "configuration_changed": "other settings",
    "release_changed": "another release",
}
_HUNG = "hung until"
_EVENTS = {**_CHANGES, "hung": _HUNG}
COLUMNS = (
    *(*KEY, "end", *_CHANGES, *COLUMN_KNOBS, "max_num_seqs_inferred"),
    *("step_tokens_max_of_process", "seconds_since_last_token"),
)
_WHERE_READ = re.compile(r" \([^)]*\)| since [-\d]+ [\d:]+ UTC")


def recent_change(
    minutes: pl.DataFrame,
    servers: int,
    hit: Collection[TargetKey],
    began: datetime | None,
    release: str | None,
    today: date | None,
) -> str | None:
    """``after a change: restarted 12:00 UTC, vLLM 0.32.0 → 0.33.0``, ``then 4 of 4 restarted …``.

    ``minutes``: :data:`COLUMNS` of servers; ``servers``: their number; ``hit``: those that the
    incident concerns; ``began``: its start, None = without "after" or "then"; ``release``: the
    evidence column ``release_change``; ``today``: its times have no date. None where no change is
    known; empty where an earlier change is no cause, because servers without it are hit too.
    """
    ordered = minutes.sort("end", *KEY)
    stuck = pl.col("seconds_since_last_token").fill_null(0.0) >= STUCK_SECONDS
    is_over = stuck.shift(1).over(KEY) & ~stuck & pl.lit(began is not None)
    ordered = ordered.with_columns(hung=is_over)
    changed = ordered.filter(pl.any_horizontal(pl.col(*_EVENTS).fill_null(value=False)))
    if changed.is_empty():
        return None
    last = changed.row(-1, named=True)
    word = next(word for name, word in _EVENTS.items() if last[name])
    rollout = changed.filter(pl.col("end") > last["end"] - WITHIN).unique(
        KEY, keep="last", maintain_order=True
    )
    first = rollout.row(0, named=True)
    start, end = first["end"] - _MINUTE, last["end"] - _MINUTE
    if began is not None and start <= began and not {*hit} <= {*rollout.select(KEY).iter_rows()}:
        return ""
    when = moment(start, today) if start == end else span(start, end)
    parts = [f"{word} {when}" if servers == 1 else f"{len(rollout)} of {servers} {word} {when}"]
    if release is not None and "→" in release and rollout["release_changed"].any():
        parts.append(_versions(release))
    own = ordered.filter(pl.all_horizontal(pl.col(name) == first[name] for name in KEY))
    text = ", ".join([*parts, *changed_settings(own, first["end"])])
    if began is None or word == _HUNG:
        return text
    return f"{BEFORE_IT}{text}" if start <= began else f"then {text}"


def release_since(
    finding: Finding, past: PastMinutes, keys: Collection[TargetKey], at: datetime
) -> str | None:
    """Where another release is the cause: ``restarted 2026-11-20 10:08 UTC, vLLM 0.32.0 → 0.33.0``
    by the last minute that changed it, ``vLLM 0.32.0 → 0.33.0 since the baseline`` without one.
    """
    release = finding.evidence.get("release_change")
    if release is None or finding.diagnosis is None or finding.diagnosis.leaf != "version_change":
        return None
    moved = past.rows(keys, at - RELEASE_WITHIN, at, COLUMNS).filter("release_changed")
    text = recent_change(moved, len(keys), (), None, release, at.date())
    return text or f"{_versions(release)} since the baseline"


def _versions(release: str) -> str:
    return _WHERE_READ.sub("", release).replace("vllm ", "vLLM ")


def changed_settings(minutes: pl.DataFrame, at: datetime) -> list[str]:
    """A server's settings that differ after a change; inferred ones are not compared."""
    found = []
    before, after = minutes.filter(pl.col("end") < at), minutes.filter(pl.col("end") >= at)
    is_inferred = pl.col("max_num_seqs_inferred").fill_null(value=True)
    for name in COLUMN_KNOBS:
        read = pl.col(name) if name != "max_num_seqs" else pl.when(~is_inferred).then(name)
        was, now = (part.select(read).to_series().drop_nulls() for part in (before, after))
        if len(was) and len(now) and was[-1] != now[-1]:
            found.append(f"{name} {knob(was[-1])} → {knob(now[-1])}")
        elif name == "max_num_batched_tokens" and len(was):
            # the budget becomes unknown when steps exceed the configured one
            most, earlier = (_most_steps(part, name) for part in (after, before))
            if most is not None and least_budget(most) > was[-1] and earlier is None:
                found.append(f"{name} {knob(was[-1])} → {least_budget(most)} or more")
    return found


def _most_steps(minutes: pl.DataFrame, budget: str) -> float | None:
    """The most tokens a step, where they exceed the configured budget."""
    most = minutes.filter(pl.col(budget).is_null())["step_tokens_max_of_process"].max()
    return most if isinstance(most, float) else None
