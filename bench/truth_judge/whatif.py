"""What the advised change would have done: the same traffic and hidden engine, with another knob.

For an episode the servers it concerns are run again through the fleet's hidden engine, once as they
were, once with each advised setting and once with each setting of a ladder of one knob at a time.
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
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from driftwatch.errors import ImpossibleConfiguration
from driftwatch.fleet.generate import CHUNK_SECONDS
from driftwatch.fleet.hidden_engine import configuration_of, disturbance_of, step_time_of
from driftwatch.fleet.scenario.file import scenario_named
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.servers import Life
from driftwatch.fleet.traffic import PoolTraffic
from driftwatch.simulate.engine import Disturbance
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.trial import simulate
from truth_judge.bootstrap import ratio
from truth_judge.facts import Block

SEQS = (16, 32, 64, 128, 256, 512, 1024)
TOKENS = (512, 1024, 2048, 4096, 8192, 16384)
PREFILLS = (256, 512, 1024, 2048)  # tokens of one prompt in a step: others go beside it
HELPS, HURTS = 0.03, 0.02  # points of the share in target: below, nothing was gained or lost
WARM_SECONDS = 1800.0
AT_MOST_SECONDS = 3600.0  # of an episode
DRAIN_SECONDS = 600.0
SERVERS = 2  # of an episode; they are configured alike

Knobs = Mapping[str, int]


# Who advises: the episode's first page or ticket, ``driftwatch recommend`` after its first hour
PAGES, RECOMMEND = "pages", "driftwatch recommend"
ADVISERS = (PAGES, RECOMMEND)

Change = tuple[str, float]

# Where the truth is a fault of engine, cache or router the right advice is no knob, even where one
# would hide some of it: such episodes have a row of their own in what is captured.
ELSEWHERE = frozenset(
    {
        "engine_stuck",
        "version_change",
        "gpu_throttled",
        "spec_decode_acceptance_fell",
        "prefix_cache_collapse",
        "replica_slow",
        "scheduler_regression",
        "deferred_admission",
        "replica_imbalance",
    }
)


@dataclass(frozen=True, slots=True)
class Gain:
    """One episode, with and without the changes.

    Attributes:
        block: the bootstrap's.
        today: share of requests in target with the settings as they were.
        best: the best share that a ladder of one knob at a time finds, today's and the advised ones
            included.
        advised: adviser → share with what it advises; one that advises no change is not in it.
        refused: advisers with whose settings vLLM would not start.
        changes: adviser → the change in words.
        answer: what ``driftwatch recommend`` answered (change, none, no_action, insufficient);
            None = it was not asked, or failed.
        asked_of: kind of the episode.
        leaf: its true leaf; None = the truth names none.
    """

    block: Block
    today: float
    best: float
    advised: Mapping[str, float] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    changes: Mapping[str, str] = field(default_factory=dict)
    answer: str | None = None
    asked_of: str = ""
    leaf: str | None = None


def gain(
    scenario: str,
    seed: int,
    block: Block,
    window: tuple[float, float],
    numbers: tuple[int, ...],
    changes: Mapping[str, Change],
) -> Gain | None:
    """Replay an episode with other settings.

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
    known = {}
    for knobs in ladder(made):
        # a larger budget may leave fewer KV blocks than the longest request needs
        with suppress(ImpossibleConfiguration):
            known[tuple(knobs.items())] = runs.share(knobs)
    advised: dict[str, float] = {}
    refused = []
    for adviser, (knob, value) in changes.items():
        key = ((knob, round(value)),)
        try:
            if key not in known:
                known[key] = runs.share(dict(key))
        except ImpossibleConfiguration:
            refused.append(adviser)
        advised[adviser] = known.get(key) or 0.0
    shares = [today, *(share for share in known.values() if share is not None)]
    words = {adviser: f"{knob} {value:g}" for adviser, (knob, value) in changes.items()}
    return Gain(block, today, max(shares), advised, tuple(refused), words)


