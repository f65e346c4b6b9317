"""Settings that a person confirms after a restart, and the verification of that change. Reads the
store, writes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from driftwatch.errors import UsageError
from driftwatch.knobs import least_budget
from driftwatch.model import Slo, Target, TargetKey
from driftwatch.numbers import knob
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.pipeline.verifications import LONGEST, look_at, open_verification
from driftwatch.store.confirmed import ConfirmedSettings
from driftwatch.store.store import Store
from driftwatch.verify.changes import has_same_values
from driftwatch.verify.verification import Change, Verification

NEAR = timedelta(hours=1)  # a person names a restart by its hour
_DAY = timedelta(days=1)
# knob → column of the largest measured value since the engine's start, its lower bound
_MOST = {
    "max_num_seqs": "running_requests_max_of_process",
    "max_num_batched_tokens": "step_tokens_max_of_process",
}
_LEVEL = "inferred_max_num_seqs"
_READ = ("restarted", _LEVEL, *_MOST, *_MOST.values())


class NotRestarted(UsageError):
    """A server did not restart when its settings were changed."""


def confirm_settings(
    store: Store, target: Target, values: Mapping[str, float], at: datetime, by: str, now: datetime
) -> ConfirmedSettings:
    """The note that a server runs with these settings since its restart nearest to a time.

    Raises NotRestarted: no restart of it is stored within an hour of the time; UsageError: what ran
    since contradicts the settings.
    """
    key = target.key
    rows = store.past(at - _DAY, at + _DAY, [key], _READ)
    starts = rows.filter(pl.col("restarted").fill_null(value=False))["end"].to_list()
    near = [one for one in starts if abs(one - at) <= NEAR]
    if not near:
        known = ", ".join(f"{one:%Y-%m-%dT%H:%MZ}" for one in starts) or "none"
        raise NotRestarted(
            f"{key.text} did not restart within an hour of {at:%Y-%m-%dT%H:%MZ}, and no setting "
            "changes without a restart",
            help_text=f"its restarts in the day around it: {known}",
        )
    since = min(near, key=lambda one: abs(one - at))
    later = [one for one in starts if one > since]
    during = rows.filter(pl.col("end").is_between(since, min(later, default=at + _DAY), "left"))
    for name, value in values.items():
        most = during[_MOST[name]].max()
        if not isinstance(most, float):
            continue
        least = math.floor(most) if name == "max_num_seqs" else least_budget(most)
        if least > value:
            raise UsageError(
                f"{key.text}: {name} is not {value:g}, its scrapes since that restart show {least}"
            )
    level, value = during[_LEVEL].drop_nulls(), values.get("max_num_seqs", 0.0)
    if len(level) and value > level[-1]:
        raise UsageError(
            f"{key.text}: max_num_seqs is not {knob(value)}: since that restart at most "
            f"{knob(level[-1])} ran while requests queued and the KV cache had room, so it is "
            f"{knob(level[-1])}",
            help_text="nothing was recorded; if the server's start-up log says otherwise, write "
            "that into driftwatch.yaml",
        )
    before = rows.filter(pl.col("end") < since)
    was = {name: before[name].drop_nulls() for name in values}
    pairs = {name: (was[name][-1] if len(was[name]) else None, v) for name, v in values.items()}
    return ConfirmedSettings(
        instance=key.instance,
        engine=key.engine,
        pool=target.pool or "default",
        since=since,
        values=pairs,
        by=by,
        at=now,
    )


def verification_of(
    store: Store, note: ConfirmedSettings, target: Target, slo: Slo | None, last: datetime
) -> Verification | None:
    """The verification of a note's change, by the minutes up to ``last``; None = it has none.

    The comparison ends at the next restart, or after a day, and the verification closes with it. A
    verdict that fell on the same change stays.
    """
    what = {
        name: ("unknown" if before is None else knob(before), knob(now))
        for name, (before, now) in note.values.items()
        if before != now
    }
    if not what:
        return None
    change, key = Change("knobs", note.since, what), TargetKey(note.instance, note.engine)
    one = open_verification(None, target, change, note.since, store.advices)
    near = store.verifications(note.since - timedelta(minutes=1), note.since + LONGEST)
    known = next((o for o in near if o.id == one.id and o.closed_at is not None), None)
    if known is not None and has_same_values(known.change, change):
        return known.model_copy(update={"change": change, "confirmed_by": note.by})
    until = min(last, note.since + LONGEST)
    rows = store.past(note.since, until, [key], ("restarted",))
    again = rows.filter(pl.col("restarted").fill_null(value=False))["end"]
    if len(again):
        until = again[0]
    minutes, failed = PastMinutes(store).minutes, list[str]()
    one = look_at(one, slo, until, minutes, failed, is_last=len(again) > 0)
    update: dict[str, Any] = {"confirmed_by": note.by}
    if rows["seconds"].max() != 60:
        update["reason"] = "its minutes are no longer stored (2 days)"
    return one.model_copy(update=update)
