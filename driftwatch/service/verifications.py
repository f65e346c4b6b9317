"""Changes of servers, seen in the minutes of a tick: verifications open, are looked at, close.

Pure: the minutes of the past and what was advised are asked through arguments. A start opens
nothing by itself. What opens is a setting or a release that is another one after it, be it read
or, of an inferred max_num_seqs, shown by more requests running than it allowed.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from driftwatch.errors import NoVerdict
from driftwatch.knobs import COLUMN_KNOBS
from driftwatch.model import Fingerprint, Slo, Target, TargetKey
from driftwatch.pipeline.explain import Window
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.verify.verdict import (
    LONGEST,
    LOOK_BACK,
    LOOKS,
    Stretch,
    look,
    looks_done,
    minutes_of_change,
    minutes_of_stretches,
    superseded,
    verified,
)
from driftwatch.verify.verification import (
    Change,
    Running,
    Verification,
    advised_by,
    changed,
    running,
    verification_id,
)

# A cap that was inferred shows to be another one only under load: so long it is waited for.
SHOWS_WITHIN = timedelta(hours=24)
# A start and what it brought are told by several metrics, one or two minutes apart.
ONE_CHANGE = timedelta(minutes=10)
# Advice that is older was not what made somebody change a knob.
ADVICE_HOLDS = timedelta(days=14)

_MINUTE = timedelta(minutes=1)
_COLUMNS = (
    "scrapes",
    *COLUMN_KNOBS,
    "max_num_seqs_inferred",
    "running_requests",
    "running_requests_max",
    "cache_config",
)
_FLAGS = ("restarted", "configuration_changed", "release_changed")


@dataclass(frozen=True, slots=True)
class PastAdvice:
    """One advice or page that asked for a change."""

    instance: str
    engine: str
    pool: str
    at: datetime
    recommendation: Mapping[str, Any]  # ``action``, ``knob``, ``from``, ``to``, ``forecast``
    incident_id: str | None = None  # whose page carried it; None = nobody's


# (target, pool, since, until) → what was advised in between, the newest last
Advice = Callable[[TargetKey, str, datetime, datetime], Sequence[PastAdvice]]


@dataclass(frozen=True, slots=True)
class Started:
    """A server that started anew, and what ran on it before."""

    at: datetime
    before: Running
    running_max: float = 0.0


@dataclass(frozen=True, slots=True)
class OpenVerification:
    """An open verification, and when to look at it again."""

    verification: Verification
    looks: int
    next_at: datetime  # end of the minute after which it is looked at again


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a step asks besides the minutes."""

    past: PastMinutes
    advice: Advice
    targets: Mapping[TargetKey, Target]
    fingerprint_of: Callable[[Target], Fingerprint]
    slo_of: Callable[[Target], Slo | None]  # latency targets of a target; None = none are known
    # told of a comparison that failed, by its traceback; None = it raises
    failed: Callable[[str], None] | None = None


def step(
    state: VerificationState,
    rows: pl.DataFrame,
    around: Surroundings,
) -> tuple[VerificationState, tuple[Verification, ...]]:
    """Go through the minutes of a tick.

    Args:
        rows: evidence or stored rows of the minute grid, any order.

    Returns:
        The state, and every verification as it is after having been opened, looked at or closed.
    """
    if rows.is_empty():
        return state, ()
    book = VerificationState(
        dict(state.running), dict(state.started), dict(state.opened), dict(state.read)
    )
    changed: dict[str, Verification] = {}
    columns = [c for c in (*_COLUMNS, *_FLAGS) if c in rows.columns]
    ordered = rows.select("instance", "engine", "end", *columns).sort("end", "instance", "engine")
    for row in ordered.iter_rows(named=True):
        key = TargetKey(row["instance"], row["engine"])
        target = around.targets.get(key)
        if target is None:
            continue
        busy = key in book.started or key in book.opened or any(row.get(f) for f in _FLAGS)
        said = (target, *(row.get(name) for name in _COLUMNS if not name.startswith("running")))
        if not busy and book.read.get(key) == said:
            continue
        book.read[key] = said
        for verification in book.minute(target, row, around.fingerprint_of(target), around):
            changed[verification.id] = verification
    book.read = {key: said for key, said in book.read.items() if key in around.targets}
    return book, tuple(changed.values())


