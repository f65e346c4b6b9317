"""A healthy server once more without jitter, wander and stalls: what its regression misses alone.

The sd of ln r (:mod:`truth_judge.healthy`) holds two things: how much the engine wanders, and how
badly a regression of the judge's describes the engine. The same server under the same seed gets the
same requests and is scraped at the same times, so what is left without disturbance is the misfit.

    python -m truth_judge.undisturbed JOB.json

does so for the servers of a file, in a process of its own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import polars as pl

from driftwatch.fleet.scenario.file import scenario_named
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.server_run import ServerRun
from driftwatch.fleet.traffic import PoolTraffic
from truth_judge.healthy import wander

OFF = {"jitter_sigma": 0.0, "wander_sd_ratio": 0.0, "stalls_per_day": 0.0}
SERVER_DAYS = 7.0  # of a stretch that are made again; at least one server
_DAY_SECONDS = 86_400.0


def servers_again(servers: int, seconds: float) -> tuple[int, ...]:
    """Which servers of a stretch are made again: its first ones."""
    return tuple(range(min(servers, max(1, int(SERVER_DAYS * _DAY_SECONDS // seconds)))))


def without_disturbance(scenario: Scenario) -> Scenario:
    """The scenario with an engine that keeps to its step-time model."""
    return scenario.model_copy(update={"engine": scenario.engine.model_copy(update=OFF)})


def scrapes_of(scenario: Scenario, seed: int, number: int) -> pl.DataFrame:
    """One server's scrapes."""
    run = ServerRun(scenario, seed, number, PoolTraffic.of(scenario, seed), pages=False)
    return pl.concat(chunk.scrapes for chunk in run.chunks())


def main(job: Path) -> None:
    """Scenario, seed and numbers of a file → server → sd of ln r without disturbance, as JSON."""
    asked = json.loads(job.read_text())
    scenario = without_disturbance(scenario_named(asked["scenario"]))
    found = {
        one.instance: one.sd
        for number in asked["numbers"]
        for one in wander(scrapes_of(scenario, asked["seed"], number))
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
