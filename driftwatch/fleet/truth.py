"""The injected effects, as JSON beside a recording, and the configuration of the pool."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import yaml

from driftwatch.fleet.scenario.model import Effect, Scenario
from driftwatch.fleet.servers import host_of, instance_of, seconds_of, servers_of, uuids_of

TRUTH, CONFIGURATION = "truth.json", "driftwatch.yaml"


def truth_of(scenario: Scenario, seed: int) -> dict[str, Any]:
    """The truth file; times in unix seconds, ``schema_version`` 1."""
    start, end = seconds_of(scenario)
    baseline = scenario.truth.baseline
    return {
        "schema_version": 1,
        "scenario": scenario.name,
        "title": scenario.title,
        "seed": seed,
        "start_seconds": start,
        "end_seconds": end,
        "baseline": None
        if baseline is None
        else {"start_seconds": start + baseline.at, "end_seconds": start + baseline.until},
        "servers": [
            {
                "instance": instance_of(scenario, server.number),
                "host": host_of(scenario, server.number),
                "gpu_uuids": uuids_of(scenario, server.number),
                "listed": [[start + a, min(start + b, end)] for a, b in server.listed],
                "lives": [
                    [start + life.start_seconds, min(start + life.end_seconds, end)]
                    for life in server.lives
                ],
            }
            for server in servers_of(scenario)
        ],
        "effects": [_effect_facts(scenario, effect) for effect in scenario.truth.effects],
    }


def instances_of(scenario: Scenario, effect: Effect) -> list[str]:
    """The servers of an effect."""
    numbers = effect.replicas or range(scenario.servers)
    return [instance_of(scenario, number) for number in numbers]


def window_of(scenario: Scenario, effect: Effect) -> tuple[datetime, datetime]:
    """Start and end of an effect, without its grace."""
    until = scenario.duration if effect.until is None else effect.until
    start = scenario.start.astimezone(UTC)
    return start + timedelta(seconds=effect.at), start + timedelta(seconds=until)


def configuration_of_pool(scenario: Scenario) -> dict[str, Any]:
    """The pool's ``driftwatch.yaml``, as an operator would write it."""
    pool = scenario.pool
    serving = pool.serving
    settings: dict[str, Any] = {
        "name": pool.name,
        "gpus_per_replica": float(pool.gpus_per_replica),
    }
    if pool.declared:
        settings["serving"] = {
            "max_num_seqs": serving.max_num_seqs,
            "max_num_batched_tokens": serving.max_num_batched_tokens,
            "arguments": f"--max-model-len {serving.max_model_len}",
        }
    if pool.dcgm:
        settings["gpu_uuids"] = [
            uuid for n in range(scenario.servers) for uuid in uuids_of(scenario, n)
        ]
    if pool.slo is not None:
        settings["slo"] = pool.slo.model_dump(exclude_none=True)
    pages = [f"http://{instance_of(scenario, n)}/metrics" for n in range(scenario.servers)]
    return {"sources": [{"pages": pages}], "pools": [settings]}


def write_truth(scenario: Scenario, seed: int, folder: Path) -> None:
    """``truth.json`` and ``driftwatch.yaml`` into the folder of a recording."""
    (folder / TRUTH).write_bytes(
        orjson.dumps(truth_of(scenario, seed), option=orjson.OPT_INDENT_2) + b"\n"
    )
    settings = yaml.safe_dump(configuration_of_pool(scenario), sort_keys=False, width=100)
    (folder / CONFIGURATION).write_text(settings, encoding="utf-8")


def _effect_facts(scenario: Scenario, effect: Effect) -> Mapping[str, Any]:
    first, last = window_of(scenario, effect)
    names = {"what", "kind", "size", "leaf", "knob", "pages", "tickets", "notices"}
    return {
        **effect.model_dump(mode="json", include=names),
        "start_seconds": first.timestamp(),
        "end_seconds": last.timestamp(),
        "grace_seconds": effect.grace,
        "instances": instances_of(scenario, effect),
    }
