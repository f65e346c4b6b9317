"""A release that nothing but the labels of a target tells opens a verification in a recording."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from filled import filled
from verify_cases import verifications_of

from driftwatch.fleet.generate import generate_compact
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.service.configuration import plan_of_rules

UPGRADE = {
    "name": "upgrade",
    "title": "another release after half of it, a quarter slower",
    "duration": "50m",
    "pool": {
        "name": "chat",
        "replicas": 1,
        "dcgm": False,
        "vllm_version": "0.32.0",
        "serving": {"max_num_seqs": 256, "max_num_batched_tokens": 2048},
    },
    "traffic": {"source": "azure_conv", "requests_per_second": 4},
    "truth": {},
    "faults": [{"kind": "rollout", "at": "25m", "factor": 1.25, "vllm_version": "0.33.0"}],
}


@pytest.mark.slow
def test_a_release_that_only_labels_tell_opens_a_verification(tmp_path: Path) -> None:
    scenario = Scenario.model_validate(UPGRADE)
    generate_compact(scenario, 3, tmp_path)
    plan = plan_of_rules(())
    # all of it is one tick unless ticks end where labels change
    (found,) = verifications_of(filled(tmp_path, plan))
    assert found.change.kind == "release"
    assert found.change.what == {"vllm": ("0.32.0", "0.33.0")}
    begun = scenario.start + timedelta(minutes=25)
    assert begun <= found.change.at <= begun + timedelta(minutes=3)
    assert found.verdict in ("FAIL", "INCONCLUSIVE")
    assert min(found.matched_minutes) >= 10
