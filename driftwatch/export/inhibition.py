"""``inhibited_by`` as Alertmanager's ``inhibit_rules``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from driftwatch.export.alerts import (
    POOL_LABELS,
    TARGET_LABELS,
    Alert,
    LeftOut,
    Omission,
    alike,
    grouped,
)
from driftwatch.export.conditions import quoted
from driftwatch.rulebook.rules import Rule

_PART = "inhibited_by"


@dataclass(frozen=True, slots=True)
class Inhibition:
    """The inhibit rules of a set of alerts."""

    rules: tuple[Mapping[str, Any], ...]  # as Alertmanager reads them
    omissions: tuple[Omission, ...]


def inhibition_of(alerts: Sequence[Alert]) -> Inhibition:
    """Who keeps whom silent.

    An alert of one server silences that server's, one of a pool that pool's. In a circle
    Alertmanager would silence everyone in it, so there only those that stand earlier in the files
    inhibit.
    """
    rules = list({alert.rule.id: alert.rule for alert in alerts}.values())
    severities: dict[str, list[str]] = {}
    for alert in alerts:
        severities.setdefault(alert.rule.id, []).append(alert.rule.severity)
    place = {rule.alert: number for number, rule in reversed([*enumerate(rules)])}
    per = {rule.alert: rule.per for rule in rules}
    reaches = _reach(rules)
    labels = alike(rules)
    sources_of: dict[str, tuple[str, ...]] = {}
    left_out: list[LeftOut] = []
    for rule in rules:
        named = [one for one in rule.inhibited_by if _inhibits(one, rule, rules)]
        reasons = {one: _why_not(rule, one, place, per, reaches) for one in named}
        sources_of[rule.id] = tuple(one for one, reason in reasons.items() if reason is None)
        left_out += [(rule, _PART, reason) for reason in reasons.values() if reason is not None]
    inhibit_rules: dict[str, Mapping[str, Any]] = {}
    for rule in rules:
        alike_all = {sources_of[one.id] for one in rules if one.alert == rule.alert}
        severity = "|".join(sorted({*severities[rule.id]}))
        matchers = {} if len(alike_all) == 1 else {**labels[rule.id], "severity": severity}
        if sources_of[rule.id]:
            one = _inhibit_rule(rule, sources_of[rule.id], matchers)
            inhibit_rules[str(one)] = one
    return Inhibition(tuple(inhibit_rules.values()), grouped(left_out, rules))


def _inhibits(source: str, rule: Rule, rules: Sequence[Rule]) -> bool:
    """Whether it does in driftwatch: a pool's alert waits for alerts of pools only."""
    of_source = [one for one in rules if one.alert == source]
    of_pools = any(one.per == "pool" or one.together is not None for one in of_source)
    return rule.per == "target" or of_pools or not of_source


def _why_not(
    rule: Rule,
    source: str,
    place: Mapping[str, int],
    per: Mapping[str, str],
    reaches: Mapping[str, frozenset[str]],
) -> str | None:
    if source not in place:
        return f"{source} is not exported"
    if per[source] != rule.per:
        of = "pool" if per[source] == "pool" else "server"
        return f"{source} is about a {of}: Alertmanager cannot tell which alerts it concerns"
    if source in reaches[rule.alert] and place[source] > place[rule.alert]:
        return (
            f"{source} and this alert inhibit each other; here only the first in the file inhibits"
        )
    return None


def _reach(rules: Sequence[Rule]) -> Mapping[str, frozenset[str]]:
    """Alert → the alerts that it inhibits, and those that they inhibit, and so on."""
    inhibits: dict[str, set[str]] = {rule.alert: set() for rule in rules}
    for rule in rules:
        for source in rule.inhibited_by:
            inhibits.setdefault(source, set()).add(rule.alert)

    def walk(alert: str, visited: set[str]) -> Iterator[str]:
        for one in inhibits.get(alert, set()) - visited:
            visited.add(one)
            yield one
            yield from walk(one, visited)

    return {alert: frozenset(walk(alert, set())) for alert in inhibits}


def _inhibit_rule(
    rule: Rule, sources: Sequence[str], labels: Mapping[str, str]
) -> Mapping[str, Any]:
    names = "|".join(sources)
    sign = "=" if len(sources) == 1 else "=~"
    return {
        "source_matchers": [f"alertname{sign}{quoted(names)}"],
        "target_matchers": [
            f"alertname={quoted(rule.alert)}",
            *(
                f"{name}{'=~' if name == 'severity' else '='}{quoted(value)}"
                for name, value in labels.items()
            ),
        ],
        "equal": [*(POOL_LABELS if rule.per == "pool" else TARGET_LABELS)],
    }
