"""Who would be told of an incident of which some labels are not known yet. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from driftwatch.incidents.routing import Routed, Routes
from driftwatch.matchers import Matcher
from driftwatch.model import Severity


@dataclass(frozen=True, slots=True)
class Possibility:
    """One way it may go."""

    routed: Routed
    # what labels that are not known would have to satisfy; empty = it goes this way for sure
    conditions: tuple[Matcher, ...] = ()


@dataclass(frozen=True, slots=True)
class Preview:
    """The ways it may go, in the order in which they are tried; the last one is the rest."""

    possibilities: tuple[Possibility, ...]
    passed_over: tuple[int, ...] = ()  # numbers of the routes that do not match

    @property
    def is_determined(self) -> bool:
        """Whether the known labels decide."""
        return len(self.possibilities) == 1

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the labels that it depends on."""
        names = (one.name for each in self.possibilities for one in each.conditions)
        return tuple(dict.fromkeys(names))


def preview(routes: Routes, labels: Mapping[str, str], severity: Severity) -> Preview:
    """How routing goes with these labels; one that is not among them may have any value."""
    possibilities: list[Possibility] = []
    for one in _of_names(routes.of_rules, "rule", labels):
        if (routed := routes.of_rule(one.value, severity)) is not None:
            if "rule" in labels:
                return Preview((Possibility(routed),))
            possibilities.append(Possibility(routed, (one,)))
    passed_over: list[int] = []
    for number, route in enumerate(routes.routes, 1):
        unknown = tuple(one for one in route.matchers if one.name not in labels)
        if not all(one.matches(labels) for one in route.matchers if one.name in labels):
            passed_over.append(number)
        elif (routed := routes.of_route(number, severity)) is not None:
            possibilities.append(Possibility(routed, unknown))
            if not unknown:
                return Preview(tuple(possibilities), tuple(passed_over))
    for one in _of_names(routes.of_pools, "pool", labels):
        if (routed := routes.of_pool(one.value, severity)) is not None:
            is_certain = "pool" in labels
            possibilities.append(Possibility(routed, () if is_certain else (one,)))
            if is_certain:
                return Preview(tuple(possibilities), tuple(passed_over))
    possibilities.append(Possibility(routes.of_severity(severity)))
    return Preview(tuple(possibilities), tuple(passed_over))


def _of_names(
    receivers: Mapping[str, object], label: str, labels: Mapping[str, str]
) -> Iterator[Matcher]:
    """The value that a label has, or each that decides where it is not known."""
    for value in [labels[label]] if label in labels else sorted(receivers):
        yield Matcher(label, "=", value)
