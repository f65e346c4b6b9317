"""What in a scenario does not fit together: each mistake at the place of the value that is wrong.

Works on a file's plain keys and values, so that what else is wrong in the file hides nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from driftwatch.durations import parse_duration
from driftwatch.errors import DriftwatchError
from driftwatch.simulate.hardware import gpu, model

Location = tuple[str | int, ...]  # keys, and numbers of items
Misfit = tuple[Location, str]  # where, and what

MOST_SERVERS = 10_000
MOST_REQUESTS_PER_SECOND = 1_000  # of one server: six hours of them are in memory at a time

_SEVERITIES = ("pages", "tickets", "notices")


def misfits(document: Mapping[str, Any]) -> Iterator[Misfit]:
    """Times outside of the scenario or in the wrong order, and replicas that are not there.

    Args:
        document: a scenario as its file has it (times as text), or as the model dumps it (seconds).
            What is of the wrong kind is passed over: that is told elsewhere.
    """
    duration = _seconds(document.get("duration"))
    servers = _servers(document)
    yield from _sizes(document, duration, servers)
    yield from _hardware(_mapping(document.get("pool")))
    yield from _layouts(document)
    truth = _mapping(document.get("truth"))
    timed: list[tuple[Location, list[Mapping[str, Any]]]] = [
        (("traffic", "changes"), _items(_mapping(document.get("traffic")).get("changes"))),
        (("faults",), _items(document.get("faults"))),
        (("truth", "effects"), _items(truth.get("effects"))),
    ]
    parts: list[tuple[Location, Mapping[str, Any]]] = [
        ((*where, n), part) for where, of_it in timed for n, part in enumerate(of_it)
    ]
    if isinstance(truth.get("baseline"), Mapping):
        parts.append((("truth", "baseline"), truth["baseline"]))
    for where, part in parts:
        at, until = _seconds(part.get("at", 0)), _seconds(part.get("until"))
        for name, time in (("at", at), ("until", until)):
            if time is None or duration is None:
                continue
            if time > duration or (name == "at" and time == duration):
                inside = f"is not inside of the scenario's {duration:g} s"
                yield (*where, name), f"something at {time:g} s {inside}"
        if at is not None and until is not None and until <= at:
            yield (*where, "until"), "until is not after at"
        replicas = part.get("replicas")
        if servers is None or not isinstance(replicas, list | tuple):
            continue
        for number in replicas:
            if isinstance(number, int) and not 0 <= number < servers:
                wrong = f"there is no replica {number}: they are 0 to {servers - 1}"
                yield (*where, "replicas"), wrong


def _sizes(
    document: Mapping[str, Any], duration: float | None, servers: int | None
) -> Iterator[Misfit]:
    """What there is no memory or no time for, or too little of."""
    interval = _seconds(_mapping(document.get("scrape")).get("interval"))
    if interval is not None and duration is not None and 2 * interval > duration:
        yield ("scrape", "interval"), f"{duration:g} s are less than two scrapes"
    if servers is None:
        return
    if servers > MOST_SERVERS:
        where: Location = ("pool", "replicas")
        for number, fault in enumerate(_items(document.get("faults"))):
            if fault.get("to") == servers:
                where = ("faults", number, "to")
        yield where, f"at most {MOST_SERVERS:,} servers are simulated"
    rate = _mapping(document.get("traffic")).get("requests_per_second")
    replicas = _mapping(document.get("pool")).get("replicas", 2)
    if not isinstance(rate, int | float) or not isinstance(replicas, int) or replicas < 1:
        return
    if rate / replicas > MOST_REQUESTS_PER_SECOND:
        most = f"at most {MOST_REQUESTS_PER_SECOND:,} a server are simulated"
        yield ("traffic", "requests_per_second"), most


def _layouts(document: Mapping[str, Any]) -> Iterator[Misfit]:
    """Histograms of another layout on a release that has no such setting."""
    faults = _items(document.get("faults"))
    releases = [_mapping(document.get("pool")).get("release"), *(f.get("release") for f in faults)]
    for number, fault in enumerate(faults):
        if fault.get("kind") == "bucket_layout" and "0.8" in releases:
            yield ("faults", number, "kind"), "vLLM 0.8 has no --custom-histogram-buckets"


def _hardware(pool: Mapping[str, Any]) -> Iterator[Misfit]:
    """GPUs and models that the simulator does not know, and too few KV blocks for one request."""
    for name, look_up in (("gpu", gpu), ("model", model)):
        if isinstance(pool.get(name), str):
            try:
                look_up(pool[name])
            except DriftwatchError as error:
                yield ("pool", name), str(error)
    serving = _mapping(pool.get("serving"))
    blocks = serving.get("num_gpu_blocks")
    size, length = serving.get("block_size", 16), serving.get("max_model_len", 8192)
    if not (isinstance(blocks, int) and isinstance(size, int) and isinstance(length, int)):
        return
    if blocks * size < length:
        room = f"{blocks * size:,} tokens, less than max_model_len, {length:,}"
        yield ("pool", "serving", "num_gpu_blocks"), f"room for {room}"


def unknown_names(
    document: Mapping[str, Any],
    leaves: Collection[str],
    rules: Collection[str],
    knobs: Collection[str],
) -> Iterator[Misfit]:
    """Leaves, rules and settings of the truth that there are not.

    A rule may be one of a later release: one that is like no rule of this one is passed over.

    Args:
        document: a scenario as its file has it.
        knobs: settings that advice can be about.
    """
    for number, effect in enumerate(_items(_mapping(document.get("truth")).get("effects"))):
        where: Location = ("truth", "effects", number)
        for name, valid in (("leaf", leaves), ("knob", knobs)):
            value = effect.get(name)
            if isinstance(value, str) and value not in valid:
                close = difflib.get_close_matches(value, valid, n=1)
                hint = (
                    f"did you mean {close[0]}?" if close else f"known: {', '.join(sorted(valid))}"
                )
                yield (*where, name), f"there is no {name} {value:.60}: {hint}"
        for severity in _SEVERITIES:
            listed = effect.get(severity)
            for place, value in enumerate(listed if isinstance(listed, list | tuple) else ()):
                if isinstance(value, str) and value not in rules:
                    close = difflib.get_close_matches(value, rules, n=1, cutoff=0.8)
                    if close:
                        wrong = f"there is no rule {value:.60}: did you mean {close[0]}?"
                        yield (*where, severity, place), wrong


def _servers(document: Mapping[str, Any]) -> int | None:
    """How many there ever are; None where that cannot be told."""
    counts = [_mapping(document.get("pool")).get("replicas", 2)]
    counts += [fault.get("to", 1) for fault in _items(document.get("faults"))]
    whole = [count for count in counts if isinstance(count, int)]
    unknown = [count for count in counts if count is not None and not isinstance(count, int)]
    return None if unknown or not whole else max(whole)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _items(value: object) -> list[Mapping[str, Any]]:
    """The items of a list, mappings as they are, anything else as an empty one."""
    return [_mapping(one) for one in value] if isinstance(value, list | tuple) else []


def _seconds(value: object) -> float | None:
    if isinstance(value, str):
        try:
            return parse_duration(value)
        except ValueError:
            return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return None
