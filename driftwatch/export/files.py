"""Alerts as the files that Prometheus and its operator read."""

from __future__ import annotations

import copy
import io
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, get_args

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import LiteralScalarString

from driftwatch.export.alerts import Alert, Exported
from driftwatch.export.conditions import EVERY, quoted
from driftwatch.export.promql import Atom, Binary, Call, Promql, text_of
from driftwatch.service.target_metrics import LEFT_OUT, RULES_LEFT_OUT

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
    return _comments(to, exported) + _dumped(body)


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
            "expr": LiteralScalarString(
                f"{LEFT_OUT} + {RULES_LEFT_OUT} > 0\nor absent({EVERY.text})"
            ),
            "for": "15m",
            "labels": {"severity": "ticket"},
            "annotations": {
                "summary": "driftwatch serves no target metrics for some or all servers",
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
    return [*of_rules, copy.deepcopy(_SILENCE)]


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
        "expr": _expression(_firing(alert, labels)),
    }
    if alert.pending_seconds:
        fields["for"] = duration_text(alert.pending_seconds)
    if alert.keep_seconds:
        fields["keep_firing_for"] = duration_text(alert.keep_seconds)
    return _commented(alert, {**fields, "labels": alert.labels, "annotations": alert.annotations})


def _firing(alert: Alert, labels: Mapping[str, str]) -> Promql:
    """Where it is true, and where it fires and has not ended."""
    matchers = {"alertname": alert.rule.alert, "alertstate": "firing", **labels}
    inside = ",".join(f"{name}={quoted(value)}" for name, value in matchers.items())
    firing = Call(f"group by ({', '.join(alert.by)})", Atom(f"ALERTS{{{inside}}}"))
    still = Binary(firing, "and", alert.every)
    not_over = still if alert.ends is None else Binary(still, "unless", alert.ends)
    return Binary(alert.true, "or", not_over)


def _comments(to: To, exported: Exported) -> str:
    """The head of a file: what made it, what it needs, what is not in it."""
    parts = [
        f"Made by `driftwatch rules export --to {to}`: change the rules, not this file.",
        _BESIDE,
        "It reads the target metrics of a driftwatch that has the same rules.",
        *map(str, exported.omissions),
        *(f"Off: {rule.id}: {rule.reason}" for rule in exported.disabled),
    ]
    return "".join(f"# {line}\n" for part in parts for line in _wrapped(part))


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        " ".join(text.split()), _WIDTH, subsequent_indent="  ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def _commented(alert: Alert, fields: Mapping[str, Any]) -> CommentedMap:
    """With the conditions as the rule has them above it."""
    rule = alert.rule
    mapping = CommentedMap(fields)
    conditions = {"given": rule.precondition, "when": rule.when, "until": rule.until}
    texts = [f"{key}: {one.text}" for key, one in conditions.items() if one is not None]
    lines = [line for text in texts for line in _wrapped(text)]
    mapping.yaml_set_start_comment("\n".join(lines), indent=6)
    return mapping


def _expression(query: Promql) -> str:
    text = text_of(query)
    return LiteralScalarString(text) if "\n" in text else text


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


def _dumped(document: Mapping[str, Any]) -> str:
    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = 10_000
    yaml.default_flow_style = False
    stream = io.StringIO()
    yaml.dump(_laid_out(document), stream)
    return stream.getvalue()


def _laid_out(value: Any) -> Any:
    """Lists of words on one line."""
    if isinstance(value, dict):
        for name, inner in value.items():
            value[name] = _laid_out(inner)
        return value
    if not isinstance(value, list):
        return value
    items = CommentedSeq(_laid_out(one) for one in value)
    if not any(isinstance(one, dict | list) for one in value):
        items.fa.set_flow_style()
    return items
