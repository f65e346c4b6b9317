"""Alerts as the files that Prometheus, its operator, Alertmanager and Grafana read."""

from __future__ import annotations

import copy
import hashlib
import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import LiteralScalarString

from driftwatch.export.alerts import Alert, Exported, LeftOut, Omission, alike, grouped
from driftwatch.export.conditions import EVERY, quoted
from driftwatch.export.inhibition import inhibition_of
from driftwatch.export.promql import Atom, Binary, Call, Promql, text_of
from driftwatch.service.target_metrics import LEFT_OUT, RULES_LEFT_OUT

To = Literal["prometheus", "kubernetes", "alertmanager", "grafana"]
TO: tuple[To, ...] = get_args(To)
DATASOURCE = "prometheus"
_WIDTH = 98


def file_of(
    to: To, exported: Exported, datasource: str = DATASOURCE
) -> tuple[str, tuple[Omission, ...]]:
    """The text of a file, the same for the same rules, and what was left out of it.

    Args:
        datasource: uid of Grafana's Prometheus.
    """
    body, more, notes = _WRITERS[to](exported, datasource)
    omissions = (*exported.omissions, *more)
    if to == "alertmanager":
        omissions = more
    return _comments(to, exported, omissions, notes) + _dumped(body), omissions


_Body = tuple[Mapping[str, Any], tuple[Omission, ...], str]


def _prometheus(exported: Exported, _: str) -> _Body:
    return {"groups": _groups(exported.alerts)}, (), _BESIDE


def _kubernetes(exported: Exported, _: str) -> _Body:
    document = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "driftwatch-rules"},
        "spec": {"groups": _groups(exported.alerts)},
    }
    return document, (), _BESIDE


def _alertmanager(exported: Exported, _: str) -> _Body:
    inhibition = inhibition_of(exported.alerts)
    return {"inhibit_rules": list(inhibition.rules)}, inhibition.omissions, _AFTERWARDS


_BESIDE = (
    "Prometheus 2.42 or later. An alert that fires stays until its condition is false: a minute "
    "without a verdict neither fires nor ends it. `ALERTS` in the expressions does that. "
    "inhibited_by stands in Alertmanager's file: driftwatch rules export --to alertmanager."
)
_AFTERWARDS = (
    "For the configuration of Alertmanager. driftwatch waits 15 min after the other alert has "
    "ended, Alertmanager does not."
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
    told_apart = alike([alert.rule for alert in alerts])
    of_rules: list[Mapping[str, Any]] = [
        {
            "name": f"driftwatch-{name}",
            "interval": "1m",
            "rules": [_prometheus_rule(alert, told_apart[alert.rule.id]) for alert in of_group],
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


def _prometheus_rule(alert: Alert, labels: Mapping[str, str]) -> Mapping[str, Any]:
    labels = {**labels, "severity": alert.rule.severity}
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


GRAFANA_INHIBITED = "alerts that Grafana manages have no inhibition; all of them notify"
GRAFANA_PENDING = "`for` beside `until`: Grafana also counts minutes in which both are false"
GRAFANA_KEPT = (
    "beside `until`: a minute in which `until` is false restarts the count in driftwatch; in "
    "Grafana only one in which `when` is true does"
)
_STATES = (
    "Grafana 12 or later. The query is 2 where the rule is true, 0 where it ends and 1 between "
    "and where it has no verdict; the recovery threshold keeps an alert until it ends."
)


def _grafana(exported: Exported, datasource: str) -> _Body:
    left_out: list[LeftOut] = []
    alerts: list[Alert] = []
    for alert in exported.alerts:
        rule = alert.rule
        if rule.until is not None and alert.pending_seconds:
            left_out.append((rule, None, GRAFANA_PENDING))
            continue
        alerts.append(alert)
        if rule.inhibited_by:
            left_out.append((rule, "inhibited_by", GRAFANA_INHIBITED))
        if rule.until is not None and alert.keep_seconds:
            left_out.append((rule, "keep_firing_for", GRAFANA_KEPT))
    groups = [
        {
            "orgId": 1,
            "name": f"driftwatch-{name}",
            "folder": "driftwatch",
            "interval": "1m",
            "rules": [_grafana_rule(alert, datasource) for alert in of_group],
        }
        for name, of_group in _by_group(alerts)
    ]
    return (
        {"apiVersion": 1, "groups": groups},
        grouped(left_out, [alert.rule for alert in exported.alerts]),
        _STATES,
    )


def _grafana_rule(alert: Alert, datasource: str) -> Mapping[str, Any]:
    keep = {"keepFiringFor": duration_text(alert.keep_seconds)} if alert.keep_seconds else {}
    title = f"{alert.rule.id} {alert.pools}".strip()
    document = {
        "uid": f"driftwatch-{hashlib.sha256(title.encode()).hexdigest()[:16]}",
        "title": title,
        "condition": "C",
        "data": [
            {
                "refId": "A",
                "relativeTimeRange": {"from": 300, "to": 0},
                "datasourceUid": datasource,
                "model": {"refId": "A", "expr": _expression(_state(alert)), "instant": True},
            },
            {
                "refId": "C",
                "relativeTimeRange": {"from": 0, "to": 0},
                "datasourceUid": "__expr__",
                "model": {
                    "refId": "C",
                    "type": "threshold",
                    "expression": "A",
                    "conditions": [
                        {
                            "evaluator": {"type": "gt", "params": [1.5]},
                            "unloadEvaluator": {"type": "lt", "params": [0.5]},
                        }
                    ],
                },
            },
        ],
        "noDataState": "KeepLast",
        "execErrState": "Error",
        "for": duration_text(alert.pending_seconds),
        **keep,
        # Grafana reads $NAME in these files as a variable of the environment
        "labels": {name: text.replace("$", "$$") for name, text in alert.labels.items()},
        "annotations": {n: text.replace("${", "$${") for n, text in alert.annotations.items()},
    }
    return _commented(alert, document)


def _state(alert: Alert) -> Promql:
    """2 where it is true, 0 where it ends, 1 elsewhere."""
    state: Promql = Binary(alert.true, "*", Atom("2"))
    if alert.ends is not None:
        state = Binary(state, "or", Binary(alert.ends, "*", Atom("0")))
    return Binary(state, "or", alert.every)


_WRITERS: Mapping[To, Callable[[Exported, str], _Body]] = {
    "prometheus": _prometheus,
    "kubernetes": _kubernetes,
    "alertmanager": _alertmanager,
    "grafana": _grafana,
}


def _comments(to: To, exported: Exported, omissions: Sequence[Omission], notes: str) -> str:
    """The head of a file: what made it, what it needs, what is not in it."""
    parts = [
        f"Made by `driftwatch rules export --to {to}`: change the rules, not this file.",
        notes,
    ]
    if to != "alertmanager":
        parts.append("It reads the target metrics of a driftwatch that has the same rules.")
    parts += [str(one) for one in omissions]
    if to != "alertmanager":
        parts += [f"Off: {rule.id}: {rule.reason}" for rule in exported.disabled]
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
    """A duration as Prometheus and Grafana read it.

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
