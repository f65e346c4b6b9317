"""Exported rules fire in the minutes in which driftwatch's fire: proved with a real Prometheus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from export_cases import Watched, promtool_test, rules_file, watched_scenario
from fakes import prometheus_server

pytestmark = [
    pytest.mark.prometheus,
    pytest.mark.skipif(not prometheus_server.installed(), reason=prometheus_server.NOT_INSTALLED),
]

# Each ends before the scenario does, so that alerts resolve; in stretches nobody scrapes.
SCENARIOS: dict[str, dict[str, Any]] = {
    "longer-prompts": {
        "duration": "170m",
        "scrape": {"gaps_per_day": 20, "missed_ratio": 0.01},
        "pool": {
            "name": "rag-8b",
            "replicas": 2,
            "serving": {"max_num_seqs": 256, "max_num_batched_tokens": 512, "max_model_len": 65536},
            "slo": {"ttft_seconds": 1.0, "tpot_seconds": 0.05},
        },
        "traffic": {
            "requests_per_second": 12,
            "timeout": "60s",
            "changes": [
                {"at": "80m", "prompt_factor": 4.0},
                {"at": "105m", "prompt_factor": 1.0},
                {"at": "135m", "prompt_factor": 4.0},
                {"at": "139m", "prompt_factor": 1.0},
            ],
        },
        "truth": {"baseline": {"at": "10m", "until": "75m"}},
    },
    "deferred": {
        "duration": "110m",
        "pool": {
            "name": "lora-8b",
            "replicas": 1,
            "serving": {
                "max_num_seqs": 256,
                "max_model_len": 4096,
                "num_gpu_blocks": 1150,
                "max_loras": 3,
                "max_num_queued_reqs": 230,
            },
            "slo": {"ttft_seconds": 1.0, "tpot_seconds": 0.05},
        },
        "traffic": {
            "requests_per_second": 1.5,
            "adapters": 3,
            "cancelled_ratio": 0.0,
            "changes": [
                {"at": "70m", "adapters": 5000, "rate_factor": 4.0},
                {"at": "80m", "adapters": 3, "rate_factor": 1.0},
            ],
        },
        "truth": {"baseline": {"at": "10m", "until": "65m"}},
    },
    # one server leaves while the others carry on, then half of them at once
    "gone": {
        "duration": "150m",
        "pool": {"name": "chat-8b", "replicas": 5, "slo": {"ttft_seconds": 1.0}},
        "traffic": {"requests_per_second": 15},
        "faults": [
            {"kind": "gone", "at": "60m", "replicas": [0]},
            {"kind": "gone", "at": "95m", "replicas": [1, 2]},
        ],
        "truth": {"baseline": {"at": "10m", "until": "55m"}},
    },
    "slow-and-stuck": {
        "duration": "4h",
        "pool": {
            "name": "chat-8b",
            "replicas": 3,
            "slo": {"ttft_seconds": 2.0, "tpot_seconds": 0.1},
        },
        "traffic": {"requests_per_second": 20, "wander_ratio": 0.2},
        "faults": [
            # until 185 min the end is false, unknown, false: Prometheus counts anew, driftwatch
            # pauses (docs/sre/rules.md), and the alert ends a minute after the incident
            {"kind": "slowdown", "at": "150m", "until": "180m", "factor": 1.4286},
            {"kind": "wedge", "at": "215m", "replicas": [1]},
        ],
        "truth": {"baseline": {"at": "10m", "until": "145m"}},
    },
}


@pytest.fixture(scope="module", params=list(SCENARIOS))
def one(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    scenario = {"name": request.param, "title": "for a test", **SCENARIOS[request.param]}
    return watched_scenario(scenario, tmp_path_factory.mktemp(request.param))


FIRE = {
    "longer-prompts": {"BatchDrift", "BatchLimitBinding"},
    "deferred": {"DeferredAdmission"},
    "gone": {"CoverageLost"},
    "slow-and-stuck": {"SlowerAtEqualLoad", "EngineStuck"},
}


def test_the_scenario_makes_the_rules_fire_and_end(
    one: Watched, request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.params["one"]
    alerts = {dict(labels)["alertname"] for minute in one.firing.values() for labels in minute}
    assert alerts >= FIRE[name]


def test_alerts_fire_in_the_minutes_of_the_incidents(one: Watched, tmp_path: Path) -> None:
    rules = rules_file(one.exported, tmp_path)
    difference = promtool_test(one, rules, tmp_path)
    assert difference == ""
