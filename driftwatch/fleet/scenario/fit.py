"""What in a scenario does not fit together: each mistake at the place of the wrong value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from driftwatch.errors import DriftwatchError
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.simulate.hardware import gpu, model

Misfit = tuple[tuple[str | int, ...], str]  # where (keys, and numbers of items), and what

MOST_SERVERS = 10_000
MOST_REQUESTS_PER_SECOND = 1_000  # of one server: six hours of them are in memory at a time


def misfits(scenario: Scenario) -> Iterator[Misfit]:
    """Times, replicas, names and sizes that cannot be."""
    yield from _sizes(scenario)
    yield from _hardware(scenario)
    truth = scenario.truth
    timed: list[tuple[tuple[str, ...], tuple[Any, ...]]] = [
        (("traffic", "changes"), scenario.traffic.changes),
        (("faults",), scenario.faults),
        (("truth", "effects"), truth.effects),
    ]
    for where, parts in timed:
        for number, part in enumerate(parts):
            yield from _time(scenario, (*where, number), part)
            for replica in part.replicas:
                if not 0 <= replica < scenario.servers:
                    last = scenario.servers - 1
                    wrong = f"there is no replica {replica}: they are 0 to {last}"
                    yield (*where, number, "replicas"), wrong
    if truth.baseline is not None:
        yield from _time(scenario, ("truth", "baseline"), truth.baseline)


def _time(scenario: Scenario, where: tuple[str | int, ...], part: Any) -> Iterator[Misfit]:
    duration = scenario.duration
    for name, at in (("at", part.at), ("until", part.until)):
        if at is not None and (at > duration or (name == "at" and at == duration)):
            inside = f"is not inside of the scenario's {duration:g} s"
            yield (*where, name), f"something at {at:g} s {inside}"
    if part.until is not None and part.until <= part.at:
        yield (*where, "until"), "until is not after at"


def _sizes(scenario: Scenario) -> Iterator[Misfit]:
    """What there is no memory or no time for, or too little of."""
    if 2 * scenario.scrape.interval > scenario.duration:
        yield ("scrape", "interval"), f"{scenario.duration:g} s are less than two scrapes"
    if scenario.servers > MOST_SERVERS:
        where: tuple[str | int, ...] = ("pool", "replicas")
        for number, fault in enumerate(scenario.faults):
            if fault.to == scenario.servers:
                where = ("faults", number, "to")
        yield where, f"at most {MOST_SERVERS:,} servers are simulated"
    rate = scenario.traffic.requests_per_second
    if rate is not None and rate / scenario.pool.replicas > MOST_REQUESTS_PER_SECOND:
        most = f"at most {MOST_REQUESTS_PER_SECOND:,} a server are simulated"
        yield ("traffic", "requests_per_second"), most


def _hardware(scenario: Scenario) -> Iterator[Misfit]:
    """GPUs and models that the simulator does not know, and too few KV blocks for one request."""
    pool, serving = scenario.pool, scenario.pool.serving
    named: tuple[tuple[str, str, Callable[[str], object]], ...] = (
        ("gpu", pool.gpu, gpu),
        ("model", pool.model, model),
    )
    for name, value, look_up in named:
        try:
            look_up(value)
        except DriftwatchError as error:
            yield ("pool", name), str(error)
    blocks, length = serving.num_gpu_blocks, serving.max_model_len
    if blocks is not None and blocks * serving.block_size < length:
        room = f"{blocks * serving.block_size:,} tokens, less than max_model_len, {length:,}"
        yield ("pool", "serving", "num_gpu_blocks"), f"room for {room}"
