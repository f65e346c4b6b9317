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
from driftwatch.service.changes import Running, advised_by, changed, running, verification_id
from driftwatch.verify.matching import QUEUE_MINUTES, comparable, with_traffic
from driftwatch.verify.verdict import verified
from driftwatch.verify.verification import Change, Verification

_MINUTE = timedelta(minutes=1)
# A day has every load and every mix of a day.
LOOK_BACK = timedelta(hours=24)
# After a start: the first minutes compile, capture graphs and fill an empty prefix cache.
WARM_UP = timedelta(minutes=2)
# The change is looked at so long after its warm-up, and a day after it: then the minutes before it
# are no longer kept. One limit for all looks (Pocock, Biometrika 64, 1977): eight, each with twice
# the minutes of the one before, cross 2.64 standard deviations by chance in 5 % of cases.
LOOKS = tuple(WARM_UP + 10 * 2**k * _MINUTE for k in range(8))
LOOK_CONFIDENCE = 0.9918
LONGEST = timedelta(hours=24)
# An empty prefix cache makes a fresh server look worse than it is, and a few bursts less make any
# look better: a FAIL waits for so many minutes, and so does a PASS of what nobody had promised.
FEWEST_UNPROMISED = 30
# A cap that was inferred shows to be another one only under load: so long it is waited for.
SHOWS_WITHIN = timedelta(hours=24)
# A start and what it brought are told by several metrics, one or two minutes apart.
ONE_CHANGE = timedelta(minutes=10)
# Advice that is older was not what made somebody change a knob.
ADVICE_HOLDS = timedelta(days=14)

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


def around_change(
    minutes: pl.DataFrame, at: datetime, until: datetime
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Comparable minutes before a change, back to the one before it, and after its warm-up.

    ``minutes``: :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`, of the target, by end.
    """
    rows = with_traffic(minutes)
    before = rows.filter(pl.col("end") > at - LOOK_BACK, pl.col("end") < at)
    flags = (pl.col(name).fill_null(False) for name in ("configuration_changed", "release_changed"))
    last = before.filter(pl.any_horizontal(*flags))["end"].max()
    if isinstance(last, datetime):
        before = before.filter(pl.col("end") > last)
    after = rows.filter(pl.col("end") > at + WARM_UP, pl.col("end") <= until)
    return comparable(before), comparable(after)


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
            yield _superseded(there.verification, end)
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
        self.opened[key] = OpenVerification(verification, change.at + LOOKS[0])
        yield verification

    def _look_or_close(self, target: Target, end: datetime, around: Surroundings) -> Verification:
        """A look; one that fails closes its verification, as the next one would fail as well."""
        there = self.opened[target.key].verification
        try:
            return self._look(target, end, around)
        except Exception as error:
            if around.failed is None:
                raise
            around.failed(traceback.format_exc())
            self.started.pop(target.key, None)
            self.opened.pop(target.key, None)
            why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            reason = f"the comparison failed ({why})"
            return replace(there, verdict="INCONCLUSIVE", closed_at=end, reason=reason)

    def _look(self, target: Target, end: datetime, around: Surroundings) -> Verification:
        key = target.key
        there = self.opened.pop(key).verification
        at, slo = there.change.at, around.slo_of(target)
        before, after = around_change(around.past.minutes(key, at - LOOK_BACK, end), at, end)
        verification = verified(there, before, after, end, slo=slo, confidence=LOOK_CONFIDENCE)
        promised_pass = verification.verdict == "PASS" and there.forecast is not None
        decided = verification.verdict != "INCONCLUSIVE" and len(after) >= FEWEST_UNPROMISED
        if promised_pass or decided or end - at >= LONGEST:
            self.started.pop(key, None)
            return verification
        still = replace(verification, verdict="open", closed_at=None)
        next_at = next((at + one for one in LOOKS if at + one > end), at + LONGEST)
        self.opened[key] = OpenVerification(still, next_at)
        return still


def _superseded(opened: Verification, at: datetime) -> Verification:
    """An open verification that another change ended."""
    reason = "another change came before a verdict"
    reason = f"{reason} ({opened.reason})" if opened.reason else reason
    return replace(opened, verdict="INCONCLUSIVE", closed_at=at, reason=reason)


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


def asked_now(
    opened: Verification, past: PastMinutes, at: datetime, slo: Slo | None
) -> Verification:
    """An open verification, judged by all that there is now.

    Args:
        slo: latency targets; None = none are known.
    """
    key = TargetKey(opened.instance, opened.engine)
    minutes = past.minutes(key, opened.change.at - LOOK_BACK, at)
    return verified(opened, *around_change(minutes, opened.change.at, at), at, slo=slo)


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
        # what a minute was offered is a mean over those before it
        rows_before = past.minutes(target.key, window.start - QUEUE_MINUTES * _MINUTE, window.end)
        minutes.append(with_traffic(rows_before).filter(pl.col("end") > window.start))
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
    one, other = (comparable(each) for each in minutes)
    return verified(opened, one, other, after.end, slo=slo)


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
