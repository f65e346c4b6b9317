from __future__ import annotations

import json

import pytest
from truth_judge.whatif import Gain, gain, summary

BLOCK = ("seed 1", 0)
CAPPED = {
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


@pytest.fixture(scope="module")
def capped(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("whatif") / "capped.yaml"
    path.write_text(json.dumps(CAPPED))
    return str(path)


def test_a_larger_cap_helps_where_the_cap_binds(
    capped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIFTWATCH_COMPILE", "0")  # two minutes of one server are over before
    monkeypatch.setattr("truth_judge.whatif.DRAIN_SECONDS", 30.0)
    monkeypatch.setattr("truth_judge.whatif.SEQS", (64,))
    monkeypatch.setattr("truth_judge.whatif.TOKENS", (512,))
    found = gain(capped, 1, BLOCK, (30.0, 90.0), (0,), ("max_num_seqs", 32.0))
    assert found is not None and found.advised is not None
    assert found.today < 0.1
    assert found.advised > 0.95
    assert found.best >= found.advised
    worse = gain(capped, 1, BLOCK, (30.0, 90.0), (0,), ("max_num_seqs", 1.0))
    assert worse is not None and worse.advised is not None
    assert worse.advised <= worse.today == found.today
    refused = gain(capped, 1, BLOCK, (30.0, 90.0), (0,), ("max_num_batched_tokens", 2.0))
    assert refused is not None and refused.refused


def test_what_is_counted_of_gains() -> None:
    gains = [
        Gain(("s", 0), today=0.2, best=0.9, advised=0.9),
        Gain(("s", 1), today=0.2, best=0.5),  # a knob would have helped and none was advised
        Gain(("s", 2), today=0.99, best=0.99, advised=0.90),  # none helps, and it hurt
        Gain(("s", 3), today=0.5, best=0.51, advised=0.0, refused=True),
        Gain(("s", 4), today=0.5, best=0.5),
    ]
    told = summary(gains, seed=1)
    assert (told["episodes"], told["advised"], told["some_knob_helps"]) == (5, 3, 2)
    assert told["gain_captured_ratio"]["value"] == pytest.approx(0.7 / 1.0)
    assert told["hurt_ratio"]["value"] == pytest.approx(2 / 3)
    assert told["none_helps_ratio"]["value"] == pytest.approx(2 / 3)
    assert told["refused"] == 1
