"""Scenario files: YAML, every problem at its line and column; the shipped ones by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path

from pydantic import ValidationError

from driftwatch.errors import ConfigError, Problem, UsageError
from driftwatch.fleet.scenario.fit import Misfit, misfits
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.yaml_models import note_errors, place_of
from driftwatch.yaml_positions import Entries, YamlFile, parse_yaml, plain, read_yaml

SUFFIX = ".yaml"


def read_scenario(path: Path) -> Scenario:
    """One scenario file.

    Raises ConfigError: with every problem, each at its place.
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
                    (Problem(file.path, None, None, "name", f"it is called {scenario.name}"),)
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


def _misfits(scenario: Scenario) -> Iterator[Misfit]:
    yield from misfits(scenario)
    path = scenario.traffic.path
    if path is not None and not path.exists():
        yield ("traffic", "path"), f"there is no {path}"


def _scenario(file: YamlFile, base: Path | None) -> Scenario:
    root = file.root
    scenario = None
    if root is None and not file.problems:
        file.problems.append(Problem(file.path, None, None, "empty", "the file is empty"))
    elif root is not None and not isinstance(root, Entries):
        file.add(root.place, "type", "a scenario is keys and values")
    elif isinstance(root, Entries):
        try:
            context = {} if base is None else {"base": base}
            scenario = Scenario.model_validate(plain(root), context=context)
        except ValidationError as error:
            note_errors(file, root, Scenario, error, {})
        else:
            for location, message in _misfits(scenario):
                file.add(place_of(root, location), "value", message)
    if scenario is None or file.problems:
        raise ConfigError(tuple(sorted(file.problems, key=lambda p: (p.line or 0, p.column or 0))))
    return scenario
