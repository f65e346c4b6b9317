from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from service_cases import shipped_plan

from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.collect.schema import Collected
from driftwatch.collect.startup import from_config, from_startup_log
from driftwatch.model import Fingerprint, Setting, Slo, Target
from driftwatch.pipeline.engine import server_of, tokens_a_step
from driftwatch.pipeline.plan import Pool
from driftwatch.pipeline.question import Moment, Options, question_for, reference_in
from driftwatch.pipeline.state import State
from driftwatch.pipeline.tick import evaluate
from driftwatch.recommend.server import settings_of
from driftwatch.store.store import Store

PLAN = shipped_plan()


@pytest.fixture(scope="module")
def seen(shared_data: Path) -> tuple[Target, pl.DataFrame, pl.DataFrame]:
    """run_cap: 14 min at max_num_seqs 8, a restart, 14 min at 64; nothing is configured."""
    source = RecordingSource(shared_data / "vllm-0.32" / "run_cap")
    since, until = source.span()
    collected: Collected = source.collect(since, until)
    state, outcome = evaluate(State(), [collected], until, PLAN, Store.in_memory())
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


def test_a_cap_inferred_before_a_restart_is_not_that_of_after(
    seen: tuple[Target, pl.DataFrame, pl.DataFrame],
) -> None:
    target, _, stored = seen
    question = question_for(Moment(target, after(stored, 25), stored), PLAN)
    assert question.server.serving.max_num_seqs is None
    assert settings_of(question.server) is None


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
    silent = replace(pool, reported=Fingerprint(), model=None, gpu=None)
    found = server_of(target, replace(PLAN, pools=(silent,)), stored)
    assert (found.model, found.gpu, found.tensor_parallel) == ("tiny-llama", None, 4)


def test_a_path_gives_way_to_a_served_name_that_is_known(
    seen: tuple[Target, pl.DataFrame, pl.DataFrame],
) -> None:
    target, _, stored = seen
    told = Fingerprint(identity={"model": "/mnt/weights/v7"})
    plan = replace(PLAN, reported={target.key.instance: told})
    served = replace(target, labels={**target.labels, "model_name": "meta-llama/Llama-3.1-8B"})
    assert server_of(served, plan, stored).model == "meta-llama/Llama-3.1-8B"
    assert server_of(target, plan, stored).model == "/mnt/weights/v7"  # nobody knows either


def test_the_longest_request_is_what_the_server_says_and_no_label_names_a_file(
    seen: tuple[Target, pl.DataFrame, pl.DataFrame],
) -> None:
    target, _, stored = seen
    told = Fingerprint(knobs={"max_model_len": "4096"})
    pool = Pool("default", serving=from_config({"max_model_len": 8192}))
    plan = replace(PLAN, pools=(pool,), reported={target.key.instance: told})
    length = server_of(target, plan, stored).serving.max_model_len
    assert length == Setting(4096.0, "server", "/v1/models")
    silent = server_of(target, replace(plan, reported={}), stored).serving.max_model_len
    assert silent == Setting(8192.0, "config", "max_model_len")
    label = replace(target, labels={**target.labels, "model_name": "/etc/config.json"})
    assert server_of(label, plan, stored).model == "tiny-llama"


def test_what_no_replay_knows_is_named(seen: tuple[Target, pl.DataFrame, pl.DataFrame]) -> None:
    target, _, stored = seen
    assert tokens_a_step(stored) == pytest.approx(1.0, abs=0.01)
    several = stored.with_columns(pl.col("generation_tokens_total") * 2.5)
    (found,) = server_of(target, PLAN, several).unsupported
    assert found.startswith("speculative decoding (2.5")
    told = Fingerprint(
        identity={"pipeline_parallel_size": "2"},
        knobs={"enable_lora": "True", "speculative_config": "given"},
    )
    plan = replace(PLAN, reported={target.key.instance: told})
    assert server_of(target, plan, stored).unsupported == (
        "speculative decoding",
        "LoRA",
        "pipeline parallelism (2 stages)",
    )


def test_targets_and_reference_come_with_the_question(
    seen: tuple[Target, pl.DataFrame, pl.DataFrame],
) -> None:
    target, rows, stored = seen
    at = after(stored, 11)
    row = {**rows.row(-1, named=True), "reference_prompt_tokens_mean": 100.0}
    pools = (Pool("a", slo=Slo(ttft_seconds=1.0)),)
    configured = replace(PLAN, pools=pools)
    question = question_for(Moment(target, at, stored, row), configured)
    assert (question.slo, question.slo_source) == (Slo(ttft_seconds=1.0), "configuration")
    assert question.reference["reference_prompt_tokens_mean"] == 100.0
    said = question_for(
        Moment(target, at, stored), configured, options=Options(slo=Slo(tpot_seconds=0.05))
    )
    assert (said.slo, said.slo_source) == (Slo(tpot_seconds=0.05), "command line")
    assert said.reference == {}
    assert question_for(Moment(target, at, stored), PLAN).slo_source == "unknown"
    assert reference_in({"reference_x": None, "reference_y": 1.0, "z": 2}) == {"reference_y": 1.0}
