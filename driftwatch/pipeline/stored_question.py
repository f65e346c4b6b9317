"""A question about a target's knobs from the database alone: its minutes up to a moment."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

import polars as pl

from driftwatch.collect.schema import Collected, empty_scrapes
from driftwatch.errors import NoVerdict
from driftwatch.model import Finding, Target, TargetKey
from driftwatch.pipeline.explain import window_ending
from driftwatch.pipeline.minutes import WINDOW, with_last_speed
from driftwatch.pipeline.past_windows import explain_past, reference_from_store
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.question import Moment, Options, peers_of, question_for
from driftwatch.pipeline.stored_state import stored_targets
from driftwatch.recommend.advice import Question
from driftwatch.store.store import Store

_EVIDENCE = timedelta(minutes=10)  # as ``explain`` looks back


def stored_question(
    store: Store, plan: Plan, key: TargetKey, at: datetime, what_if: Mapping[str, float]
) -> Question:
    """What ``driftwatch recommend`` asks of a target, of its stored minutes before ``at``.

    ``what_if``: knob, ``replicas`` or ``prefix_hit_ratio`` → value asked about besides.

    Raises NoVerdict: the store has no such target, or no minute of it.
    """
    targets = plan.assign(stored_targets(store))
    target = targets.get(key)
    if target is None:
        raise NoVerdict(f"{key.text}: the service has forgotten this target")
    peers = peers_of(target, targets, plan)
    minutes = store.past(at - WINDOW, at, [key])
    finding = _finding(store, plan, target, at, {one: targets[one] for one in (key, *peers)})
    row = {}
    if finding is not None:
        row = with_last_speed({**finding.evidence, **finding.histograms}, minutes)
    replicas = None
    if target.pool is not None:
        replicas = sum(one.pool == target.pool for one in targets.values())
    moment = Moment(target, at, minutes, row, store.past(at - WINDOW, at, peers), replicas)
    diagnosis = None if finding is None else finding.diagnosis
    leaf = None if diagnosis is None else diagnosis.leaf
    return question_for(moment, plan, leaf, Options(what_if=what_if))


def busiest(store: Store, keys: Collection[TargetKey], at: datetime) -> TargetKey | None:
    """The one with the longest queue in the ten minutes before ``at``; None of none."""
    if not keys:
        return None
    first, *_ = sorted(keys)
    rows = store.past(at - _EVIDENCE, at, keys).drop_nulls("waiting_requests")
    queues = rows.group_by("instance", "engine").agg(pl.col("waiting_requests").mean())
    waiting = {TargetKey(one, engine): mean for one, engine, mean in queues.iter_rows()}
    return max(sorted(waiting), key=lambda key: waiting[key], default=first)


def _finding(
    store: Store, plan: Plan, target: Target, at: datetime, around: Mapping[TargetKey, Target]
) -> Finding | None:
    """What its last ten minutes say; None where none of them has a scrape."""
    collected = Collected(empty_scrapes(), around)
    reference = reference_from_store(store, collected, None, plan)
    try:
        return explain_past(store, target, window_ending(at, _EVIDENCE), plan, reference)[0]
    except NoVerdict:
        return None
