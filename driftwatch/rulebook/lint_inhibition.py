"""Lints of `inhibited_by`: who inhibits whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from driftwatch.errors import Problem
from driftwatch.rulebook.lint_places import problem
from driftwatch.rulebook.rules import ReadRule, Rule
from driftwatch.yaml_positions import Scalar

RANKS = {"notice": 0, "ticket": 1, "page": 2}


def inhibition_problems(rules: Sequence[tuple[ReadRule, Rule]]) -> Iterator[Problem]:
    """Every lint of inhibition, over the readable rules of a rulebook."""
    by_alert: dict[str, list[Rule]] = {}
    for _, rule in rules:
        by_alert.setdefault(rule.alert, []).append(rule)
    for one, rule in rules:
        for name in one.names("inhibited_by"):
            if inhibitors := by_alert.get(str(name.value), []):
                yield from _inhibitor(one, rule, name, inhibitors)
    yield from _circles(rules, by_alert)


def _inhibitor(
    one: ReadRule, rule: Rule, name: Scalar, inhibitors: Sequence[Rule]
) -> Iterator[Problem]:
    """One alert of an `inhibited_by`."""
    if not any(other.is_evaluated for other in inhibitors):
        message = f"{name.value} is off, so it inhibits nothing"
        yield problem(one.file, name.place, "dead-inhibitor", message, "leave it out")
        return
    strongest = max(RANKS[v.severity] for other in inhibitors for v in other.variants)
    if strongest < RANKS[rule.severity]:
        severity = next(word for word, rank in RANKS.items() if rank == strongest)
        message = f"{name.value}, a {severity}, keeps {rule.alert}, a {rule.severity}, from firing"
        help_text = f"only a {rule.severity} should keep a {rule.severity} from firing"
        yield problem(one.file, name.place, "weaker-inhibitor", message, help_text)
    if rule.per == "pool" and all(o.per == "target" and o.together is None for o in inhibitors):
        message = f"{name.value} fires per target and inhibits no incident of a pool"
        help_text = f"leave it out, or give {name.value} group: or per: pool"
        yield problem(one.file, name.place, "pool-inhibited", message, help_text)


def _circles(
    rules: Sequence[tuple[ReadRule, Rule]], by_alert: Mapping[str, Sequence[Rule]]
) -> Iterator[Problem]:
    """Circles of three and more, in which each alert ends the next one without end.

    Two alerts that inhibit each other are meant: the first one stays.
    """
    edges = {
        alert: {i for rule in some for i in rule.inhibited_by if i in by_alert and i != alert}
        for alert, some in by_alert.items()
    }
    one_way = {
        alert: sorted(i for i in inhibitors if alert not in edges[i])
        for alert, inhibitors in edges.items()
    }
    reported: set[str] = set()
    for one, rule in rules:
        circle = [] if rule.alert in reported else _circle_from(rule.alert, one_way)
        if not circle:
            continue
        reported.update(circle)
        name = next((n for n in one.names("inhibited_by") if n.value == circle[1]), None)
        if name is not None:
            way = " ← ".join(circle)
            message = f"these alerts inhibit each other in a circle: {way}"
            help_text = "take one name out; the alert that explains most has no inhibited_by"
            yield problem(one.file, name.place, "inhibition-circle", message, help_text)


def _circle_from(start: str, edges: Mapping[str, Sequence[str]]) -> list[str]:
    """A shortest way from an alert over its inhibitors back to it; empty without one."""
    came_from: dict[str, str] = {}
    layer = [start]
    while layer:
        following = []
        for alert in layer:
            for inhibitor in edges.get(alert, ()):
                if inhibitor == start:
                    way = [start, alert]
                    while way[-1] != start:
                        way.append(came_from[way[-1]])
                    return way[::-1]
                if inhibitor not in came_from:
                    came_from[inhibitor] = alert
                    following.append(inhibitor)
        layer = following
    return []
