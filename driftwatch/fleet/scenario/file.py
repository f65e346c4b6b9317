"""Scenario files: YAML, every problem at its line and column; the shipped ones by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from driftwatch.errors import ConfigError, DriftwatchError, Problem, UsageError
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.simulate.hardware import gpu, model
from driftwatch.yaml_models import note_errors, place_of
from driftwatch.yaml_positions import Entries, YamlFile, parse_yaml, plain, read_yaml

SUFFIX = ".yaml"
Misfit = tuple[tuple[str | int, ...], str]  # place (keys, and numbers of items), and problem


def read_scenario(path: Path) -> Scenario:
    """One scenario file.

    Raises ConfigError: every problem of the file, each at its place.
    """
    return _scenario(read_yaml(path), path.parent)


@cache
def shipped_scenarios() -> tuple[Scenario, ...]:
    """Every shipped scenario, by name."""
    folder = files("driftwatch.fleet") / "scenarios"
    scenarios = []
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        if entry.name.endswith(SUFFIX):
            file = parse_yaml(entry.read_text(encoding="utf-8"), f"scenarios/{entry.name}")
            scenario = _scenario(file, None)
            if f"{scenario.name}{SUFFIX}" != entry.name:
                raise ConfigError(
                    (Problem(file.path, None, None, "name", f"its name is {scenario.name}"),)
                )
            scenarios.append(scenario)
    return tuple(scenarios)


def scenario_named(name: str) -> Scenario:
    """A shipped scenario by its name, or any other by the path of its file.

    Raises UsageError: there is none of that name; ConfigError: the file has problems.
    """
    if name.endswith((SUFFIX, ".yml")):
        return read_scenario(Path(name))
    shipped = {scenario.name: scenario for scenario in shipped_scenarios()}
    if name not in shipped:
        close = difflib.get_close_matches(name, shipped, n=1)
        hint = f"did you mean {close[0]}?" if close else "driftwatch demo --list"
        raise UsageError(f"there is no scenario {name!r:.80}", help_text=hint)
    return shipped[name]


def _scenario(file: YamlFile, base: Path | None) -> Scenario:
    root = file.root
    scenario = None
    if root is None and not file.problems:
        file.problems.append(Problem(file.path, None, None, "empty", "the file is empty"))
    elif root is not None and not isinstance(root, Entries):
        file.add(root.place, "type", "a scenario needs keys and values")
    elif isinstance(root, Entries):
        try:
            context = {} if base is None else {"base": base}
            scenario = Scenario.model_validate(plain(root), context=context)
        except ValidationError as error:
            note_errors(file, root, Scenario, error, {})
        else:
            for location, message in misfits(scenario):
                file.add(place_of(root, location), "value", message)
    if scenario is None or file.problems:
        raise ConfigError(tuple(sorted(file.problems, key=lambda p: (p.line or 0, p.column or 0))))
    return scenario


def misfits(scenario: Scenario) -> Iterator[Misfit]:
    """Impossible times, replicas, names and sizes."""
    path = scenario.traffic.path
    if path is not None and not path.exists():
        yield ("traffic", "path"), f"there is no {path}"
    if 2 * scenario.scrape.interval > scenario.duration:
        yield ("scrape", "interval"), f"{scenario.duration:g} s are less than two scrapes"
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
                    wrong = f"there is no replica {replica}: the numbers are 0 to {last}"
                    yield (*where, number, "replicas"), wrong
    if truth.baseline is not None:
        yield from _time(scenario, ("truth", "baseline"), truth.baseline)


def _time(scenario: Scenario, where: tuple[str | int, ...], part: Any) -> Iterator[Misfit]:
    duration = scenario.duration
    for name, at in (("at", part.at), ("until", part.until)):
        if at is not None and (at > duration or (name == "at" and at == duration)):
            yield (*where, name), f"{at:g} s is not before the scenario's end, at {duration:g} s"
    if part.until is not None and part.until <= part.at:
        yield (*where, "until"), "until is not after at"


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
