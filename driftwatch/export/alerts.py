"""Rules as Prometheus alerts over the rule states that driftwatch serves.

driftwatch decides each minute where a rule is true, and serves the state (``driftwatch_rule``). The
alert adds how long the rule must be true, when it ends, the name and the labels.
driftwatch counts minutes; Prometheus counts the time since an alert began. ``for: 5m`` is five true
minutes, so the fifth begins four minutes after the first.
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

from driftwatch.rulebook.rules import Rule, quoted
from driftwatch.service.metrics import EVERY_TARGET, LEFT_OUT, RULE, RULES_LEFT_OUT

TARGET_LABELS = ("pool", "instance", "engine")  # they name the server of an alert
OVERRIDE_LABEL = "pools"  # the pools of an override's alert
_NAME_REASON = "a name that Prometheus refuses: it takes letters, digits and _"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FOR_REASON = "a minute without a verdict restarts `for`; driftwatch only pauses its count"


@dataclass(frozen=True, slots=True)
class Alert:
    """The alert of a rule in some pools."""

    rule: Rule  # with the override of these pools
    id: str  # of the rule, as driftwatch serves it
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
        """The rule's annotations, escaped for templates, and the command that explains it."""
        annotations = self.rule.annotations.items()
        own = {name: _literal(text) for name, text in annotations if _NAME.fullmatch(name)}
        # only driftwatch can fill in the page's summary
        summary = _literal(f"{self.rule.alert} in pool ") + "{{ .Labels.pool }}"
        explain = "driftwatch explain {{ .Labels.instance }}"
        return {"summary": summary, "explain": explain, **own}

    @property
    def pending_seconds(self) -> float:
        """Seconds from the first true minute to the one in which the alert fires."""
        return _after_first(self.rule.for_seconds)

    @property
    def keep_seconds(self) -> float:
        """Seconds from the first minute that would end the alert to the one that does."""
        return _after_first(self.rule.keep_firing_for_seconds)

    def expression(self, labels: dict[str, str]) -> str:
        """PromQL: servers where the rule is true, or the alert fires and has not ended.

        ``labels``: they separate its ``ALERTS`` from those of other rules.
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
    omissions: tuple[str, ...]  # parts of rules that are missing or differ
    is_whole: bool  # none is missing
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
    return Exported(alerts, tuple(omissions), not unnamed, disabled)


def _named(some: Sequence[Rule], every: Sequence[Rule]) -> str:
    """Names of alerts; ids of rules where only some of an alert's rules are meant."""
    here, count = (Counter(rule.alert for rule in rules) for rules in (some, every))
    names = (rule.alert if here[rule.alert] == count[rule.alert] else rule.id for rule in some)
    return ", ".join(dict.fromkeys(names))


def _alerts(rule: Rule) -> Iterator[Alert]:
    """One alert, or one for the pools of each override and one for the others."""
    others = ""
    for one in rule.overrides:
        names = (re.escape(name).replace(r"\*", ".*") for name in one.pools)
        is_one = len(one.pools) == 1 and "*" not in one.pools[0]
        pattern = quoted(one.pools[0] if is_one else "|".join(names).replace(r"\-", "-"))
        like, unlike = ("=", "!=") if is_one else ("=~", "!~")
        if one.rule.enabled:
            # the label keeps it apart from the rule's own alert
            labels = {**rule.labels, OVERRIDE_LABEL: ",".join(one.pools)}
            there = one.rule.model_copy(update={"labels": labels})
            yield Alert(there, rule.id, f"pool{like}{pattern}{others}")
        if "*" in one.pools:
            return  # no other pool is left
        others += f",pool{unlike}{pattern}"
    if rule.enabled:
        yield Alert(rule, rule.id, others[1:])


def _after_first(seconds: float) -> float:
    """Seconds from the first of these minutes to the last."""
    return 60.0 * max(math.ceil(seconds / 60.0) - 1, 0)


def _literal(text: str) -> str:
    """A Prometheus template that prints the text."""
    return text.replace("{{", '{{ "{{" }}')


Format = Literal["prometheus", "kubernetes"]
FORMATS: tuple[Format, ...] = get_args(Format)
_WIDTH = 98
_HEADER = (
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
_SERVED_ALERT = f"""\
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
        summary: driftwatch serves no rule states for some or all servers
        description: Alerts of driftwatch's rules cannot fire for them. Is driftwatch running with \
these rules? Does it watch more servers than it serves?
"""


def alert_file(to: Format, exported: Exported) -> str:
    """The text of the file; comments at its head name what the alerts lack."""
    lines = "".join(f"{line}\n" for line in _groups(exported.alerts)) + _SERVED_ALERT
    body = "groups:\n" + textwrap.indent(lines, "  ")
    if to == "kubernetes":
        body = _OPERATOR + textwrap.indent(body, "  ")
    head = (
        f"Made by `driftwatch rules export --to {to}`: change the rules, not this file.",
        _HEADER,
        "The alerts read driftwatch_rule, from a driftwatch that runs the same rules.",
        *exported.omissions,
        *(f"Off: {rule.id}: {rule.reason}" for rule in exported.disabled),
    )
    return "".join(f"# {line}\n" for part in head for line in _wrapped(part)) + body


def _groups(alerts: Sequence[Alert]) -> Iterator[str]:
    """The groups of the file; rules from several files may share a group."""
    groups: dict[str, list[Alert]] = {}
    names: dict[str, set[str]] = {}  # alert → labels that any rule of it has
    for alert in alerts:
        groups.setdefault(alert.rule.group, []).append(alert)
        names.setdefault(alert.rule.alert, set()).update(alert.rule.labels)
    for group, own in groups.items():
        yield f"- name: {_yaml_string(f'driftwatch-{group}')}"
        yield from ("  interval: 1m", "  rules:")
        for alert in own:
            yield from (f"    {line}" for line in _rule(alert, sorted(names[alert.rule.alert])))


def _rule(alert: Alert, names: Sequence[str]) -> Iterator[str]:
    """``names``: labels that separate it from rules of the same alert; an absent one is empty."""
    rule, labels = alert.rule, {name: alert.rule.labels.get(name, "") for name in names}
    conditions = {"given": rule.precondition, "when": rule.when, "until": rule.until}
    texts = (f"{key}: {one.text}" for key, one in conditions.items() if one is not None)
    yield from (f"# {line}" for line in chain.from_iterable(map(_wrapped, texts)))
    yield f"- alert: {_yaml_string(rule.alert)}"
    yield "  expr: |-"
    expression = alert.expression({"severity": rule.severity, **labels})
    yield from (f"    {line}" for line in expression.splitlines())
    keep_seconds = _after_first(rule.keep_firing_for_seconds)
    for key, seconds in (("for", alert.pending_seconds), ("keep_firing_for", keep_seconds)):
        if seconds:
            minutes = seconds // 60 + 1
            yield f"  {key}: {seconds:.0f}s # {minutes:.0f} minutes, from the first to the last"
    yield from _mapping("labels", alert.labels)
    yield from _mapping("annotations", alert.annotations)


def _mapping(key: str, values: Mapping[str, str]) -> Iterator[str]:
    yield f"  {key}:"
    yield from (
        f"    {_yaml_string(name)}: {_yaml_string(value)}" for name, value in values.items()
    )


def _yaml_string(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        " ".join(text.split()), _WIDTH, subsequent_indent="  ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
