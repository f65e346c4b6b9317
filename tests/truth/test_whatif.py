from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from truth_judge.whatif import PAGES, RECOMMEND, Runs, gain, ladder

from driftwatch.fleet.generate import CHUNK_SECONDS
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.traffic import PoolTraffic

BLOCK = ("seed 1", 0)
CAPPED: dict[str, Any] = {
    "name": "capped",
    "title": "a sequence cap far too small",
    "duration": "2m",
    "pool": {
        "replicas": 1,
        "serving": {"max_num_seqs": 3, "max_num_batched_tokens": 2048},
        "slo": {"ttft_seconds": 1.0, "tpot_seconds": 0.05},
    },
    "traffic": {"requests_per_second": 3.0},
    "truth": {},
}


SLO = {"ttft_seconds": 1.0, "tpot_seconds": 0.05}


def in_target(
    window: tuple[float, float] = (60.0, 90.0),
    *faults: dict[str, Any],
    slo: dict[str, float] = SLO,
    **traffic: Any,
) -> float:
    """Share of an uncapped server's requests in target, by the what-if."""
    scenario = Scenario.model_validate(
        CAPPED
        | {
            "pool": {"replicas": 1, "slo": slo},
            "traffic": {"requests_per_second": 3.0, "cancelled_ratio": 0.0, **traffic},
            "faults": list(faults),
        }
    )
    share = Runs(scenario, 1, window, (0,)).share({})
    assert share is not None
    return share


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("truth_judge.whatif.WARM_SECONDS", 10.0)
    monkeypatch.setattr("truth_judge.whatif.DRAIN_SECONDS", 30.0)


@pytest.fixture(scope="module")
def capped(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("whatif") / "capped.yaml"
    path.write_text(json.dumps(CAPPED))
    return str(path)


def test_a_larger_cap_helps_where_the_cap_binds(
    capped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("truth_judge.whatif.DRAIN_SECONDS", 30.0)
    monkeypatch.setattr("truth_judge.whatif.SEQS", (64,))
    monkeypatch.setattr("truth_judge.whatif.TOKENS", (512,))
    changes = {
        PAGES: ("max_num_seqs", 32.0),
        RECOMMEND: ("max_num_batched_tokens", 2.0),
    }
    found = gain(capped, 1, BLOCK, (30.0, 90.0), (0,), changes)
    assert found is not None
    assert found.today < 0.1
    assert found.best >= found.advised[PAGES] > 0.95
    assert found.refused == (RECOMMEND,)  # vLLM would not start with it
    assert found.changes[PAGES] == "max_num_seqs 32"


@pytest.mark.usefixtures("short")
def test_a_request_is_in_target_if_it_ended_well_and_met_both() -> None:
    assert in_target() == 1.0
    assert in_target(slo={"ttft_seconds": 1.0, "tpot_seconds": 0.002}) == 0.0
    assert in_target(slo={"ttft_seconds": 0.001, "tpot_seconds": 0.05}) == 0.0
    assert in_target(slo={"ttft_seconds": 1.0}) == 1.0
    # clients that give up in the midst of an answer that came at full speed
    assert in_target(timeout="1s") < 0.6


def test_the_hour_has_the_recordings_requests_beyond_a_chunks_edge() -> None:
    scenario = Scenario.model_validate(
        CAPPED | {"duration": "8h", "traffic": {"requests_per_second": 0.5}}
    )
    start = CHUNK_SECONDS - 600.0
    sent = Runs(scenario, 1, (start, start + 7200.0), (0,)).sent(0)
    traffic = PoolTraffic.of(scenario, 1)
    chunks = [
        traffic.requests(0, 0.0, CHUNK_SECONDS),
        traffic.requests(0, CHUNK_SECONDS, scenario.duration),
    ]
    for name in ("arrival_seconds", "prompt_tokens", "cached_tokens"):
        whole = np.concatenate([getattr(chunk, name) for chunk in chunks])
        at = np.concatenate([chunk.arrival_seconds for chunk in chunks])
        inside = (at >= start - 1800.0) & (at < start + 3600.0)
        assert np.array_equal(getattr(sent, name), whole[inside])
    assert sent.arrival_seconds.min() < start - 1700.0
    assert sent.arrival_seconds.max() > CHUNK_SECONDS + 2900.0


def test_the_ladder_moves_either_limit_and_only_to_what_vllm_takes() -> None:
    scenario = Scenario.model_validate(CAPPED)
    steps = list(ladder(scenario))
    assert {"max_num_seqs": 256} in steps and {"max_num_batched_tokens": 8192} in steps
    assert {"max_num_batched_tokens": 2048} not in steps  # it is that
    assert all(len(step) == 1 for step in steps)
    pool = CAPPED["pool"] | {"serving": {"max_num_seqs": 1024, "max_num_batched_tokens": 1024}}
    tight = list(ladder(Scenario.model_validate(CAPPED | {"pool": pool})))
    assert {"max_num_batched_tokens": 512} not in tight
    assert {"max_num_batched_tokens": 2048} in tight and {"max_num_seqs": 512} in tight
    # a prompt cut into parts is no other schedule where the budget cuts it already
    assert {"long_prefill_token_threshold": 1024} in steps
    assert {"long_prefill_token_threshold": 2048} not in steps
    assert {"long_prefill_token_threshold": 1024} not in tight
