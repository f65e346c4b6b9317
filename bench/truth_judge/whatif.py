"""What the advised change would have done: the same traffic and hidden law, with another knob.

For an episode the servers it concerns are run again through the fleet's hidden engine, once as they
were, once with the advised setting and once with each setting of a ladder of one knob at a time.
They get the requests, the stalls and the restarts that the recording has, from half an hour before
the episode on. What counts is the share of the requests that arrive in the episode (its first hour)
and meet both latency targets; those that a client cancelled count in neither, those that were
rejected, timed out or lost with their process as missed.

    python -m truth_judge.whatif JOB.json

does so for the episodes of a file, in a process of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from driftwatch.errors import ImpossibleConfiguration
from driftwatch.simulate.disturbance import Disturbance
from driftwatch.simulate.engine import simulate
from driftwatch.simulate.requests import Requests
from driftwatch.testing.fleet.hidden_engine import disturbance_of, law_of
from driftwatch.testing.fleet.scenario import Scenario
from driftwatch.testing.fleet.scenario_file import scenario_named
from driftwatch.testing.fleet.server_run import CHUNK_SECONDS, configuration_of
from driftwatch.testing.fleet.timeline import Life
from driftwatch.testing.fleet.traffic import PoolTraffic
from truth_judge.bootstrap import ratio
from truth_judge.facts import Block

SEQS = (16, 32, 64, 128, 256, 512, 1024)
TOKENS = (512, 1024, 2048, 4096, 8192, 16384)
HELPS, HURTS = 0.03, 0.01  # points of the share in target: below, nothing was gained or lost
WARM_SECONDS = 1800.0
AT_MOST_SECONDS = 3600.0  # of an episode
DRAIN_SECONDS = 600.0
SERVERS = 2  # of an episode; they are configured alike

Knobs = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Gain:
    """One episode, with and without the change.

    Attributes:
        block: the bootstrap's.
        today: share of requests in target with the settings as they were.
        best: the best share that a ladder of one knob at a time finds, today's included.
        advised: share with the advised setting; None = no change was advised.
        refused: vLLM would not start with the advised setting.
    """

    block: Block
    today: float
    best: float
    advised: float | None = None
    refused: bool = False


def gain(
    scenario: str,
    seed: int,
    block: Block,
    window: tuple[float, float],
    numbers: tuple[int, ...],
    change: tuple[str, float] | None,
) -> Gain | None:
    """Replay an episode with other settings.

    Args:
        scenario: name of a shipped one, or a file.
        seed: of the recording.
        block: the bootstrap's.
        window: from, to in seconds since the scenario's start.
        numbers: servers it concerns.
        change: advised knob and value.

    Returns:
        None where the pool has no targets, or where no request could be judged.
    """
    made = scenario_named(scenario)
    if made.pool.slo is None or window[0] >= made.duration:
        return None
    runs = Runs(made, seed, window, numbers[:SERVERS])
    today = runs.share({})
    if today is None:
        return None
    shares = [today, *(s for knobs in ladder(made) if (s := runs.share(knobs)) is not None)]
    if change is None:
        return Gain(block, today, max(shares))
    try:
        advised = runs.share({change[0]: round(change[1])})
    except ImpossibleConfiguration:
        return Gain(block, today, max(shares), 0.0, refused=True)
    return Gain(block, today, max([*shares, advised or 0.0]), advised)


def ladder(scenario: Scenario) -> Iterator[Knobs]:
    """One knob at a time, what vLLM takes (max_num_batched_tokens not below max_num_seqs)."""
    serving = scenario.pool.serving
    for seqs in SEQS:
        if seqs != serving.max_num_seqs and seqs <= serving.max_num_batched_tokens:
            yield {"max_num_seqs": seqs}
    for tokens in TOKENS:
        if tokens != serving.max_num_batched_tokens and tokens >= serving.max_num_seqs:
            yield {"max_num_batched_tokens": tokens}


class Runs:
    """The servers of an episode, again and again with other settings.

    Args:
        scenario: what the recording is of.
        seed: of the recording.
        window: from, to of the episode in seconds since the scenario's start.
        numbers: the servers.
    """

    def __init__(
        self, scenario: Scenario, seed: int, window: tuple[float, float], numbers: tuple[int, ...]
    ) -> None:
        self._scenario, self._numbers = scenario, numbers
        self._start = window[0]
        self._end = min(window[1], window[0] + AT_MOST_SECONDS)
        self._traffic = PoolTraffic.of(scenario, seed)
        self._disturbances = {n: disturbance_of(scenario, seed, n) for n in numbers}
        self._requests = {n: self.sent(n) for n in numbers}

    def sent(self, number: int) -> Requests:
        """What the recording's server was sent in warm-up and episode: drawn chunk by chunk."""
        since = max(self._start - WARM_SECONDS, 0.0)
        first, drawn = since // CHUNK_SECONDS * CHUNK_SECONDS, []
        while first < min(self._end, self._scenario.duration):
            last = min(first + CHUNK_SECONDS, self._scenario.duration)
            drawn.append(self._traffic.requests(number, first, last))
            first = last
        whole = Requests(
            **{
                field.name: np.concatenate([getattr(part, field.name) for part in drawn])
                for field in fields(Requests)
            }
        )
        at = whole.arrival_seconds
        return whole.take((at >= since) & (at < self._end))

    def share(self, knobs: Knobs) -> float | None:
        """Share of the requests in target, over the servers; None where there is none to judge.

        Raises:
            ImpossibleConfiguration: vLLM would not start.
        """
        met = total = 0
        for number in self._numbers:
            for life in self._lives(number):
                inside, good = self._judged(self._ended(number, life, knobs))
                met, total = met + good, total + inside
        return met / total if total else None

    def _lives(self, number: int) -> list[Life]:
        """The processes that serve in the warm-up or the episode."""
        return [
            life
            for life in self._traffic.servers[number].lives
            if life.start_seconds < self._end and life.end_seconds > self._start - WARM_SECONDS
        ]

    def _ended(self, number: int, life: Life, knobs: Knobs) -> pl.DataFrame:
        """What became of the requests of one process, at the speed that it has."""
        changed = replace(life, serving=life.serving.model_copy(update=dict(knobs)))
        configuration = configuration_of(self._scenario, changed)
        configuration.check()
        requests = self._requests[number]
        at = requests.arrival_seconds
        return simulate(
            requests.take((at >= life.start_seconds) & (at < life.end_seconds)),
            configuration,
            law_of(self._scenario.engine, self._scenario.pool, life.factor),
            timeout_seconds=self._scenario.traffic.timeout,
            disturbance=from_then_on(
                self._disturbances[number],
                max(self._start - WARM_SECONDS, life.start_seconds),
                life.start_seconds,
            ),
            seed=number,
            until_seconds=min(self._end + DRAIN_SECONDS, life.end_seconds),
        ).requests

    def _judged(self, requests: pl.DataFrame) -> tuple[int, int]:
        """Requests that count, and those of them in target."""
        slo = self._scenario.pool.slo
        assert slo is not None
        column = {name: requests[name].to_numpy() for name in ("arrival_seconds", "status")}
        arrival, status = column["arrival_seconds"], column["status"]
        inside = (arrival >= self._start) & (arrival < self._end) & (status != "cancelled")
        ttft = requests["ttft_seconds"].to_numpy()
        after = np.maximum(requests["generated_tokens"].to_numpy() - 1, 1)
        tpot = (requests["e2e_seconds"].to_numpy() - ttft) / after
        good = inside & (status == "finished")
        good &= ttft <= (np.inf if slo.ttft_seconds is None else slo.ttft_seconds)
        good &= tpot <= (np.inf if slo.tpot_seconds is None else slo.tpot_seconds)
        return int(inside.sum()), int(good.sum())


