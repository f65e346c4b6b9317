"""Where the engine is the answer: by how much it is slower, and what to do."""

from __future__ import annotations

import pytest

from driftwatch.diagnose.not_a_knob import no_knob_because

SLOWER = {"speed_at_equal_load_ratio": 0.77, "speed_against_pool_ratio": 0.81}


@pytest.mark.parametrize(
    ("leaf", "evidence", "said"),
    [
        ("scheduler_regression", SLOWER, "is measured: 23 %; look for what changed there, or"),
        ("scheduler_regression", {}, "without a cause that is measured; look for what changed"),
        ("replica_slow", SLOWER, "slower at equal load than its peers: 19 %; look for"),
        ("gpu_throttled", SLOWER, "with the GPU clock down: 23 %"),
        ("deferred_admission", SLOWER, "by LoRA slots, KV transfer or grammar"),
    ],
)
def test_a_slow_engine_is_told_with_its_number(
    leaf: str, evidence: dict[str, float], said: str
) -> None:
    why = no_knob_because(evidence, leaf)
    assert why is not None
    assert said in why
    if said.endswith("%") or leaf == "deferred_admission":
        assert why.endswith(said)


def test_deferred_requests_of_a_decode_only_engine_are_no_cause() -> None:
    """Each waits for its KV cache first (docs/sre/engines.md); its leaf still says what it says."""
    waits = {"waiting_deferred_share_10m_ratio": 0.9, "binding_limit": "deferred"}
    assert no_knob_because(waits, None) is not None
    decode = {**waits, "engine_kind": "decode_only"}
    assert no_knob_because(decode, None) is None
    assert no_knob_because(decode, "deferred_admission") is not None
    assert no_knob_because({**decode, "slower_at_equal_load": True}, None) is not None
