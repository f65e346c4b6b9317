"""The life of verifications in the ticks: open, look, close.

A restart alone opens none. A setting or a release that differs after it opens one, if reported, or
if more requests run than an inferred max_num_seqs allowed.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import polars as pl
from pydantic import TypeAdapter, ValidationError

from driftwatch.baselines.in_force import fingerprint
from driftwatch.errors import UsageError
from driftwatch.incidents.follow_up import follow_up
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.knobs import COLUMN_KNOBS
from driftwatch.model import Fingerprint, Slo, Target, TargetKey
from driftwatch.notify.headline import rendered
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.pipeline.plan import Plan
from driftwatch.recommend.advice import Answer
from driftwatch.store.history import TargetAdvice
from driftwatch.store.store import Store
from driftwatch.verify.before_after import LOOK_BACK, ONE_CHANGE, WARM_UP, Minutes, around_change
from driftwatch.verify.changes import Run, Running, advised_by, changed, running, verification_id
from driftwatch.verify.verdict import verified
from driftwatch.verify.verification import Change, Verification

_MINUTE = timedelta(minutes=1)
# Looks at a change: at these times after it, and after a day, when the minutes before it go. One
# limit for all looks (Pocock, Biometrika 64, 1977): eight, each with twice the minutes of the one
# before, cross 2.64 standard deviations by chance in 5 % of cases.
LOOKS = tuple(WARM_UP + 10 * 2**k * _MINUTE for k in range(8))
LOOK_CONFIDENCE = 0.9918
LONGEST = timedelta(hours=24)
# Minutes that a FAIL needs, and a PASS without a forecast: an empty prefix cache makes a new server
# look worse than it is, and a few bursts less make any server look better.
FEWEST_UNPROMISED = 30
# driftwatch waits this long for the load that shows a change of an inferred cap.
SHOWS_WITHIN = timedelta(hours=24)
# Older advice did not cause a change of a setting.
ADVICE_HOLDS = timedelta(days=14)

_READ = ("scrapes", *COLUMN_KNOBS, "max_num_seqs_inferred", "cache_config")
_MOST = ("step_tokens_max_of_process", "running_requests_max_of_process")
_LOAD = ("running_requests", "running_requests_max")
_FLAGS = ("restarted", "configuration_changed", "release_changed")

# (since, until) → the answers of that span, by time
Advice = Callable[[datetime, datetime], Sequence[TargetAdvice]]


@dataclass(frozen=True, slots=True)
class Verifications:
    """The ticks' memory of changes; :func:`verifications_from` reads it from the store."""

    runs: Mapping[TargetKey, Run] = field(default_factory=dict)
    opened: Mapping[TargetKey, Verification] = field(default_factory=dict)
    # target → readings of its last minute; equal ones are skipped
    last_read: Mapping[TargetKey, tuple[Any, ...]] = field(default_factory=dict, compare=False)


def step(
    before: Verifications,
    rows: pl.DataFrame,
    minutes: Minutes,
    advice: Advice,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    failed: list[str],
) -> tuple[Verifications, tuple[Verification, ...]]:
    """Process the minutes of a tick.

    Args:
        rows: stored rows of minutes, any order.
        minutes: reads a target's minutes in a span.
        advice: reads the answers in a span.
        failed: collects the tracebacks of failed comparisons.

    Returns:
        The state after the tick, and each verification that it opened, judged or closed.
    """
    runs, opened, last_read = dict(before.runs), dict(before.opened), dict(before.last_read)
    news: dict[str, Verification] = {}
    columns = [name for name in (*_READ, *_LOAD, *_MOST, *_FLAGS) if name in rows.columns]
    ordered = rows.select("instance", "engine", "end", *columns).sort("end", "instance", "engine")
    for row in ordered.iter_rows(named=True):
        key = TargetKey(row["instance"], row["engine"])
        target = targets.get(key)
        if target is None:
            continue
        run, read = runs.get(key), (target, *(row.get(name) for name in _READ))
        started = run is not None and run.before is not None
        is_busy = started or key in opened or any(row.get(flag) for flag in _FLAGS)
        if not is_busy and last_read.get(key) == read:
            continue
        last_read[key] = read
        runs[key] = run = _after_minute(run, row, fingerprint(target, plan))
        end, one = row["end"], opened.get(key)
        if run.before is not None and run.started_at is not None:
            change = changed(run.before, run.now, run.started_at, run.most_requests)
            if change is not None and (one is None or one.change != change):
                if one is not None and one.change.at != change.at:
                    news[one.id] = _superseded(one, end)
                    one = None
                opened[key] = one = open_verification(one, target, change, end, advice)
                news[one.id] = one
            if end - run.started_at > SHOWS_WITHIN:
                runs[key] = Run(run.now)
        if one is not None and _is_due(one, end):
            news[one.id] = opened[key] = one = look_at(
                one, plan.slo_of(target), end, minutes, failed
            )
            if one.closed_at is not None:
                del opened[key]
                runs[key] = Run(run.now)
    # forget servers that left
    gone = (runs.keys() | last_read.keys()) - targets.keys()
    for key in gone:
        runs.pop(key, None)
        last_read.pop(key, None)
    return Verifications(runs, opened, last_read), tuple(news.values())


