"""Alerts as the files that Prometheus and its operator read. Pure."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Literal, get_args

from driftwatch.export.alerts import Alert, Exported
from driftwatch.service.metrics import EVERY_TARGET, LEFT_OUT, RULES_LEFT_OUT

To = Literal["prometheus", "kubernetes"]
TO: tuple[To, ...] = get_args(To)
_WIDTH = 98
_BESIDE = (
    "Prometheus 2.42 or later. An alert that fires stays until its condition is false: a minute "
    "without a verdict neither fires nor ends it. `ALERTS` in the expressions does that. "
    "inhibited_by is not exported: it belongs to Alertmanager's inhibit_rules."
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
            yield f"  {key}: {seconds:.0f}s"
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
