"""Alerts as the files that Prometheus and its operator read."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, get_args

import yaml

from driftwatch.export.alerts import Alert, Exported
from driftwatch.service.metrics import EVERY_TARGET, LEFT_OUT, RULES_LEFT_OUT

To = Literal["prometheus", "kubernetes"]
TO: tuple[To, ...] = get_args(To)
_WIDTH = 98


def file_of(to: To, exported: Exported) -> str:
    """The text of a file, the same for the same rules; its head names what was left out of it."""
    body: Mapping[str, Any] = {"groups": _groups(exported.alerts)}
    if to == "kubernetes":
        body = {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": {"name": "driftwatch-rules"},
            "spec": body,
        }
    return _comments(to, exported) + _with_conditions(_dumped(body), exported.alerts)


_BESIDE = (
    "Prometheus 2.42 or later. An alert that fires stays until its condition is false: a minute "
    "without a verdict neither fires nor ends it. `ALERTS` in the expressions does that. "
    "inhibited_by is not exported: it belongs to Alertmanager's inhibit_rules."
)
# Exported alerts are silent where their series are missing.
_SILENCE = {
    "name": "driftwatch-served",
    "interval": "1m",
    "rules": [
        {
            "alert": "DriftwatchServesNoRuleMetrics",
            "expr": f"{LEFT_OUT} + {RULES_LEFT_OUT} > 0\nor absent({EVERY_TARGET})",
            "for": "15m",
            "labels": {"severity": "ticket"},
            "annotations": {
                "summary": "driftwatch serves no states of rules for some or all servers",
                "description": "Alerts of driftwatch's rules cannot fire for them. Is driftwatch "
                "running, and with these rules? Does it watch more servers than it serves?",
            },
        }
    ],
}


def _groups(alerts: Sequence[Alert]) -> list[Mapping[str, Any]]:
    names: dict[str, set[str]] = {}  # alert → labels that any rule of it has
    for alert in alerts:
        names.setdefault(alert.rule.alert, set()).update(alert.rule.labels)
    of_rules: list[Mapping[str, Any]] = [
        {
            "name": f"driftwatch-{name}",
            "interval": "1m",
            "rules": [_prometheus_rule(alert, names[alert.rule.alert]) for alert in of_group],
        }
        for name, of_group in _by_group(alerts)
    ]
    return [*of_rules, _SILENCE]


def _by_group(alerts: Sequence[Alert]) -> list[tuple[str, list[Alert]]]:
    """Two files may have a group of one name; Prometheus reads one file."""
    groups: dict[str, list[Alert]] = {}
    for alert in alerts:
        groups.setdefault(alert.rule.group, []).append(alert)
    return list(groups.items())


def _prometheus_rule(alert: Alert, names: Collection[str]) -> Mapping[str, Any]:
    """``names``: labels that tell it from others of its alert; an absent one is empty."""
    told_apart = {name: alert.rule.labels.get(name, "") for name in sorted(names)}
    labels = {"severity": alert.rule.severity, **told_apart}
    fields: dict[str, Any] = {
        "alert": alert.rule.alert,
        "expr": alert.expression(labels),
    }
    if alert.pending_seconds:
        fields["for"] = duration_text(alert.pending_seconds)
    if alert.keep_seconds:
        fields["keep_firing_for"] = duration_text(alert.keep_seconds)
    return {**fields, "labels": dict(alert.labels), "annotations": dict(alert.annotations)}


def _comments(to: To, exported: Exported) -> str:
    """The head of a file: what made it, what it needs, what is not in it."""
    parts = [
        f"Made by `driftwatch rules export --to {to}`: change the rules, not this file.",
        _BESIDE,
        "It reads the states of rules (driftwatch_rule) of a driftwatch that has the same ones.",
        *map(str, exported.omissions),
        *(f"Off: {rule.id}: {rule.reason}" for rule in exported.disabled),
    ]
    return "".join(f"# {line}\n" for part in parts for line in _wrapped(part))


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        " ".join(text.split()), _WIDTH, subsequent_indent="  ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def _with_conditions(text: str, alerts: Sequence[Alert]) -> str:
    """The text with the conditions as each rule has them above its alert."""
    of_groups = iter([alert for _, of_group in _by_group(alerts) for alert in of_group])

    def above(found: re.Match[str]) -> str:
        alert = next(of_groups, None)
        lines = [] if alert is None else _condition_lines(alert)
        return "".join(f"{found[1]}# {line}\n" for line in lines) + found[0]

    return re.sub(r"^( *)- alert: ", above, text, flags=re.MULTILINE)


def _condition_lines(alert: Alert) -> list[str]:
    rule = alert.rule
    conditions = {"given": rule.precondition, "when": rule.when, "until": rule.until}
    texts = [f"{key}: {one.text}" for key, one in conditions.items() if one is not None]
    return [line for text in texts for line in _wrapped(text)]


def duration_text(seconds: float) -> str:
    """A duration as Prometheus reads it.

    >>> duration_text(240), duration_text(0), duration_text(5340)
    ('4m', '0s', '1h29m')
    """
    rest, text = round(seconds), ""
    for unit, size in (("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # PyYAML has no types
    """Items are indented, texts of several lines stand as they are, lists of words on one line."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Also below a key."""
        super().increase_indent(flow, False)

    def text(self, value: str) -> yaml.ScalarNode:
        """A text."""
        style = "|" if "\n" in value else None
        return self.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    def items(self, value: list[Any]) -> yaml.SequenceNode:
        """A list."""
        flow = not any(isinstance(one, dict | list) for one in value)
        return self.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=flow)

    def ignore_aliases(self, data: object) -> bool:
        """Nothing is named to be used again."""
        return True


_Dumper.add_representer(str, _Dumper.text)
_Dumper.add_representer(list, _Dumper.items)


def _dumped(document: Mapping[str, Any]) -> str:
    options = {"width": math.inf, "sort_keys": False, "allow_unicode": True}
    return str(yaml.dump(document, Dumper=_Dumper, **options))