@dataclass(slots=True)
class VerificationState:
    """What one tick hands to the next."""

    # target → what is known to run there
    running: dict[TargetKey, Running] = field(default_factory=dict)
    # targets that started anew, up to :data:`SHOWS_WITHIN` ago
    started: dict[TargetKey, Started] = field(default_factory=dict)
    # target → its open verification
    opened: dict[TargetKey, OpenVerification] = field(default_factory=dict)
    # target → what its last minute said; the same again says nothing new
    read: dict[TargetKey, tuple[Any, ...]] = field(default_factory=dict, compare=False)

    def minute(
        self,
        target: Target,
        row: Mapping[str, Any],
        fingerprint: Fingerprint,
        around: Surroundings,
    ) -> Iterator[Verification]:
        """One minute of one target; what was opened, looked at or closed in it."""
        key, end = target.key, row["end"]
        last = self.running.get(key)
        if any(row.get(flag) for flag in _FLAGS) and last is not None:
            begun = self.started.get(key)
            if begun is None or end - begun.at > ONE_CHANGE:
                self.started[key] = Started(end, last)
                # of the same server a new start may read everything anew
                last = Running(inferred_max_num_seqs=None)
        now = running(row, fingerprint, last)
        self.running[key] = now
        begun = self.started.get(key)
        if begun is not None:
            requests = (row.get("running_requests"), row.get("running_requests_max"))
            most = max(begun.running_max, *(value or 0.0 for value in requests))
            self.started[key] = begun = replace(begun, running_max=most)
            change = changed(begun.before, now, begun.at, most)
            if change is not None:
                yield from self._open(target, change, end, around)
            if end - begun.at > SHOWS_WITHIN:
                del self.started[key]
        if key in self.opened and self.opened[key].next_at <= end:
            yield self._look_or_close(target, end, around)

    def _open(
        self, target: Target, change: Change, end: datetime, around: Surroundings
    ) -> Iterator[Verification]:
        """Open a verification, or say of an open one what else is known of its change."""
        key = target.key
        there = self.opened.get(key)
        if there is not None and there.verification.change.at == change.at:
            if there.verification.change != change:
                again = _with_forecast(replace(there.verification, change=change), target, around)
                self.opened[key] = replace(there, verification=again)
                yield again
            return
        if there is not None:
            yield superseded(there.verification, end)
        pool = target.pool or "default"
        verification = Verification(
            id=verification_id(key, change),
            instance=key.instance,
            engine=key.engine,
            pool=pool,
            change=change,
            opened_at=end,
        )
        verification = _with_forecast(verification, target, around)
        self.opened[key] = OpenVerification(verification, 0, change.at + LOOKS[0] * _MINUTE)
        yield verification

    def _look_or_close(self, target: Target, end: datetime, around: Surroundings) -> Verification:
        """A look; one that fails closes its verification, as the next one would fail as well."""
        try:
            return self._look(target, end, around)
        except Exception as error:
            if around.failed is None:
                raise
            around.failed(traceback.format_exc())
            self.started.pop(target.key, None)
            there = self.opened.pop(target.key).verification
            why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            return replace(
                there,
                verdict="INCONCLUSIVE",
                closed_at=end,
                reason=f"the comparison failed ({why})",
            )

    def _look(self, target: Target, end: datetime, around: Surroundings) -> Verification:
        key, there = target.key, self.opened[target.key]
        at = there.verification.change.at
        minutes = around.past.minutes(key, at - LOOK_BACK, end)
        before, after = minutes_of_change(minutes, at, end)
        over = end - at >= LONGEST
        if looks_done(len(after)) <= there.looks and not over:
            missing = LOOKS[there.looks] - len(after) if there.looks < len(LOOKS) else 60
            waits = replace(
                there.verification,
                reason=there.verification.reason
                or f"{len(after)} of {LOOKS[0]} comparable minutes since the change",
            )
            self.opened[key] = replace(
                there, verification=waits, next_at=min(end + missing * _MINUTE, at + LONGEST)
            )
            return waits
        verification = look(there.verification, before, after, end, slo=around.slo_of(target))
        if verification.closed_at is not None:
            del self.opened[key]
            self.started.pop(key, None)
            return verification
        if not verification.effects:
            # too little matched to be judged: no look was spent, it is tried again soon
            looks, missing = there.looks, max(1, len(after) // 10)
        else:
            looks = max(there.looks + 1, looks_done(len(after)))
            missing = LOOKS[looks] - len(after) if looks < len(LOOKS) else 60
        self.opened[key] = OpenVerification(
            verification, looks, min(end + missing * _MINUTE, at + LONGEST)
        )
        return verification


def _with_forecast(
    verification: Verification, target: Target, around: Surroundings
) -> Verification:
    """The verification with the forecast of the newest advice that asked for its change."""
    at = verification.change.at
    advices = around.advice(target.key, verification.pool, at - ADVICE_HOLDS, at)
    fitting = [one for one in advices if advised_by(verification.change, one.recommendation)]
    own = [o for o in fitting if (o.instance, o.engine) == target.key]
    newest = max(own or fitting, key=lambda one: one.at, default=None)
    if newest is None:
        return replace(verification, forecast=None, incident_id=None)
    return replace(
        verification,
        forecast=dict(newest.recommendation.get("forecast") or {}),
        incident_id=newest.incident_id,
    )


_LOOKS_BACK = timedelta(hours=24)


def asked_now(
    opened: Verification, past: PastMinutes, at: datetime, slo: Slo | None
) -> Verification:
    """An open verification, judged by all that there is now.

    Args:
        slo: latency targets; None = none are known.
    """
    key = TargetKey(opened.instance, opened.engine)
    # far enough back that the stretch before can be cut at an earlier change
    minutes = past.minutes(key, opened.change.at - _LOOKS_BACK, at)
    before, after = minutes_of_change(minutes, opened.change.at, at)
    return verified(opened, before, after, at, slo=slo)


def compared(
    target: Target,
    past: PastMinutes,
    before: Window,
    after: Window,
    slo: Slo | None,
    *,
    rows: pl.DataFrame | None = None,
) -> Verification:
    """Two named stretches of one target.

    Args:
        slo: latency targets; None = none are known.
        rows: stored rows of both, to say what differs; None = that is not told.

    Raises:
        NoVerdict: nothing is known of one of them.
    """
    minutes = []
    for window in (before, after):
        minutes.append(past.minutes(target.key, window.start, window.end))
        _something(target.key, minutes[-1], window)
    difference = _between(minutes[0], minutes[1], rows)
    change = difference or Change("knobs", after.start, {})
    opened = Verification(
        id=verification_id(target.key, change),
        instance=target.key.instance,
        engine=target.key.engine,
        pool=target.pool or "default",
        change=change,
        opened_at=after.start,
    )
    stretches = minutes_of_stretches(
        minutes[0],
        minutes[1],
        Stretch(before.start, before.end),
        Stretch(after.start, after.end),
    )
    return verified(opened, *stretches, after.end, slo=slo)


def _something(key: TargetKey, minutes: pl.DataFrame, window: Window) -> None:
    if minutes.is_empty() or not (minutes["scrapes"] > 0).any():
        raise NoVerdict(
            f"{key.text}: no minute with a usable scrape from "
            f"{window.start:%Y-%m-%d %H:%M} to {window.end:%Y-%m-%d %H:%M} UTC"
        )


def _between(before: pl.DataFrame, after: pl.DataFrame, rows: pl.DataFrame | None) -> Change | None:
    """What ran differently, as far as the minutes of both stretches tell."""
    at = after["end"][0]
    one, other = (_last(frame, rows) for frame in (before, after))
    most = after["running_requests"].max()
    return changed(
        running(one, Fingerprint()),
        running(other, Fingerprint()),
        at,
        float(most) if isinstance(most, float) else None,
    )


def _last(frame: pl.DataFrame, rows: pl.DataFrame | None) -> dict[str, object]:
    """The last minute that was seen, with its ``cache_config`` where rows have it."""
    scraped = frame.filter(pl.col("scrapes") > 0).tail(1)
    newest = (
        scraped
        if rows is None
        else scraped.join(
            rows.select("instance", "engine", "end", "cache_config"),
            on=["instance", "engine", "end"],
            how="left",
        )
    )
    return newest.row(0, named=True)
