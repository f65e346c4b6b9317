"""How minutes are cut into ticks, strides and processes changes nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pipeline_cases import KEY, T0, at, differences, scrapes
from service_cases import FrameSource, shipped_plan

from driftwatch.collect.recordings import open_recording
from driftwatch.collect.schema import Collected, scrape_frame
from driftwatch.model import Target, TargetKey
from driftwatch.notify.page import Page
from driftwatch.pipeline.state import State
from driftwatch.service.batches import Batch
from driftwatch.service.replay import Ticks
from driftwatch.store.store import Store
from tests.replayed_rows import evidence_only

END = at(200 * 60)
RESTARTS, STALLS, LEAVES = "a:8000", "b:8000", "c:8000"
PLAN = shipped_plan()
MINUTE = timedelta(minutes=1)


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
        scraped = {TargetKey(*row) for row in brought.scrapes.select(KEY).unique().rows()}
        return replace(brought, targets={k: t for k, t in brought.targets.items() if k in scraped})


def cut(
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
    found = [one.document() for one in opened]
    return pl.concat([r for r in rows if len(r)]).sort(*KEY, "end"), [retired, *found]


@pytest.mark.parametrize(
    ("kind", "seed"), [(Listing, 10), pytest.param(FrameSource, 5, marks=pytest.mark.slow)]
)
def test_any_cuts_and_restarts_give_the_same_rows_and_incidents(
    kind: type[FrameSource], seed: int
) -> None:
    chance = random.Random(seed)
    cuts = [at(second) for second in sorted(chance.sample(range(60, 200 * 60), 30))] + [END]
    expected, found = cut(kind, [END], set())
    assert found[0] == [TargetKey(LEAVES, "0")]
    assert len(found) >= 3
    rows, as_well = cut(kind, cuts, set(chance.sample(cuts, 10)))
    assert differences(rows, expected) == []
    assert as_well == found


# --- on the recorded restart


@pytest.fixture(scope="module")
def cap(shared_data: Path) -> FrameSource:
    with_cap = open_recording(shared_data / "vllm-0.32" / "run_cap")
    collected = with_cap.collect(*with_cap.span())
    return FrameSource(collected.scrapes, collected.targets)


def first_of(source: FrameSource) -> datetime:
    first = source.frame["time"].min()
    assert isinstance(first, datetime)
    return first


def ticked(source: FrameSource, nows: Sequence[datetime]) -> tuple[State, list[Page], pl.DataFrame]:
    ticks = Ticks([source], PLAN, Store.in_memory(), first_of(source))
    outcomes = [ticks.tick(now) for now in nows]
    sent = [t.incident.page for o in outcomes for t in o.transitions if t.incident.page is not None]
    rows = pl.concat([evidence_only(o.rows) for o in outcomes if len(o.rows)])
    return ticks.state, sent, rows


def test_a_target_that_dies_mid_window_keeps_its_incident_open(cap: FrameSource) -> None:
    """No data neither resolves nor pages; the loss of coverage is its own ticket."""
    dead_from = first_of(cap) + 12 * MINUTE
    refused = {"instance": "host:8000", "engine": "0", "ok": False, "reason": "refused"}
    failed = [{**refused, "time": dead_from + timedelta(seconds=15 * i)} for i in range(120)]
    frame = pl.concat([cap.frame.filter(pl.col("time") < dead_from), scrape_frame(failed)])
    state, sent, rows = ticked(FrameSource(frame, cap.targets), [dead_from + 30 * MINUTE])
    assert [(page.event, page.alert, page.severity) for page in sent] == [
        ("firing", "BatchLimitBinding", "page"),
        ("firing", "CoverageLost", "ticket"),
    ]
    firing = {i.alert for i in state.incidents.values() if i.state == "firing"}
    assert firing == {"BatchLimitBinding", "CoverageLost"}
    unknown = rows.tail(5).select("generation_tokens_per_second", "running_requests")
    assert unknown.null_count().row(0) == (5, 5)
