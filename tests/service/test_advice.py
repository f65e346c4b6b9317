"""The question of a page: what is known of the server, who is asked, one answer for a pool."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from made_incidents import incident_of
from service_cases import shipped_plan

from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.collect.schema import Collected
from driftwatch.collect.startup import from_startup_log
from driftwatch.incidents.incident import Transition
from driftwatch.model import (
    Fingerprint,
    Target,
    TargetKey,
)
from driftwatch.pipeline.engine import server_of
from driftwatch.pipeline.findings import peer_speeds, worst_of
from driftwatch.pipeline.minutes import with_last_speed
from driftwatch.pipeline.plan import Pool
from driftwatch.pipeline.question import (
    Moment,
    peers_of,
    question_for,
)
from driftwatch.pipeline.roster import TickInput
from driftwatch.pipeline.state import State
from driftwatch.pipeline.tick import evaluate
from driftwatch.recommend.server import settings_of
from driftwatch.rulebook.book import load_rulebook
from driftwatch.service.configuration import plan_of_rules
from driftwatch.signals.minutes import MINUTE_SCHEMA, no_minutes
from driftwatch.store.store import Store

PLAN = shipped_plan()


@pytest.fixture(scope="module")
def seen(shared_data: Path) -> tuple[Target, pl.DataFrame, pl.DataFrame]:
    """run_cap: 14 min at max_num_seqs 8, a restart, 14 min at 64; nothing is configured."""
    source = RecordingSource(shared_data / "vllm-0.32" / "run_cap")
    since, until = source.span()
    collected: Collected = source.collect(since, until)
    state, outcome = evaluate(State(), TickInput({"": collected}, until), PLAN, Store.in_memory())
    return (
        next(iter(state.targets.values())),
        outcome.rows,
        outcome.minutes,
    )


def after(rows: pl.DataFrame, minutes_later: int) -> datetime:
    first: datetime = rows["end"][0]
    return first + timedelta(minutes=minutes_later)


def test_a_page_asks_of_all_that_is_known_of_the_hour(
    seen: tuple[Target, pl.DataFrame, pl.DataFrame],
) -> None:
    target, rows, stored = seen
    at = after(stored, 11)
    row = rows.filter(pl.col("end") == at).row(0, named=True)
    question = question_for(Moment(target, at, stored, row), PLAN, "concurrency_cap_binding")
    assert question.minutes["end"][-1] == at
    assert question.minutes["end"].to_list() == stored["end"].filter(stored["end"] <= at).to_list()
    server = question.server
    assert server.serving.max_num_seqs is not None
    assert (server.serving.max_num_seqs.value, server.serving.max_num_seqs.provenance) == (
        8.0,
        "inferred",
    )
    assert (server.num_gpu_blocks, server.block_size) == (8192, 32)
    assert (server.model, server.gpu, server.prefix_caching) == ("tiny-llama", None, True)
    assert server.kv_cache_dtype == "auto"
    assert server.unsupported == ()
    known = settings_of(server)
    assert known is not None and not known.budget_known
    assert {one.max_num_seqs for one in known.configurations} == {8}
    assert len(known.configurations) == 6  # max_num_batched_tokens is not known


def test_what_a_pool_says_of_its_engine_goes_first(
    seen: tuple[Target, pl.DataFrame, pl.DataFrame], shared_data: Path
) -> None:
    target, _, stored = seen
    log = (shared_data / "vllm-0.32" / "server_startup_log.txt").read_text()
    pool = Pool(
        "a",
        serving=from_startup_log(log, path="log").serving,
        gpus_per_replica=4.0,
        reported=from_startup_log(log, path="log").fingerprint,
        model="meta-llama/Llama-3.1-8B",
        gpu="NVIDIA H100 80GB HBM3",
    )
    found = server_of(target, replace(PLAN, pools=(pool,)), stored)
    assert (found.model, found.gpu, found.gpus) == (
        "meta-llama/Llama-3.1-8B",
        "NVIDIA H100 80GB HBM3",
        4.0,
    )
    assert (found.tensor_parallel, found.weight_bytes, found.release) == (1, 4.0, "0.32.0")
    asked = server_of(target, replace(PLAN, pools=(pool,)), stored, model="x", gpu="y")
    assert (asked.model, asked.gpu) == ("x", "y")
    # what steps needed since the start holds in an hour that needs less
    for shown, value, known in (
        (None, 1024.0, "startup log"),
        (512.0, 1024.0, "startup log"),
        (4000.0, 4096.0, "inferred"),
    ):
        row = {"step_tokens_max_of_process": shown}
        found = server_of(target, replace(PLAN, pools=(pool,)), stored, row=row)
        budget = found.serving.max_num_batched_tokens
        assert budget is not None and (budget.value, budget.provenance) == (value, known)
    silent = replace(pool, reported=Fingerprint(), model=None, gpu=None)
    found = server_of(target, replace(PLAN, pools=(silent,)), stored)
    assert (found.model, found.gpu, found.tensor_parallel) == ("tiny-llama", None, 4)


UNKNOWN = {"slower_at_equal_load": None, "speed_at_equal_load_ratio": None}


def _past(*slower: bool | None, **changed: list[bool | None]) -> pl.DataFrame:
    ratios = [None if one is None else 0.69 if one else 1.0 for one in slower]
    return pl.DataFrame(
        {"slower_at_equal_load": slower, "speed_at_equal_load_ratio": ratios, **changed},
        schema_overrides={
            "slower_at_equal_load": pl.Boolean,
            "speed_at_equal_load_ratio": pl.Float64,
            **dict.fromkeys(changed, pl.Boolean),
        },
    )


def test_what_was_last_known_holds_while_it_is_unknown() -> None:
    row = with_last_speed(UNKNOWN, _past(False, True, True, None, None))
    assert row["slower_at_equal_load"] is True
    assert row["speed_at_equal_load_ratio"] == 0.69


@pytest.mark.parametrize(
    ("row", "past"),
    [
        (UNKNOWN, _past(True, False, None)),  # it recovered
        (UNKNOWN, _past(None, None)),
        (UNKNOWN, no_minutes()),
        ({"slower_at_equal_load": False}, _past(True, True)),  # it is known now
        (UNKNOWN | {"speed_at_equal_load_ratio": 1.1}, _past(True, True)),  # measured, not judged
        (UNKNOWN, _past(True, True, None, restarted=[False, False, True])),  # another engine
        (UNKNOWN, _past(True, None, None, configuration_changed=[None, True, None])),
    ],
)
def test_what_is_known_now_or_was_of_another_engine_does_not(
    row: dict[str, object], past: pl.DataFrame
) -> None:
    assert with_last_speed(row, past) == row


AT = datetime(2026, 11, 18, 3, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
A, B, C = (TargetKey(f"{name}:8000", "0") for name in "abc")
FLEET = {
    **{key: Target(key, {"model_name": "m"}, pool="p") for key in (A, B)},
    C: Target(C, {"model_name": "m"}, pool="q"),
}


def minutes(key: TargetKey, first: float, prompt: float = 400.0) -> pl.DataFrame:
    rows = [
        {
            "instance": key.instance,
            "engine": key.engine,
            "end": AT - n * MINUTE,
            "ttft_seconds_count": first,
            "prompt_tokens_total": first * prompt,
            "generation_tokens_total": first * 150.0,
        }
        for n in range(30)
    ]
    known = pl.concat([no_minutes(), pl.DataFrame(rows)], how="diagonal_relaxed")
    return known.select(*MINUTE_SCHEMA)


@pytest.mark.parametrize("asked", [A, B])
@pytest.mark.parametrize(("slow", "used", "rest"), [(None, B, A), (B, A, B)])
def test_two_servers_of_one_pool_ask_the_same_question(
    asked: TargetKey, slow: TargetKey | None, used: TargetKey, rest: TargetKey
) -> None:
    """Each by itself would be given its own capacity and its own setting for one cause."""
    plan = plan_of_rules(())
    frames = {A: minutes(A, 100.0), B: minutes(B, 110.0)}
    if slow is not None:
        frames[slow] = frames[slow].with_columns(slower_than_pool=True)
    (twin,) = peers_of(FLEET[asked], FLEET)
    question = question_for(Moment(FLEET[asked], AT, frames[asked], beside=frames[twin]), plan)
    # the busiest of them that is not slow, whoever is asked about, and the answer names it
    slower = "" if slow is None else " (1 is slower)"
    assert question.traffic_of == f"{used.text}, the busiest of 2 servers{slower}"
    assert question.minutes["instance"].unique().to_list() == [used.instance]
    assert [one["instance"].unique().to_list() for one in question.beside] == [[rest.instance]]
    assert peers_of(FLEET[C], FLEET) == ()


SPEEDS = {"a:1": 0.8, "b:1": 0.7, "c:1": None, "d:1": 0.99, "e:1": 1.02}


def rows() -> pl.DataFrame:
    return pl.DataFrame(
        [
            {
                "instance": instance,
                "engine": "0",
                "pool": "chat",
                "end": AT,
                "speed_at_equal_load_ratio": speed,
                "slower_at_equal_load": None if speed is None else speed < 0.89,
                "seconds_since_last_token": 200.0 + ord(instance[0]),
            }
            for instance, speed in SPEEDS.items()
        ]
    )


def of_pool(rule: str, *instances: str) -> Transition:
    return Transition(incident_of(rule=rule, pool="chat", servers=instances, at=AT), "firing", AT)


@pytest.mark.parametrize(("rule", "worst"), [("SlowerAtEqualLoad", "b:1"), ("EngineStuck", "c:1")])
def test_the_worst_of_those_concerned_speaks(rule: str, worst: str) -> None:
    (of_rule,) = (one for one in load_rulebook().rules if one.id == rule)
    for servers, first in ((("a:1", "b:1", "c:1"), worst), (("c:1",), "c:1"), (("z:1",), None)):
        key = worst_of(of_pool(rule, *servers), rows(), of_rule)
        assert (key and key.instance) == first


def test_how_the_others_do_is_of_those_that_are_not_slow() -> None:
    assert peer_speeds(TargetKey("a:1", "0"), AT, rows()) == {
        "of_targets": 5,
        "slower": 2,
        "speed_low_ratio": 0.99,
        "speed_high_ratio": 1.02,
    }
    alone = rows().filter(pl.col("instance").is_in(["a:1", "c:1"]))
    assert peer_speeds(TargetKey("a:1", "0"), AT, alone) is None
    assert peer_speeds(TargetKey("a:1", "0"), AT.replace(hour=13), rows()) is None