def _after_minute(run: Run | None, row: Mapping[str, Any], fingerprint: Fingerprint) -> Run:
    """The run of a server after one more minute."""
    if run is None:
        return Run(running(row, fingerprint))
    if any(row.get(flag) for flag in _FLAGS) and (
        run.started_at is None or row["end"] - run.started_at > ONE_CHANGE
    ):
        # after a start every setting may be read again
        run = Run(Running(), before=run.now, started_at=row["end"])
    most = run.most_requests
    if run.before is not None:
        most = max(most, *(row.get(name) or 0.0 for name in _LOAD))
    return replace(run, now=running(row, fingerprint, run.now), most_requests=most)


def open_verification(
    one: Verification | None,
    target: Target,
    change: Change,
    end: datetime,
    advice: Advice,
) -> Verification:
    """Open a verification of a change, with the forecast of the newest advice for that change.

    ``one``: the same verification, opened when less of the change was known; None = new.
    """
    key, pool = target.key, target.pool or "default"
    if one is None:
        id_ = verification_id(key, change)
        one = Verification(
            id=id_,
            instance=key.instance,
            engine=key.engine,
            pool=pool,
            change=change,
            opened_at=end,
        )
    advices = [
        given
        for given in advice(change.at - ADVICE_HOLDS, change.at)
        if ((given.instance, given.engine) == key or given.pool == pool)
        and advised_by(change, given.answer.advice.moves)
    ]
    own = [given for given in advices if (given.instance, given.engine) == key]
    newest = max(own or advices, key=lambda given: given.at, default=None)
    return one.model_copy(
        update={
            "change": change,
            "forecast": None if newest is None else _forecast(newest.answer),
            "incident_id": None if newest is None else newest.incident_id,
        }
    )


def _forecast(answer: Answer) -> dict[str, Any]:
    """An answer's forecast, with its latency targets and load."""
    if not answer.advice.forecast:
        return {}
    load, slo = "offered_requests_per_second", answer.slo
    beside = {"slo": None if slo is None else asdict(slo), load: getattr(answer, load)}
    return {**answer.advice.forecast, **beside}


def _is_due(one: Verification, end: datetime) -> bool:
    """Whether a look at a verification is due in the minute that ends at ``end``."""
    age = end - one.change.at
    was_looked_at = bool(one.reason)
    return (
        age >= LONGEST
        or any(age - _MINUTE < look <= age for look in LOOKS)
        or (not was_looked_at and age >= LOOKS[0])
    )


def look_at(
    one: Verification,
    slo: Slo | None,
    end: datetime,
    minutes: Minutes,
    failed: list[str],
    *,
    is_last: bool = False,
) -> Verification:
    """A verification after a look; ``is_last``: closed by it. An error closes it: the next look
    would fail too.
    """
    at = one.change.at
    try:
        key = TargetKey(one.instance, one.engine)
        before, after = around_change(minutes(key, at - LOOK_BACK, end), at, end)
        judged = verified(one, before, after, end, slo=slo, confidence=LOOK_CONFIDENCE)
    except Exception as error:  # noqa: BLE001 - it costs only this verdict
        failed.append(traceback.format_exc())
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return _inconclusive(one, end, f"the comparison failed ({why})")
    promised_pass = judged.verdict == "PASS" and one.forecast is not None
    is_sure = judged.verdict != "INCONCLUSIVE" and len(after) >= FEWEST_UNPROMISED
    if promised_pass or is_sure or is_last or end - at >= LONGEST:
        return judged
    return judged.model_copy(update={"verdict": "open", "closed_at": None})


def _superseded(one: Verification, at: datetime) -> Verification:
    """The verification, closed by another change."""
    reason = "another change came before a verdict"
    return _inconclusive(one, at, f"{reason} ({one.reason})" if one.reason else reason)


def _inconclusive(one: Verification, at: datetime, reason: str) -> Verification:
    closed = {"verdict": "INCONCLUSIVE", "closed_at": at, "reason": reason}
    return one.model_copy(update=closed)


_RUNS, RUNS_MEMORY = TypeAdapter(list[tuple[TargetKey, Run]]), "tick.runs"


