"""Rules as alerts over the rule states that driftwatch serves, and what no alert can express.

driftwatch decides each minute where a rule is true, and serves it (``driftwatch_rule``). An alert
reads that and does the rest: it waits, it stays until the rule ends, it names and labels.
driftwatch's life cycle counts minutes; Prometheus counts the time since an alert began.
``for: 5m`` is five true minutes, so the fifth begins four minutes after the first.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, get_args

from driftwatch.rulebook.rules import Rule
from driftwatch.service.metrics import EVERY_TARGET, LEFT_OUT, RULE, RULES_LEFT_OUT

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
        # what the page says is filled by driftwatch alone
        summary = _literal(f"{self.rule.alert} in pool ") + "{{ .Labels.pool }}"
        explain = "driftwatch explain {{ .Labels.instance }}"
        return {"summary": summary, "explain": explain, **own}

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
            there = one.rule.model_copy(update={"labels": labels})
            yield Alert(there, rule.id, f"pool=~{pattern}{others}")
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


To = Literal["prometheus", "kubernetes"]
TO: tuple[To, ...] = get_args(To)
_WIDTH = 98
_BESIDE = (
    "Prometheus 2.42 or later. `for` and `keep_firing_for` are a minute shorter than the rule's: "
    "driftwatch counts minutes, Prometheus the time from the first of them to the last. An alert "
    "that fires stays until its condition is false: a minute without a verdict neither fires nor "
    "ends it. `ALERTS` in the expressions does that. inhibited_by is not exported: it belongs to "
    "Alertmanager's inhibit_rules."
)
_OPERATOR = """\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: driftwatch-rules
spec:
"""
# Exported alerts are silent where their series are missing.
_SILENCE = f"""\
- name: driftwatch-served
  interval: 1m
  rules:
    - alert: DriftwatchServesNoRuleMetrics
      expr: |-
        {LEFT_OUT} + {RULES_LEFT_OUT} > 0
        or absent({EVERY_TARGET})
      for: 15m
      labels:
        severity: ticket
      annotations:
        summary: driftwatch serves no states of rules for some or all servers
        description: Alerts of driftwatch's rules cannot fire for them. Is driftwatch running, and \
with these rules? Does it watch more servers than it serves?
"""


def file_of(to: To, exported: Exported) -> str:
    """The text of a file, the same for the same rules; its head names what was left out of it."""
    lines = "".join(f"{line}\n" for line in _groups(exported.alerts)) + _SILENCE
    body = "groups:\n" + textwrap.indent(lines, "  ")
    if to == "kubernetes":
        body = _OPERATOR + textwrap.indent(body, "  ")
    head = (
        f"Made by `driftwatch rules export --to {to}`: change the rules, not this file.",
        _BESIDE,
        "It reads the states of rules (driftwatch_rule) of a driftwatch that has the same ones.",
        *exported.omissions,
        *(f"Off: {rule.id}: {rule.reason}" for rule in exported.disabled),
    )
    return "".join(f"# {line}\n" for part in head for line in _wrapped(part)) + body


def _groups(alerts: Sequence[Alert]) -> Iterator[str]:
    """Two files may have a group of one name; Prometheus reads one file."""
    groups: dict[str, list[Alert]] = {}
    names: dict[str, set[str]] = {}  # alert → labels that any rule of it has
    for alert in alerts:
        groups.setdefault(alert.rule.group, []).append(alert)
        names.setdefault(alert.rule.alert, set()).update(alert.rule.labels)
    for group, own in groups.items():
        yield f"- name: {_text(f'driftwatch-{group}')}"
        yield from ("  interval: 1m", "  rules:")
        for alert in own:
            yield from (f"    {line}" for line in _rule(alert, sorted(names[alert.rule.alert])))


def _rule(alert: Alert, names: Sequence[str]) -> Iterator[str]:
    """``names``: labels that tell it from others of its alert; an absent one is empty."""
    rule, labels = alert.rule, {name: alert.rule.labels.get(name, "") for name in names}
    conditions = {"given": rule.precondition, "when": rule.when, "until": rule.until}
    texts = (f"{key}: {one.text}" for key, one in conditions.items() if one is not None)
    yield from (f"# {line}" for line in chain.from_iterable(map(_wrapped, texts)))
    yield f"- alert: {_text(rule.alert)}"
    yield "  expr: |-"
    expression = alert.expression({"severity": rule.severity, **labels})
    yield from (f"    {line}" for line in expression.splitlines())
    for key, seconds in (("for", alert.pending_seconds), ("keep_firing_for", alert.keep_seconds)):
        if seconds:
            minutes = seconds // 60 + 1
            yield f"  {key}: {seconds:.0f}s # {minutes:.0f} minutes, from the first to the last"
    yield from _mapping("labels", alert.labels)
    yield from _mapping("annotations", alert.annotations)


def _mapping(key: str, values: Mapping[str, str]) -> Iterator[str]:
    yield f"  {key}:"
    yield from (f"    {_text(name)}: {_text(value)}" for name, value in values.items())


def _text(value: str) -> str:
    """A string of YAML: one of JSON is one."""
    return json.dumps(value, ensure_ascii=False)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        " ".join(text.split()), _WIDTH, subsequent_indent="  ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
