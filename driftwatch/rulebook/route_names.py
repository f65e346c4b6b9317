"""Rules and alerts that the routes of a configuration name, and that no rule file has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from driftwatch.errors import Problem
from driftwatch.rulebook.rules import Rule
from driftwatch.settings import Settings
from driftwatch.yaml_models import near, place_of
from driftwatch.yaml_positions import Entries, read_yaml


def unknown_in_routes(settings: Settings, path: Path, rules: Sequence[Rule]) -> list[Problem]:
    """A warning for every matcher that asks for an alert or rule that there is not.

    ``settings``: as loaded from ``path``; ``rules``: every rule, disabled ones too.
    """
    names = {"alert": {rule.alert for rule in rules}, "rule": {rule.id for rule in rules}}
    file = read_yaml(path)
    root = file.root
    if not rules or not isinstance(root, Entries):
        return []
    for number, route in enumerate(settings.routes):
        for position, matcher in enumerate(route.parsed):
            existing = names.get(matcher.name, {matcher.value})
            if matcher.operator == "=" and matcher.value not in existing:
                place = place_of(root, ("routes", number, "matchers", position))
                message = f"there is no {matcher.name} {matcher.value}: this route takes nothing"
                hint = near(matcher.value, existing)
                file.add(place, "unknown-alert", message, hint, "warning")
    return file.problems
