"""Who leaves on purpose makes no noise; who is lost opens one ticket; who returns is seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import polars as pl
import pytest
from pool_cases import (
    BEGIN,
    FleetSource,
    Server,
    events,
    one_pool,
    retired,
    steady,
    step,
    watched,
)
from service_cases import shipped_plan

from driftwatch.model import TargetKey
from driftwatch.pipeline.roster import NOT_LISTED, UNCONFIGURED, TickInput
from driftwatch.pipeline.tick import evaluate
from driftwatch.store.store import Store

PLAN = one_pool(shipped_plan())
KEY = TargetKey("a:8000", "0")
LOST, FOUND = ("firing", "CoverageLost"), ("resolved", "CoverageLost")
EVER = 9e9


def servers(count: int, leave: int = 0, **of_first: object) -> list[Server]:
    """s0 … all as busy; the first ones leave after 15 minutes."""
    made = [
        Server(f"s{i}:8000", steady(100), until=900 if i < leave else EVER) for i in range(count)
    ]
    return [replace(made[0], **of_first), *made[1:]]  # type: ignore[arg-type]


ROLLOUT = [
    *(Server(f"s{i}:8000", steady(100), until=900 + 90 * i) for i in range(8)),
    *(Server(f"new{i}:8000", steady(100), since=880 + 90 * i) for i in range(8)),
]
REPLACED = [
    Server("s0:8000", steady(100), until=2000, fails=(900, EVER)),
    Server("s1:8000", step(900, 100, 200)),
]


def as_recorded(source: FleetSource) -> None:
    """A recording lists all its servers for ever."""
    source.servers = [replace(server, until=EVER) for server in source.servers]


def silent(source: FleetSource) -> None:
    """After 15 minutes the source cannot say which servers there are."""
    quarter = BEGIN + timedelta(minutes=15)
    source.frame = source.frame.filter(pl.col("time") < quarter)
    source.silent = lambda until: "503" if until > quarter else None


# servers, what is odd about their source → how many are let go, events, how many are left
@pytest.mark.parametrize(
    ("fleet", "odd", "gone", "happened", "left"),
    [
        (servers(8, leave=4), None, 4, [], 4),
        (ROLLOUT, None, 8, [], 8),
        # no scrape of another server shows that anybody looked; the listing does
        (servers(1, leave=1), None, 1, [], 0),
        (servers(3, fails=(900, EVER)), None, 0, [LOST], 3),
        (REPLACED, None, 1, [LOST, FOUND], 1),
        # nobody misses who never answered
        (servers(2, leave=1, fails=(0, EVER)), None, 1, [], 1),
        (servers(8, leave=4), silent, 0, None, 8),
        # that one of a recording ends is seen in its scrapes
        (servers(4, leave=2), as_recorded, 2, [], 2),
    ],
    ids=["half", "rollout", "last", "fails", "replaced", "never", "silent", "recording"],
)
def test_who_leaves(
    fleet: Sequence[Server],
    odd: Callable[[FleetSource], None] | None,
    gone: int,
    happened: list[tuple[str, str]] | None,
    left: int,
) -> None:
    source = FleetSource(fleet, 60)
    if odd is not None:
        odd(source)
    state, outcomes = watched([source], 20 if odd is silent else 60, PLAN, every=5)
    assert retired(outcomes) == {f"s{i}:8000": NOT_LISTED for i in range(gone)}
    assert happened is None or events(outcomes) == happened
    assert len(state.targets) == left


def test_a_pod_reborn_with_another_model_inherits_nothing() -> None:
    """The new one has no KV gauge: the old one's memory of it must not count as lost."""
    old = Server("a:8000", steady(100), until=900, labels={"pod": "p-0", "model_name": "m1"})
    new = Server("a:8000", steady(10_000), since=900, labels={"pod": "p-1", "model_name": "m2"})
    source = FleetSource([old, new], 25)
    kv = pl.when(pl.col("model_name") == "m1").then(pl.col("kv_cache_usage_ratio"))
    source.frame = source.frame.with_columns(kv_cache_usage_ratio=kv)
    state, outcomes = watched([source], 25, PLAN)
    assert events(outcomes) == []
    assert [set(o.reborn) for o in outcomes if o.reborn] == [{KEY}]
    assert state.targets[KEY].labels["model_name"] == "m2"
    rates = pl.concat([o.rows for o in outcomes])["generation_tokens_per_second"].drop_nulls()
    # nothing is subtracted from the other pod's counter
    assert set(rates.round(0).unique()) <= {100.0, 10_000.0}


def test_an_incident_of_who_was_let_go_resolves_with_the_reason() -> None:
    """Stuck until it is taken away: nobody ever saw the condition false."""
    stuck = Server("a:8000", step(600, 100, 0), until=1500)
    source = FleetSource([stuck, Server("b:8000", step(600, 100, 200))], 40)
    present = pl.when(pl.col("instance") == "a:8000").then(3.0).otherwise(1.0)
    begun = pl.col("generation_tokens_total") / 100  # the peer's: that a is given none is no chance
    source.frame = source.frame.with_columns(running_requests=present, ttft_seconds_count=begun)
    state, outcomes = watched([source], 40, PLAN, every=5)
    assert events(outcomes) == [("firing", "EngineStuck"), ("resolved", "EngineStuck")]
    resolved = [t for o in outcomes for t in o.transitions][1]
    page = resolved.incident.page
    assert page is not None
    assert resolved.reason == page.resolved_reason == NOT_LISTED
    assert state.incidents == {}


@pytest.mark.parametrize(
    ("name", "pages"), [("fleet", frozenset({"fleet"})), ("other", frozenset[str]())]
)
def test_who_is_taken_out_of_the_configuration_is_let_go_at_once(
    name: str, pages: frozenset[str]
) -> None:
    fleet = servers(2)
    state, _ = watched([FleetSource(fleet, 30)], 10, PLAN)
    until = BEGIN + timedelta(minutes=11)
    collected = FleetSource(fleet[1:], 30).collect(until - timedelta(minutes=1), until)
    given = TickInput({name: collected}, until, configured=frozenset({name}), pages=pages)
    after, outcome = evaluate(state, given, PLAN, Store.in_memory())
    assert outcome.retired == {TargetKey("s0:8000", "0"): UNCONFIGURED}
    assert list(after.targets) == [TargetKey("s1:8000", "0")]
