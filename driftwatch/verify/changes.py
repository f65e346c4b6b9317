"""What runs on a server, what changed on it, and which advice asked for the change. Pure."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from driftwatch.collect.fingerprint import differences, fingerprint_of, merged
from driftwatch.knobs import COLUMN_KNOBS, least_budget
from driftwatch.model import Fingerprint, KnobMove, Serving, TargetKey
from driftwatch.verify.verification import Change, Kind

SEQS, BUDGET = COLUMN_KNOBS
# knob → the text of an inferred value with its source; a budget is a lower bound
INFERRED = {
    SEQS: "{:.0f} (most that ran at once)",
    BUDGET: "at least {:.0f} (by the size of its steps)",
}


@dataclass(frozen=True, slots=True)
class Running:
    """Settings and release of a server at one time; unknown ones are left out."""

    # as the server, its labels or the configuration report it; nothing inferred
    fingerprint: Fingerprint = field(default_factory=Fingerprint)
    # knob → the cap that the plateau of running requests shows, or the least token budget that the
    # steps prove where they exceed the one that was read
    inferred: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Run:
    """Settings and release of a server, now and before its last start."""

    now: Running
    before: Running | None = None  # None = it did not start lately
    started_at: datetime | None = None
    most_requests: float = 0.0  # most requests that ran at once since the start


def running(
    row: Mapping[str, Any], fingerprint: Fingerprint, before: Running | None = None
) -> Running:
    """Settings and release in a minute; the minute before fills the gaps of its row.

    ``row``: a minute: ``scrapes``, ``max_num_seqs``, ``max_num_seqs_inferred``,
    ``max_num_batched_tokens``, ``step_tokens_max_of_process``,
    ``running_requests_max_of_process`` and, where it is known, ``cache_config``;
    ``fingerprint``: settings and release by labels, configuration, server or log;
    ``before``: of the minute before, since the last start; None = unknown.
    """
    is_inferred = bool(row.get("max_num_seqs_inferred")) and row.get(SEQS) is not None
    knobs = {
        name: f"{row[name]:.15g}"
        for name in COLUMN_KNOBS
        if row.get(name) is not None and not (name == SEQS and is_inferred)
    }
    now = merged(Fingerprint(knobs=knobs), fingerprint, _of_page(row.get("cache_config")))
    inferred = {SEQS: float(row[SEQS])} if is_inferred else {}
    if (budget := _budget_of_steps(row, now)) is not None:
        inferred[BUDGET] = budget
    if before is None:
        return Running(_not_exceeded(now, row), inferred)
    if not row.get("scrapes") and SEQS in before.inferred:
        # a minute without a scrape contradicts no inferred cap
        inferred.setdefault(SEQS, before.inferred[SEQS])
    if BUDGET in before.inferred:  # a light load contradicts nothing
        inferred[BUDGET] = max(inferred.get(BUDGET, 0.0), before.inferred[BUDGET])
    return Running(_not_exceeded(merged(now, before.fingerprint), row), inferred)


def _not_exceeded(now: Fingerprint, row: Mapping[str, Any]) -> Fingerprint:
    """What runs without a max_num_seqs that more requests exceed: another one is in force."""
    read, most = now.knobs.get(SEQS), row.get("running_requests_max_of_process")
    if read is None or most is None or most <= float(read):
        return now
    return replace(now, knobs={name: text for name, text in now.knobs.items() if name != SEQS})


def _budget_of_steps(row: Mapping[str, Any], now: Fingerprint) -> float | None:
    """The least budget that the steps prove; None where they do not exceed the one read."""
    tokens = row.get("step_tokens_max_of_process")
    if row.get(BUDGET) is not None or BUDGET not in now.knobs or not tokens:
        return None
    return float(least_budget(tokens))


@lru_cache(1024)  # many servers have the same, minute after minute
def _of_page(cache_config: str | None) -> Fingerprint:
    return fingerprint_of({}, Serving(), cache_config)


def changed(
    before: Running, now: Running, at: datetime, most_requests: float | None = None
) -> Change | None:
    """What changed between two runs; None = nothing, or unknown.

    ``most_requests``: most that ran at once since then; above an inferred cap they prove a new cap.
    """
    read = differences(before.fingerprint, now.fingerprint)
    what = {one.name: (one.before, one.now) for one in read if one.group != "identity"}
    names = before.inferred.keys() | now.inferred.keys()
    for name in names if SEQS in now.fingerprint.knobs else {*names, SEQS}:
        what.pop(name, None)
        if (values := _inferred(before, now, name, most_requests)) is not None:
            what[name] = values
    if not what:
        return None
    of_knobs = any(one.group == "knobs" for one in read) or SEQS in what or BUDGET in what
    kind: Kind = "knobs" if of_knobs else "release"
    return Change(kind, at, dict(sorted(what.items())))


def _inferred(
    before: Running, now: Running, name: str, most_requests: float | None
) -> tuple[str, str] | None:
    """A knob before and after, where one value is inferred; None = the same, or one is unknown."""
    read_before, read_now = (one.fingerprint.knobs.get(name) for one in (before, now))
    one, other = before.inferred.get(name), now.inferred.get(name)
    was = read_before if one is None else INFERRED[name].format(one)
    value = one if one is not None or read_before is None else float(read_before)
    if was is None or value is None:
        return None
    if other is not None:
        same = other <= value if name == BUDGET else other == value
        return None if same else (was, INFERRED[name].format(other))
    if read_now is not None and name == BUDGET and float(read_now) >= value:
        return None  # the configuration was corrected
    if read_now is not None:
        return None if read_now == read_before or float(read_now) == value else (was, read_now)
    if name == SEQS and most_requests is not None and most_requests > value:
        return was, f"at least {math.ceil(most_requests - 1e-9)}"
    return None


def has_advised_values(change: Change, moves: Sequence[KnobMove]) -> bool:
    """Whether a change may have brought the values of an advice; a lower bound may be any above."""
    return all(_has_value_of(change, move) for move in moves)


def has_same_values(one: Change, other: Change) -> bool:
    """Whether two changes may have brought the same values; a lower bound may be any above."""
    return one.what.keys() == other.what.keys() and all(
        _may_be(one.what[name][1], number_of(other.what[name][1])) for name in one.what
    )


def _has_value_of(change: Change, move: KnobMove) -> bool:
    return _may_be(change.what.get(move.knob, ("", ""))[1], move.to_value)


def _may_be(text: str, value: float | None) -> bool:
    now, is_bound = number_of(text), text.startswith("at least ")
    if now is None or value is None:
        return False
    return now == value or (is_bound and now < value)


def advised_by(change: Change, moves: Sequence[KnobMove]) -> bool:
    """Whether an advice asked for this change: the same knobs in the same directions.

    A change of one knob of an advised pair does not count: the forecast is for both.
    """
    return bool(moves) and all(_moved_as(change, move) for move in moves)


def _moved_as(change: Change, move: KnobMove) -> bool:
    before, after = map(number_of, change.what.get(move.knob, ("", "")))
    if before is None or after is None or move.from_value is None:
        return False
    return (after - before) * (move.to_value - move.from_value) > 0


def verification_id(target: TargetKey, change: Change) -> str:
    """The id of a change's verification: a hash of server, kind and time."""
    text = "\n".join([*target, change.kind, change.at.astimezone(UTC).isoformat(), ""])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def number_of(text: str) -> float | None:
    """The number in a value of a change: 53 of "at least 53"; None where it is unknown."""
    try:
        return float(text.removeprefix("at least ").partition(" ")[0])
    except ValueError:
        return None