def runs_memory(runs: Mapping[TargetKey, Run]) -> dict[str, bytes]:
    """The runs, which have no table."""
    return {RUNS_MEMORY: _RUNS.dump_json(sorted(runs.items(), key=lambda one: one[0]))}


def verifications_from(store: Store, runs: bytes | None) -> Verifications:
    """The state in the store; ``runs``: from :func:`runs_memory`, None = none yet."""
    try:
        known = {} if runs is None else dict(_RUNS.validate_json(runs))
    except ValidationError:  # of an earlier version: read the runs again
        known = {}
    return Verifications(known, {one.key: one for one in store.open_verifications()})


@dataclass(frozen=True, slots=True)
class VerifiedChanges:
    """The result of a tick's minutes for changes."""

    state: Verifications
    news: tuple[Verification, ...] = ()  # opened, looked at or closed
    # each incident's first verdict on the change that its page advised
    transitions: tuple[Transition, ...] = ()
    failed: tuple[str, ...] = ()  # tracebacks

    def on_page(self, incident: Incident) -> Incident:
        """The incident; its page shows the verification of the advised change."""
        return _on_page(incident, self.news)

    def on_resolves(self, transitions: Iterable[Transition]) -> tuple[Transition, ...]:
        """The transitions; a resolve's page shows the verification as of its end."""
        return tuple(
            replace(t, incident=_on_page(t.incident, [one for one in self.news if _known(one, t)]))
            if t.event == "resolved"
            else t
            for t in transitions
        )


def verify_changes(
    before: Verifications,
    rows: pl.DataFrame,
    advices: Sequence[TargetAdvice],
    incidents: Iterable[Incident],
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    store: Store,
) -> VerifiedChanges:
    """The verification stage of a tick; its errors delay no page.

    Args:
        rows: stored rows of the tick's minutes.
        advices: of the tick; the store has earlier ones.
        incidents: open in the tick; the store has earlier ones.
    """
    if rows.is_empty():
        return VerifiedChanges(before)
    failed: list[str] = []

    def given(since: datetime, until: datetime) -> Sequence[TargetAdvice]:
        return [*store.advices(since, until), *(a for a in advices if since <= a.at < until)]

    try:
        past = PastMinutes(store, [rows])
        after, news = step(before, rows, past.minutes, given, targets, plan, failed)
        transitions = _follow_ups(news, incidents, store)
    except Exception:  # noqa: BLE001 - pages do not wait for verifications
        return VerifiedChanges(before, failed=(*failed, traceback.format_exc()))
    return VerifiedChanges(after, news, transitions, tuple(failed))


def _follow_ups(
    news: Iterable[Verification], incidents: Iterable[Incident], store: Store
) -> tuple[Transition, ...]:
    closed: dict[str, list[Verification]] = {}
    for one in news:
        if one.closed_at is not None and one.incident_id is not None:
            closed.setdefault(one.incident_id, []).append(one)
    known = {one.id: one for one in incidents}
    transitions = []
    for id_, verdicts in sorted(closed.items()):
        with suppress(UsageError):  # deleted in the store
            transitions.append(_follow_up(known.get(id_) or store.incident(id_), verdicts))
    return tuple(one for one in transitions if one is not None)


def _known(one: Verification, t: Transition) -> bool:
    return one.opened_at <= t.at and (one.closed_at is None or one.closed_at <= t.at)


# a page that advised a change of several servers shows the gravest verdict: the last in this order
_VERDICTS_BY_GRAVITY = ("open", "INCONCLUSIVE", "PASS", "FAIL")


def _gravity(one: Verification) -> int:
    return _VERDICTS_BY_GRAVITY.index(one.verdict)


def _on_page(incident: Incident, news: Iterable[Verification]) -> Incident:
    if incident.page is None:
        return incident
    shown = incident.page.verification
    about = [one for one in news if one.incident_id == incident.id]
    about = [one for one in about if shown is None or _gravity(one) >= _gravity(shown)]
    if not about:
        return incident
    page = incident.page.model_copy(update={"verification": max(about, key=_gravity)})
    return incident.model_copy(update={"page": rendered(page)})


def _follow_up(incident: Incident, verdicts: Sequence[Verification]) -> Transition | None:
    """The first verdict on an incident's advice; None where its page has one already."""
    before = None if incident.page is None else incident.page.verification
    after = _on_page(incident, verdicts)
    if after.page is None or (before is not None and before.verdict != "open"):
        return None
    if (now := after.page.verification) is None or (at := now.closed_at) is None:
        return None
    page = follow_up(after.page, "verified", at)
    return Transition(after.model_copy(update={"page": page}), "verified", at)