def ladder(scenario: Scenario) -> Iterator[Knobs]:
    """One knob at a time, what vLLM takes (max_num_batched_tokens not below max_num_seqs)."""
    serving = scenario.pool.serving
    for seqs in SEQS:
        if seqs != serving.max_num_seqs and seqs <= serving.max_num_batched_tokens:
            yield {"max_num_seqs": seqs}
    for tokens in TOKENS:
        if tokens != serving.max_num_batched_tokens and tokens >= serving.max_num_seqs:
            yield {"max_num_batched_tokens": tokens}
    for tokens in PREFILLS:
        least = min(serving.max_num_batched_tokens, serving.max_model_len)
        if tokens < least and tokens != serving.long_prefill_token_threshold:
            yield {"long_prefill_token_threshold": tokens}


class Runs:
    """The servers of an episode, again and again with other settings."""

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
                one.name: np.concatenate([getattr(part, one.name) for part in drawn])
                for one in fields(Requests)
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
        configuration = configuration_of(self._scenario, changed.serving)
        configuration.check()
        requests = self._requests[number]
        at = requests.arrival_seconds
        return simulate(
            requests.take((at >= life.start_seconds) & (at < life.end_seconds)),
            configuration,
            step_time_of(self._scenario.engine, self._scenario.pool, life.factor),
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
    """A disturbance without the stalls that are over."""
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
    block = (said["block"][0], said["block"][1])
    return Gain(**{**said, "block": block, "refused": tuple(said["refused"])})


def summary(gains: list[Gain], *, seed: int) -> dict[str, Any]:
    """Per adviser: gain captured, share that hurt, knob advised where none helps."""
    helped = [g for g in gains if g.best - g.today >= HELPS]
    none_helps = [g for g in gains if g.best - g.today < HELPS]
    return {
        "episodes": len(gains),
        "some_knob_helps": len(helped),
        "answers": dict(sorted(Counter(g.answer for g in gains if g.answer).items())),
        "advisers": {
            adviser: _of_adviser(adviser, gains, helped, none_helps, seed) for adviser in ADVISERS
        },
    }


def _of_adviser(
    adviser: str, gains: list[Gain], helped: list[Gain], none_helps: list[Gain], seed: int
) -> dict[str, Any]:
    told = [g for g in gains if adviser in g.advised]

    def over(which: list[Gain], of: Any, by: Any, *, share: bool = True) -> dict[str, Any]:
        counts: dict[Block, float] = {}
        held: dict[Block, float] = {}
        for one in which:
            counts[one.block] = counts.get(one.block, 0.0) + float(of(one))
            held[one.block] = held.get(one.block, 0.0) + float(by(one))
        return ratio(counts, held, seed=seed, share=share, signed=not share).as_json()

    def gained(one: Gain) -> float:
        return one.advised.get(adviser, one.today) - one.today

    def lost(one: Gain) -> bool:
        return adviser in one.refused or gained(one) < -HURTS

    return {
        "advised": len(told),
        "refused": sum(adviser in g.refused for g in told),
        "hurt": sum(lost(g) for g in told),
        "gain_captured_ratio": over(
            [g for g in helped if g.leaf not in ELSEWHERE],
            gained,
            lambda g: g.best - g.today,
            share=False,
        ),
        "gain_captured_faults_too_ratio": over(
            helped, gained, lambda g: g.best - g.today, share=False
        ),
        "hurt_ratio": over(told, lost, lambda _: 1.0),
        "none_helps_ratio": over(none_helps, lambda g: adviser in g.advised, lambda _: 1.0),
        "no_help_of_advised_ratio": over(told, lambda g: g.best - g.today < HELPS, lambda _: 1.0),
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
            {adviser: (change[0], change[1]) for adviser, change in one["changes"].items()},
        )
        for one in asked["episodes"]
    ]
    print(json.dumps([one and asdict(one) for one in found]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
