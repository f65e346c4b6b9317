"""Watch: the pools of one shard, or all of them, tick by tick; what is remembered, and commits.

It asks no source and sends nothing: it takes what was gathered, evaluates it, and commits what that
decides with what is to be sent.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import polars as pl

from driftwatch.baselines.rows import baselines_from_store
from driftwatch.collect.gpus import GPU_KEY
from driftwatch.collect.schema import Collected
from driftwatch.detect.references import changes_of
from driftwatch.model import TargetKey, Transition
from driftwatch.pipeline.evaluation import Ask
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.question import target_advice
from driftwatch.pipeline.roster import Sources
from driftwatch.pipeline.server_reports import reports_memory
from driftwatch.pipeline.state import Outcome, State, without
from driftwatch.pipeline.stored_state import (
    advice_rows,
    memory_of,
    of_no_shard,
    state_from,
)
from driftwatch.pipeline.tick import evaluate
from driftwatch.service.planning import commit_planned
from driftwatch.service.receivers import Receiver, planned_changes
from driftwatch.service.rendezvous import Share
from driftwatch.service.stored_verifications import Verifier, verification_rows
from driftwatch.store.minute_columns import stored_rows
from driftwatch.store.store import Store, TickRecord

# Of what is caught up after a stop only the last minutes' questions are simulated: a second or two
# each, and a tick that takes long is taken for a dead one.
SIMULATED = timedelta(minutes=10)
PROGRESS = "tick.progress"


@dataclass(frozen=True, slots=True)
class Brought:
    """What a tick goes on."""

    collected: Sequence[Collected]
    collected_until: Mapping[str, datetime]  # per source name, up to where it was asked
    complete: datetime  # everything before it has been collected, but for late sources
    sources: Sources
    # minutes before it stay without a verdict; None = those before the last six hours
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Deciding:
    """What a tick decides with."""

    plan: Plan
    receivers: Sequence[Receiver]
    ask: Ask = target_advice  # for advice
    # how far back questions are simulated; None = all are
    simulates: timedelta | None = SIMULATED


@dataclass(frozen=True, slots=True)
class Ticked:
    """What a tick did."""

    outcome: Outcome
    happened: tuple[Transition, ...]  # what receivers are told of
    failed: tuple[str, ...]  # tracebacks of verifications


class Watch:
    """The pools of one shard, or all of them.

    Args:
        store: of the shard, or whole.
        planning: held from reading what was sent to the commit of what is planned.
        share: which pools; None = all.
        goes_on: another process goes on from the store: it needs the scrapes, and the detectors'
            memory.
    """

    def __init__(
        self,
        store: Store,
        plan: Plan,
        now: datetime,
        planning: threading.Lock,
        share: Share | None = None,
        *,
        goes_on: bool = True,
    ) -> None:
        self.store, self.share, self._planning, self._goes_on = store, share, planning, goes_on
        self._in_force = store.baselines_in_force()
        begins = share is not None and not store.memory() and bool(of_no_shard(store))
        state = state_from(store, now)
        if share is not None and begins:
            state = _of_share(store, state, share, plan)
        self.state = state
        self._verifier = Verifier(store)

    def tick(
        self,
        brought: Brought,
        now: datetime,
        deciding: Deciding,
        took_seconds: float = 0.0,
    ) -> Ticked:
        """Evaluate what was brought, and commit all that it decides, or nothing.

        ``took_seconds``: how long the last tick took.
        """
        plan, receivers = deciding.plan, deciding.receivers
        before = self._as_pinned(self.state)
        if self.share is not None:
            before = self._taken_over(before, brought)
        state, outcome = evaluate(
            replace(
                before,
                collected_until=brought.collected_until,
                simulates_after=None if deciding.simulates is None else now - deciding.simulates,
            ),
            brought.collected,
            brought.complete,
            plan,
            self.store,
            brought.sources,
            brought.since,
            deciding.ask,
        )
        news = self._verifier.after(outcome, state, plan)
        happened = (*outcome.transitions, *news.transitions)
        learnt, gone = changes_of(before.detection.references, state.detection.references)
        first = self.share is None or self.share.shard == 0
        record = TickRecord(
            since=min(before.collected_until.values(), default=now),
            until=now,
            deliveries=planned_changes(news.changes, receivers, plan.external_url, now),
            # every shard is brought all of them
            gpus=None if not first else outcome.gpus if self._goes_on else _named(outcome.gpus),
            minutes=stored_rows(outcome.rows, outcome.minutes),
            references=learnt,
            references_gone=gone,
            advices=advice_rows(outcome.advices),
            verifications=verification_rows(news.verifications),
            memory=memory_of(state)
            | (reports_memory(plan) if first else {})
            | self._progress(state, now, took_seconds)
            | news.memory,
        )
        self.commit(
            plan,
            receivers,
            record,
            replace(state, incidents=news.on_pages(state.incidents)),
            happened,
        )
        self._verifier.committed(news)
        return Ticked(outcome, happened, news.failed)

    def commit(
        self,
        plan: Plan,
        receivers: Sequence[Receiver],
        tick: TickRecord,
        state: State | None = None,
        happened: Sequence[Transition] = (),
    ) -> None:
        """Commit a tick, or nothing but what people did between two, and what is to be sent."""
        with self._planning:
            before, after = self.state, state or self.state
            incidents = commit_planned(
                *(self.store, plan, receivers, tick),
                *(before.incidents, after.incidents, happened),
            )
            self.state = replace(after, incidents=incidents)

    def plan_actions(self, plan: Plan, receivers: Sequence[Receiver], now: datetime) -> bool:
        """Tell receivers what people did since the last tick; whether there was anything."""
        if not self.store.unplanned_actions():
            return False
        self.commit(plan, receivers, TickRecord(now, now))
        return True

    def _as_pinned(self, state: State) -> State:
        """The state with the baselines in force; read anew where a person changed them."""
        in_force = self.store.baselines_in_force()
        if in_force == self._in_force:
            return state
        self._in_force = in_force
        return replace(state, baselines=baselines_from_store(self.store))

    def _taken_over(self, state: State, brought: Brought) -> State:
        """The state with the open incidents of targets that were another shard's, and without those
        of targets that are.
        """
        moved = brought.sources.elsewhere.keys() & state.targets.keys()
        if moved:
            own = {k: i for k, i in state.incidents.items() if _target_of(i.target) not in moved}
            state = replace(state, incidents=own)
        listed = {key for one in brought.collected for key in one.targets}
        if new := listed - state.targets.keys():
            theirs = self.store.open_elsewhere()
            adopted = {k: i for k, i in theirs.items() if _target_of(i.target) in new}
            state = replace(state, incidents={**adopted, **state.incidents})
        return state

    def _progress(self, state: State, now: datetime, took_seconds: float) -> dict[str, bytes]:
        """How far a shard is, for ``driftwatch shards``."""
        if self.share is None:
            return {}
        until = state.evaluated_until
        progress = {
            "ticked_at": now.astimezone(UTC).isoformat(),
            "evaluated_until": None if until is None else until.astimezone(UTC).isoformat(),
            "targets": len(state.targets),
            "pools": len({target.pool for target in state.targets.values()}),
            "tick_seconds": round(took_seconds, 3),
        }
        return {PROGRESS: orjson.dumps(progress, option=orjson.OPT_SORT_KEYS)}


def _named(gpus: pl.DataFrame) -> pl.DataFrame:
    """The last reading of each GPU: its name."""
    return gpus.unique([c for c in GPU_KEY if c != "time"], keep="last", maintain_order=True)


def progress_by_shard(store: Store) -> dict[int, Mapping[str, Any]]:
    """What each shard's last tick said of it; nothing of one where that cannot be read."""
    progresses: dict[int, Mapping[str, Any]] = {}
    for shard, stored in store.remembered_by_shard(PROGRESS).items():
        with suppress(ValueError, TypeError, KeyError):
            progress = orjson.loads(stored)
            datetime.fromisoformat(progress["ticked_at"])
            if shard is not None:
                progresses[shard] = progress
    return progresses


def _target_of(labels: Mapping[str, str]) -> TargetKey | None:
    instance = labels.get("instance")
    return None if instance is None else TargetKey(instance, labels.get("engine", "0"))


def _of_share(store: Store, state: State, share: Share, plan: Plan) -> State:
    """Of all that was remembered what is about a shard's own targets."""
    others = {
        key for key, one in state.targets.items() if not share.has_pool(plan.pool_of(one).name)
    }
    state = without(state, others)
    targets = {key: one for key, one in state.targets.items() if key not in others}
    incidents = {
        key: one
        for key, one in store.open_elsewhere().items()
        if share.has_pool(one.target.get("pool", ""))
    }
    departures = state.departures
    departures = replace(
        departures, origins={k: o for k, o in departures.origins.items() if k in targets}
    )
    return replace(state, targets=targets, incidents=incidents, departures=departures)
