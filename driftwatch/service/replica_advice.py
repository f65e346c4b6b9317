"""Hints for autoscalers: simulates the capacity of every target, and advises replicas per pool.

Beside the ticks, so that no page waits for a simulation: each run asks one question, about the
worst target of the pool and configuration whose answer is oldest. Rules and findings know nothing
of these answers.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import polars as pl
import structlog

from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.model import TargetKey
from driftwatch.pipeline.advised_replicas import (
    DEMAND_WINDOW,
    Advised,
    Capacity,
    advised_replicas,
    arrivals_of,
    demand_of,
    keys_of,
)
from driftwatch.pipeline.capacity import EVERY, Ask, moment_of, worst_first
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.question import TargetAdvice, configured, target_advice, why_no_capacity
from driftwatch.pipeline.state import Outcome, State
from driftwatch.service.pool_metrics import PoolMetrics
from driftwatch.store.store import Store

CAPACITY = "capacity_requests_per_second"
_NEVER = datetime.min.replace(tzinfo=UTC)
EVERY_SECONDS = 15.0  # between two questions: 40 pools and configurations in ten minutes


@dataclass(frozen=True, slots=True)
class _Newest:
    rows: pl.DataFrame  # evidence of the newest minute
    end: datetime
    state: State
    plan: Plan


class ReplicaAdvice:
    """What is known of the newest minute's pools, and of the capacity of their targets.

    Args:
        store: with the minutes that questions are made of.
        metrics: that the replicas are served by.
    """

    def __init__(self, store: Store, metrics: PoolMetrics, *, ask: Ask = target_advice) -> None:
        self._store, self._metrics, self._ask = store, metrics, ask
        self._lock = threading.Lock()
        self._newest: _Newest | None = None
        self._arrivals: pl.DataFrame | None = None
        self._capacities: dict[TargetKey, Capacity] = {}
        self._advised: dict[str, Advised] = {}

    def with_capacity(self, outcome: Outcome, state: State, plan: Plan) -> Outcome:
        """Take the newest minute of a committed tick; its outcome with every target's capacity.

        Without a target load, or a target, nothing is advised, and the outcome is as it came.
        """
        rows = outcome.rows
        if plan.target_load_ratio is None or not state.targets:
            self._newest, self._advised = None, {}
            self._metrics.note({}, None)
            return outcome
        end = rows["end"].max() if len(rows) else None
        if not isinstance(end, datetime):
            return outcome
        arrivals = arrivals_of(rows.hstack(outcome.judged.select("ever_seen")))
        with self._lock:
            if self._arrivals is None:
                stored = self._store.past(end - DEMAND_WINDOW, end)
                self._arrivals = arrivals_of(stored)
            both = pl.concat([self._arrivals, arrivals]).filter(pl.col("end") > end - DEMAND_WINDOW)
            self._arrivals = both.unique(["pool", "end"], keep="last", maintain_order=True)
            self._newest = _Newest(rows.filter(pl.col("end") == end), end, state, plan)
            there = set(state.targets)
            self._capacities = {k: one for k, one in self._capacities.items() if k in there}
            self._advise()
            return replace(outcome, rows=self._filled(rows, end))

    def ask_once(self) -> TargetAdvice | None:
        """Simulate the capacity that is due longest; None where none is due."""
        newest = self._newest
        if newest is None or not newest.plan.simulations:
            return None
        due = self._due(newest)
        if due is None:
            return None
        group = worst_first(due)
        past = PastMinutes(None, self._store)
        moment = moment_of(group.row(0, named=True), past, newest.plan, newest.state)
        answer = self._ask(moment, newest.plan, ask="assess")
        with self._lock:
            self._capacities |= dict.fromkeys(keys_of(group), capacity_in(answer))
            self._advise()
        return answer

    def _due(self, newest: _Newest) -> pl.DataFrame | None:
        """The rows of one pool and configuration that nobody simulated for ten minutes."""
        rows = newest.rows
        groups: dict[tuple[object, ...], list[int]] = {}
        for index, key in enumerate(keys_of(rows)):
            target = newest.state.targets.get(key)
            if target is not None:
                alike = target.pool or "", configured(target, newest.plan)
                groups.setdefault(alike, []).append(index)
        oldest = min((self._last_answer(rows[i]), i) for i in groups.values()) if groups else None
        if oldest is None or newest.end - oldest[0] < EVERY:
            return None
        return rows[oldest[1]]

    def _last_answer(self, rows: pl.DataFrame) -> datetime:
        """When the target that waits longest was answered."""
        answers = map(self._capacities.get, keys_of(rows))
        return min(_NEVER if one is None else one.at for one in answers)

    def _advise(self) -> None:
        """Every pool anew; a pool whose reason is new is logged."""
        newest, arrivals = self._newest, self._arrivals
        if newest is None or arrivals is None or newest.plan.target_load_ratio is None:
            return
        pools: dict[str, list[TargetKey]] = {}
        for key, target in newest.state.targets.items():
            pools.setdefault(target.pool or "default", []).append(key)
        advised = {
            pool: advised_replicas(
                keys,
                demand_of(arrivals.filter(pl.col("pool") == pool), newest.end),
                self._capacities,
                newest.end,
                newest.plan.target_load_ratio,
            )
            for pool, keys in sorted(pools.items())
        }
        for pool, one in advised.items():
            before = self._advised.get(pool)
            if one.reason and (
                before is None or before.reason is None or before.reason.code != one.reason.code
            ):
                structlog.get_logger().info("replicas unknown", pool=pool, why=one.reason.text)
        self._advised = advised
        self._metrics.note(advised, newest.end)

    def _filled(self, rows: pl.DataFrame, end: datetime) -> pl.DataFrame:
        values = [
            (*key, one.requests_per_second)
            for key, one in self._capacities.items()
            if one.stands(end)
        ]
        schema = {**dict.fromkeys(KEY_COLUMNS, pl.String), CAPACITY: pl.Float64}
        frame = pl.DataFrame(values, schema=schema, orient="row")
        joined = rows.drop(CAPACITY).join(
            frame, on=list(KEY_COLUMNS), how="left", maintain_order="left"
        )
        return joined.select(rows.columns)


def capacity_in(answer: TargetAdvice) -> Capacity:
    """What an answer says of the capacity."""
    advice = answer.advice
    today = advice.today
    if today is None or today.capacity_low_requests_per_second is None:
        why = advice.recommendation.reason
        if advice.recommendation.action != "insufficient":
            why = replace(why, text=why_no_capacity(advice))
        return Capacity(answer.at, reason=why)
    return Capacity(
        answer.at, today.capacity_requests_per_second, today.capacity_low_requests_per_second
    )
