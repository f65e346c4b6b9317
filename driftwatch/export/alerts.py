"""Rules as alerts over the rule states that driftwatch serves, and what no alert can express.

driftwatch decides each minute where a rule is true, and serves it (``driftwatch_rule``). An alert
reads that and does the rest: it waits, it stays until the rule ends, it names and labels.
driftwatch's life cycle counts minutes; Prometheus counts the time since an alert began.
``for: 5m`` is five true minutes, so the fifth begins four minutes after the first.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from driftwatch.rulebook.rules import Rule
from driftwatch.service.metrics import EVERY_TARGET, RULE

# What one alert is about.
TARGET_LABELS = ("pool", "instance", "engine")
OVERRIDE_LABEL = "pools"  # which pools an override's alert is about
_NAME_REASON = "a name that Prometheus refuses: it takes letters, digits and _"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FOR_REASON = "a minute without a verdict restarts `for`; driftwatch only pauses its count"


@dataclass(frozen=True, slots=True)
class Alert:
    """A rule in some pools."""

    rule: Rule  # as it is in these pools
    id: str  # of the rule that driftwatch serves
    pools: str  # matchers of the pools; empty = all

    @property
    def labels(self) -> dict[str, str]:
        """Static labels."""
        labels = {"severity": self.rule.severity, **self.rule.labels}
        if self.rule.receivers:
            labels["receivers"] = ",".join(self.rule.receivers)
        return {name: _literal(text) for name, text in labels.items()}

    @property
    def annotations(self) -> dict[str, str]:
        """The rule's, as templates that print them, and the command that explains the alert."""
        annotations = self.rule.annotations.items()
        own = {name: _literal(text) for name, text in annotations if _NAME.fullmatch(name)}
        return {"explain": "driftwatch explain {{ .Labels.instance }}", **own}

    @property
    def pending_seconds(self) -> float:
        """From the first true minute to the one in which it fires."""
        return _after_first(self.rule.for_seconds)

    @property
    def keep_seconds(self) -> float:
        """From the first minute that would end it to the one that does."""
        return _after_first(self.rule.keep_firing_for_seconds)

    def expression(self, labels: dict[str, str]) -> str:
        """PromQL: where the rule is true, and where the alert fires and has not ended.

        ``labels``: that tell its ``ALERTS`` from those of other rules.
        """
        comma = "," if self.pools else ""
        state = f"{RULE}{{rule={quoted(self.id)}{comma}{self.pools}}}"
        every = f"{EVERY_TARGET}{{{self.pools}}}" if self.pools else EVERY_TARGET
        matchers = {"alertname": self.rule.alert, "alertstate": "firing", **labels}
        firing = ",".join(f"{name}={quoted(value)}" for name, value in matchers.items())
        return (
            f"{_group(f'{state} == 1')}\n"
            f"or {_group(f'ALERTS{{{firing}}}')}\n"
            f"and {_group(f'last_over_time({every}[5m])')}\n"
            f"unless {_group(f'{state} == 0')}"
        )


def _group(inner: str) -> str:
    return f"group by ({', '.join(TARGET_LABELS)}) ({inner})"


@dataclass(frozen=True, slots=True)
class Exported:
    """A set of rules as alerts."""

    alerts: tuple[Alert, ...]  # in file order
    omissions: tuple[str, ...]  # what was left out or differs, and of which rules
    disabled: tuple[Rule, ...]  # off in driftwatch too


def alerts_of(rules: Sequence[Rule]) -> Exported:
    """The alerts of a set of rules."""
    enabled = [rule for rule in rules if rule.is_evaluated]
    unnamed = [r for r in enabled if not all(map(_NAME.fullmatch, r.annotations))]
    pending = [r for r in enabled if any(alert.pending_seconds for alert in _alerts(r))]
    omissions = [
        f"{part} of {_named(some, enabled)}: {reason}."
        for part, reason, some in (
            ("Not exported: `annotations`", _NAME_REASON, unnamed),
            ("Differs: `for`", _FOR_REASON, pending),
        )
        if some
    ]
    alerts = tuple(alert for rule in enabled for alert in _alerts(rule))
    disabled = tuple(rule for rule in rules if not rule.is_evaluated)
    return Exported(alerts, tuple(omissions), disabled)


def _named(some: Sequence[Rule], every: Sequence[Rule]) -> str:
    """Names of alerts; ids of rules where only some of an alert's rules are meant."""
    here, count = (Counter(rule.alert for rule in rules) for rules in (some, every))
    names = (rule.alert if here[rule.alert] == count[rule.alert] else rule.id for rule in some)
    return ", ".join(dict.fromkeys(names))


def _alerts(rule: Rule) -> Iterator[Alert]:
    """One alert, or one for the pools of each override and one for the others."""
    others = ""
    for one in rule.overrides:
        pattern = quoted("|".join(re.escape(name).replace(r"\*", ".*") for name in one.pools))
        if one.rule.enabled:
            # with the label it is no duplicate of the rule's own alert
            labels = {**rule.labels, OVERRIDE_LABEL: ",".join(one.pools)}
            yield Alert(replace(one.rule, labels=labels), rule.id, f"pool=~{pattern}{others}")
        if "*" in one.pools:
            return  # of the rest there is no pool
        others += f",pool!~{pattern}"
    if rule.enabled:
        yield Alert(rule, rule.id, others[1:])


def _after_first(seconds: float) -> float:
    """From the first of so many minutes to the last."""
    return 60.0 * max(math.ceil(seconds / 60.0) - 1, 0)


def _literal(text: str) -> str:
    """A text as a template that prints it."""
    return text.replace("{{", '{{ "{{" }}')


def quoted(text: str) -> str:
    """A text as PromQL writes it.

    >>> print(quoted('a"b'))
    "a\\"b"
    """
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
