"""The capacity columns: who is asked, for how long it holds, and who has to wait."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from service_cases import shipped_plan

from driftwatch.diagnose.evidence_order import in_schema_order
from driftwatch.model import Reason, Recommendation, Target, TargetKey
from driftwatch.pipeline.capacity import CAUGHT_UP, EVERY, MOST_SIMULATED, with_capacity
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.pipeline.question import Moment, TargetAdvice
from driftwatch.pipeline.state import State, no_capacity
from driftwatch.recommend.advice import Advice, Candidate
from driftwatch.signals.minutes import MINUTE_SCHEMA

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
DRIFTED = {
    "prompt_tokens_mean_2m_ratio": 2.0,
    "limit_binding_share_10m_ratio": 0.9,
    "slo_missed": False,
    "observed_10m_seconds": 600.0,
    "binding_limit": "max_num_seqs",
}


def rows(pools: dict[str, dict[str, Any]], first: int, last: int) -> pl.DataFrame:
    """Minutes ``first`` to ``last`` after noon of one target a pool."""
    made = [
        {"instance": f"{pool}:1", "engine": "0", "pool": pool, "end": NOON + m * MINUTE, **said}
        | {"start": NOON + (m - 1) * MINUTE, "model_name": "m"}
        for pool, said in sorted(pools.items())
        for m in range(first, last + 1)
    ]
    return in_schema_order(pl.DataFrame(made, infer_schema_length=None))


def past(pools: dict[str, float]) -> PastMinutes:
    """Minutes with so many first tokens each."""
    made = [
        {"instance": f"{pool}:1", "engine": "0", "end": NOON + m * MINUTE, "ttft_seconds_count": n}
        for pool, n in pools.items()
        for m in range(-60, 60)
    ]
    frame = pl.DataFrame(made, schema_overrides=MINUTE_SCHEMA)
    return PastMinutes(
        frame.select(
            (pl.col(c) if c in frame.columns else pl.lit(None)).cast(t).alias(c)
            for c, t in MINUTE_SCHEMA.items()
        )
    )


class Asked:
    """Answers a capacity that tells whom and when."""

    def __init__(self, refuse: bool = False) -> None:
        self.whom: list[tuple[str, datetime, int]] = []
        self.refuse = refuse

    def __call__(self, moment: Moment, *_: Any, **__: Any) -> TargetAdvice:
        target, at, minutes = moment.target, moment.at, moment.minutes
        self.whom.append((target.key.instance, at, len(minutes)))
        if self.refuse:
            why = Recommendation("insufficient", reason=Reason("other", "7 busy minutes (gate 10)"))
            return TargetAdvice(target, at, Advice(at, why))
        return TargetAdvice(
            target,
            at,
            Advice(
                at,
                Recommendation("no_action", reason=Reason("other", "fine")),
                today=Candidate({}, capacity_requests_per_second=10.0),
                capacity_reference_requests_per_second=20.0,
                offered_requests_per_second=9.0,
            ),
        )


def targets(*pools: str) -> dict[TargetKey, Target]:
    return {
        TargetKey(f"{pool}:1", "0"): Target(TargetKey(f"{pool}:1", "0"), {}, pool) for pool in pools
    }


def told(table: pl.DataFrame, column: str) -> dict[int, Any]:
    return {
        (end - NOON) // MINUTE: value
        for end, value in table.select("end", column).iter_rows()
        if value is not None
    }


def test_an_answer_holds_until_the_next_minute_of_the_grid_however_ticks_are_split() -> None:
    table = rows({"a": DRIFTED}, 5, 34)
    plan, seen, known = shipped_plan(1), past({"a": 60.0}), targets("a")
    ask = Asked()
    whole, after = with_capacity(table, State(targets=known), seen, plan, ask=ask)
    assert [(at - NOON) // MINUTE for _, at, _ in ask.whom] == [10, 20, 30]
    assert {n for _, _, n in ask.whom} == {60}
    assert told(whole, "capacity_ratio") == dict.fromkeys(range(10, 35), 0.5)
    assert told(whole, "utilization_ratio") == dict.fromkeys(range(10, 35), 0.9)
    assert whole.columns == table.columns
    parts, kept = [], no_capacity()
    for one in table.iter_slices(1):
        part, kept = with_capacity(
            one, State(targets=known, capacity=kept), seen, plan, ask=Asked()
        )
        parts.append(part)
    assert pl.concat(parts).equals(whole)
    assert kept.equals(after)


@pytest.mark.parametrize(
    "but",
    [
        {"prompt_tokens_mean_2m_ratio": 1.2},
        {"prompt_tokens_mean_2m_ratio": None},
        {"limit_binding_share_10m_ratio": 0.4},
        {"slo_missed": True},
    ],
    ids=str,
)
def test_nobody_asks_where_it_decides_nothing(but: dict[str, Any]) -> None:
    table = rows({"a": DRIFTED | but}, 5, 34)
    ask = Asked()
    same, after = with_capacity(
        table, State(targets=targets("a")), past({"a": 60.0}), shipped_plan(1), ask=ask
    )
    assert ask.whom == []
    assert same.equals(table)
    assert after.is_empty()


def test_a_refusal_is_the_reason_of_the_unknown() -> None:
    table = rows({"a": DRIFTED}, 10, 12)
    found, _ = with_capacity(
        table,
        State(targets=targets("a")),
        past({"a": 60.0}),
        shipped_plan(1),
        ask=Asked(refuse=True),
    )
    assert found["capacity_ratio"].null_count() == 3
    assert set(found["capacity_unknown_reason"]) == {"7 busy minutes (gate 10)"}


def test_who_was_left_out_comes_first_the_next_time() -> None:
    pools = {f"p{n}": DRIFTED for n in range(MOST_SIMULATED + 2)}
    table, ask = rows(pools, 10, 20), Asked()
    found, _ = with_capacity(
        table.sort("end", "instance"),
        State(targets=targets(*pools)),
        past(dict.fromkeys(pools, 60.0)),
        shipped_plan(1),
        ask=ask,
    )
    first = [who for who, at, _ in ask.whom if at == NOON + EVERY]
    then = [who for who, at, _ in ask.whom if at == NOON + 2 * EVERY]
    assert len(first) == len(then) == MOST_SIMULATED
    assert set(then[:2]) == {f"{pool}:1" for pool in pools} - set(first)
    unknown = found.filter(pl.col("end") == NOON + EVERY, pl.col("capacity_ratio").is_null())
    assert set(unknown["instance"]) == set(then[:2])
    assert all(why.startswith("left out") for why in unknown["capacity_unknown_reason"])


def test_targets_of_one_pool_are_asked_once_and_each_has_its_own_demand() -> None:
    table = pl.concat([rows({"a": DRIFTED}, 10, 11), rows({"b": DRIFTED}, 10, 11)])
    table = table.with_columns(pool=pl.lit("both"))
    ask = Asked()
    known = {k: Target(k, {}, "both") for k in targets("a", "b")}
    seen = past({"a": 60.0, "b": 30.0})
    found, _ = with_capacity(table, State(targets=known), seen, shipped_plan(1), ask=ask)
    assert [who for who, _, _ in ask.whom] == ["a:1"]
    used = dict(
        found.filter(pl.col("end") == NOON + EVERY)
        .select("instance", "utilization_ratio")
        .iter_rows()
    )
    assert used == {"a:1": 0.9, "b:1": pytest.approx(0.45)}
    assert set(found["capacity_ratio"]) == {0.5}


def test_minutes_that_are_caught_up_replay_nothing_and_say_so() -> None:
    ask, pools, key = Asked(), {"a": DRIFTED}, TargetKey("a:1", "0")
    told, _ = with_capacity(
        rows(pools, 1, 25),
        State(targets={key: Target(key, {}, "a")}, simulates_after=NOON + 10 * MINUTE),
        past({"a": 5.0}),
        shipped_plan(3),
        ask=ask,
    )
    assert [at for _, at, _ in ask.whom] == [NOON + 20 * MINUTE]
    of_tenth = told.filter(pl.col("end") == NOON + 10 * MINUTE)
    assert of_tenth["capacity_unknown_reason"].to_list() == [CAUGHT_UP]
    assert of_tenth["utilization_ratio"].to_list() == [None]
