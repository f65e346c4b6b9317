"""Fleets for tests: servers that come, generate and go, minute by minute."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from driftwatch.collect.schema import Collected, scrape_frame
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.plan import Plan, Pool
from driftwatch.pipeline.state import Outcome, State
from driftwatch.service.replay import Ticks
from driftwatch.store.store import Store

BEGIN = datetime(2026, 1, 2, 3, 0, tzinfo=UTC)
STEP_SECONDS = 20


@dataclass(frozen=True)
class Server:
    """One server: from when to when it is scraped, and what it generates at a time.

    ``rate`` maps seconds after BEGIN to tokens per second.
    """

    name: str
    rate: Callable[[float], float]
    since: float = 0.0
    until: float = float("inf")
    labels: Mapping[str, str] = field(default_factory=dict)
    fails: tuple[float, float] | None = None


class FleetSource:
    """Scrapes of servers as an API with service discovery knows them: it lists who is there now."""

    settle_seconds = 0.0

    def __init__(self, servers: Sequence[Server], minutes: float, name: str = "fleet") -> None:
        self.name = name
        self.servers = servers
        self.frame = _frame(servers, minutes)
        self.silent: Callable[[datetime], str | None] = lambda _: None

    def collect(self, since: datetime, until: datetime) -> Collected:
        inside = pl.col("time").is_between(since, until, closed="left")
        a, b = ((t - BEGIN).total_seconds() for t in (since, until))
        there = {
            TargetKey(s.name, "0"): Target(TargetKey(s.name, "0"), dict(s.labels))
            for s in self.servers
            if s.since < b and s.until > a
        }
        return Collected(self.frame.filter(inside), there, silent=self.silent(until))

    def close(self) -> None:
        pass


def _frame(servers: Sequence[Server], minutes: float) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for number, server in enumerate(servers):
        total = 0.0
        offset = 1 + number % 7
        for i in range(int(minutes * 60 / STEP_SECONDS)):
            at = i * STEP_SECONDS + offset
            if not server.since <= at < server.until:
                continue
            time = BEGIN + timedelta(seconds=at)
            row: dict[str, Any] = {"instance": server.name, "engine": "0", "time": time}
            if server.fails and server.fails[0] <= at < server.fails[1]:
                rows.append({**row, "ok": False, "reason": "connection refused"})
                continue
            rate = server.rate(at)
            total += rate * STEP_SECONDS
            rows.append(
                {
                    **row,
                    "ok": True,
                    "several_api_servers": False,
                    "model_name": server.labels.get("model_name"),
                    "process_start_time_seconds": (
                        BEGIN + timedelta(seconds=server.since)
                    ).timestamp(),
                    "running_requests": min(4.0, rate / 100),
                    "waiting_requests": 0.0,
                    "kv_cache_usage_ratio": 0.1,
                    "generation_tokens_total": total,
                    "prompt_tokens_total": total,
                }
            )
    return scrape_frame(rows).sort("instance", "engine", "time")


def one_pool(plan: Plan, name: str = "chat") -> Plan:
    """The plan with one pool for everybody."""
    from dataclasses import replace

    return replace(plan, pools=(Pool(name),))


def watched(
    sources: Sequence[Any],
    minutes: float,
    plan: Plan,
    every: float = 1.0,
    state: State | None = None,
    begin: float = 0.0,
) -> tuple[State, list[Outcome]]:
    """Ticks of ``every`` minutes from minute ``begin`` on."""
    ticks = Ticks(sources, plan, Store.in_memory(), BEGIN)
    ticks.state = state or ticks.state
    outcomes = []
    now = begin
    while now < minutes:
        now = min(now + every, minutes)
        outcomes.append(ticks.tick(BEGIN + timedelta(minutes=now)))
    return ticks.state, outcomes


def told(outcomes: Sequence[Outcome]) -> list[tuple[str, str, float]]:
    """(event, alert, minutes after BEGIN) of every transition."""
    return [
        (t.event, t.incident.alert, (t.at - BEGIN).total_seconds() / 60)
        for outcome in outcomes
        for t in outcome.transitions
    ]


def retired(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """Server → why it was let go."""
    return {key.instance: why for outcome in outcomes for key, why in outcome.retired.items()}


def steady(rate: float):
    return lambda _: rate


def step(at: float, before: float, after: float):
    return lambda t: before if t < at else after


def events(outcomes):
    return [(event, alert) for event, alert, _ in told(outcomes)]