def from_then_on(disturbance: Disturbance, begin: float, started: float) -> Disturbance:
    """A disturbance without the stalls that are over.

    Args:
        disturbance: over the whole scenario.
        begin: from when on it is wanted; a stall that is under way then has its rest left.
        started: when the process started; it knows nothing of stalls before.
    """
    at, lasting = disturbance.stall_seconds, disturbance.stall_durations_seconds
    left = np.where(at < begin, at + lasting - begin, lasting)
    still = (at >= started) & (left > 0)
    return replace(
        disturbance,
        stall_seconds=np.maximum(at, begin)[still],
        stall_durations_seconds=left[still],
    )


def gain_of(said: Mapping[str, Any]) -> Gain:
    """A gain as it was printed."""
    block = said["block"]
    return Gain(**{**said, "block": (block[0], block[1])})


def summary(gains: list[Gain], *, seed: int) -> dict[str, Any]:
    """Gain captured, share that hurt, knob advised where none helps."""
    helped = [g for g in gains if g.best - g.today >= HELPS]
    told = [g for g in gains if g.advised is not None]
    none_helps = [g for g in gains if g.best - g.today < HELPS]

    def over(which: list[Gain], of: Any, by: Any, *, share: bool = True) -> dict[str, Any]:
        counts: dict[Block, float] = {}
        held: dict[Block, float] = {}
        for one in which:
            counts[one.block] = counts.get(one.block, 0.0) + float(of(one))
            held[one.block] = held.get(one.block, 0.0) + float(by(one))
        return ratio(counts, held, seed=seed, share=share, signed=not share).as_json()

    def lost(one: Gain) -> bool:
        return one.refused or (one.advised or 0.0) < one.today - HURTS

    return {
        "episodes": len(gains),
        "advised": len(told),
        "refused": sum(g.refused for g in told),
        "some_knob_helps": len(helped),
        "gain_captured_ratio": over(
            helped,
            lambda g: 0.0 if g.advised is None else g.advised - g.today,
            lambda g: g.best - g.today,
            share=False,
        ),
        "hurt_ratio": over(told, lost, lambda _: 1.0),
        "none_helps_ratio": over(none_helps, lambda g: g.advised is not None, lambda _: 1.0),
    }


def main(job: Path) -> None:
    """A file of episodes → their gains, printed as JSON, in the same order."""
    asked = json.loads(job.read_text())
    found = [
        gain(
            asked["scenario"],
            asked["seed"],
            (one["block"][0], one["block"][1]),
            (one["window"][0], one["window"][1]),
            tuple(one["numbers"]),
            one["change"] and (one["change"][0], one["change"][1]),
        )
        for one in asked["episodes"]
    ]
    print(json.dumps([one and asdict(one) for one in found]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
