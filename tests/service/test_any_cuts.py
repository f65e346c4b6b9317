"""Minutes, findings and incidents do not depend on how they are cut into ticks and processes."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime
from typing import Any

import polars as pl
import pytest
from pipeline_cases import KEY, T0, at, differences, scrapes
from service_cases import FrameSource, shipped_plan

from driftwatch.collect.schema import Collected
from driftwatch.model import Target, TargetKey
from driftwatch.service.batches import Batch
from driftwatch.service.replay import Ticks
from driftwatch.store import Store

END = at(200 * 60)
RESTARTS, STALLS, LEAVES = "a:8000", "b:8000", "c:8000"
PLAN = shipped_plan()


def pages(instance: str, seed: int) -> pl.DataFrame:
    """A scrape about every 15 s of a server with a queue; one in fifty fails, or lacks a series."""
    chance, rows = random.Random(seed), []
    t, done, steps, tokens, started = 2.0 * seed, 0.0, 0.0, 0.0, T0.timestamp() - 9000.0
    while t < 200 * 60:
        minute, waits = t / 60, 30 < t / 60 < 150
        if instance == RESTARTS and minute > 85 and started < T0.timestamp():
            done = steps = tokens = 0.0
            started = at(t).timestamp() - 4
        if not (instance == STALLS and 100 < minute < 112):
            done, steps, tokens = done + chance.uniform(20, 30), steps + 150.0, tokens + 6000.0
        page: dict[str, Any] = {
            "t": t,
            "process_start_time_seconds": started,
            "running_requests": 8.0 if waits else float(chance.randint(1, 6)),
            "waiting_requests": 20.0 if waits else 0.0,
            "kv_cache_usage_ratio": 0.2,
            "generation_tokens_total": 50.0 * done,
            "prompt_tokens_total": 400.0 * done,
            "preemptions_total": 0.0,
            "iteration_tokens_sum": tokens,
            "iteration_tokens_count": steps,
        }
        for name, mean in (("ttft_seconds", 4.0), ("queue_seconds", 3.0), ("e2e_seconds", 6.0)):
            page |= {f"{name}_sum": mean * done, f"{name}_count": done}
        if chance.random() < 0.02:
            page |= chance.choice([{"running_requests": None}, {"generation_tokens_total": None}])
        down = instance == RESTARTS and 78 < minute < 85
        if down or chance.random() < 0.02:
            page = {"t": t, "ok": False, "reason": "refused"}
        if not (instance == LEAVES and 60 < minute < 82):
            rows.append(page)
        t += chance.uniform(13.0, 17.0)
    return scrapes(rows, instance=instance)


class Listing(FrameSource):
    """Lists who was scraped in the time that it is asked for."""

    def collect(self, since: datetime, until: datetime) -> Collected:
        brought = super().collect(since, until)
        there = {TargetKey(*row) for row in brought.scrapes.select(KEY).unique().rows()}
        return replace(brought, targets={k: t for k, t in brought.targets.items() if k in there})


def told(
    kind: type[FrameSource], cuts: list[datetime], restarts: set[datetime]
) -> tuple[pl.DataFrame, list[Any]]:
    """Evidence rows, and who was retired and what opened, of ticks at these times; a new process
    before some of them.
    """
    frame = pl.concat(pages(name, seed) for seed, name in enumerate((RESTARTS, STALLS, LEAVES)))
    keys = [TargetKey(name, "0") for name in (RESTARTS, STALLS, LEAVES)]
    source = kind(frame, {key: Target(key, {"instance": key.instance}) for key in keys})
    rows, retired = [], []
    with Store.in_memory() as store:
        for now in cuts:
            if now == cuts[0] or now in restarts:
                store.pack_minutes(now)
                ticks = Ticks([source], PLAN, store, T0)
                ticks.batch = Batch(store, now)
                until = dict(ticks.state.collected_until) or {source.name: T0}
                ticks.state = replace(ticks.state, collected_until=until)
            outcome = ticks.tick(now)
            rows.append(outcome.rows)
            retired += outcome.retired
        opened = sorted(store.incidents(), key=lambda i: (i.started_at, i.key))
    found = [(i.key, i.state, i.started_at, i.firing_at, i.resolved_at, i.target) for i in opened]
    return pl.concat([r for r in rows if len(r)]).sort(*KEY, "end"), [retired, *found]


@pytest.mark.parametrize(
    ("kind", "seed"), [(Listing, 10), pytest.param(FrameSource, 5, marks=pytest.mark.slow)]
)
def test_any_cuts_give_the_same_rows_and_incidents(kind: type[FrameSource], seed: int) -> None:
    chance = random.Random(seed)
    cuts = [at(second) for second in sorted(chance.sample(range(60, 200 * 60), 30))] + [END]
    expected, found = told(kind, [END], set())
    assert (found[0], len(found)) == ([TargetKey(LEAVES, "0")], 6)
    rows, as_well = told(kind, cuts, set(chance.sample(cuts, 10)))
    assert differences(rows, expected) == []
    assert as_well == found
