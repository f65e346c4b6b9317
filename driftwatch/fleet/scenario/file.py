"""Scenario files: YAML, every problem at its line and column; the shipped ones by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from driftwatch.errors import ConfigError, Problem, UsageError
from driftwatch.fleet.scenario.fit import Misfit, misfits, unknown_names
from driftwatch.fleet.scenario.model import Scenario, Serving
from driftwatch.yaml_models import note_errors, place_of
from driftwatch.yaml_positions import Entries, YamlFile, parse_yaml, plain, read_yaml

SUFFIX = ".yaml"
_KNOBS = frozenset(Serving.model_fields)


def read_scenario(path: Path) -> Scenario:
    """One scenario file.

    Raises:
        ConfigError: with every problem, each at its place.
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

    Raises:
        UsageError: there is none of that name.
        ConfigError: the file has problems.
    """
    if name.endswith((SUFFIX, ".yml")):
        return read_scenario(Path(name))
    shipped = {scenario.name: scenario for scenario in shipped_scenarios()}
    if name not in shipped:
        close = difflib.get_close_matches(name, shipped, n=1)
        hint = f"did you mean {close[0]}?" if close else "driftwatch demo --list"
        raise UsageError(f"there is no scenario {name!r:.80}", help_text=hint)
    return shipped[name]


def _unknown_names(document: dict[str, Any]) -> Iterator[Misfit]:
    from driftwatch.rulebook.book import load_rulebook

    if not document.get("truth"):
        return
    book = load_rulebook(())
    leaves = {leaf for tree in book.trees.values() for leaf in tree.leaves}
    yield from unknown_names(document, leaves, {rule.alert for rule in book.rules}, _KNOBS)


def _scenario(file: YamlFile, base: Path | None) -> Scenario:
    root = file.root
    scenario = None
    if root is None and not file.problems:
        file.problems.append(Problem(file.path, None, None, "empty", "the file says nothing"))
    elif root is not None and not isinstance(root, Entries):
        file.add(root.place, "type", "a scenario is keys and values")
    elif isinstance(root, Entries):
        document: Any = plain(root)
        wrong: list[Misfit] = []
        try:
            context = {} if base is None else {"base": base}
            scenario = Scenario.model_validate(document, context=context)
        except ValidationError as error:
            note_errors(file, root, Scenario, error)
            wrong += misfits(document)  # where a value is wrong the model has not come to these
        if base is not None:  # a test reads the names of the shipped ones
            wrong += _unknown_names(document)
        if scenario is not None and scenario.traffic.path is not None:
            path = scenario.traffic.path
            wrong += [] if path.exists() else [(("traffic", "path"), f"there is no {path}")]
        for location, message in wrong:
            place = place_of(root, location)
            if (place.line, message) not in {(p.line, p.message) for p in file.problems}:
                file.add(place, "value", message)
    if scenario is None or file.problems:
        raise ConfigError(tuple(sorted(file.problems, key=lambda p: (p.line or 0, p.column or 0))))
    return scenario
