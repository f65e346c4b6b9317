"""for, keep_firing_for, until, given, overrides: Prometheus' alerts against incidents."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from fakes import prometheus_server
from fakes.exposition_server import Page
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from target_metric_cases import evidence_rows

from driftwatch.export.alerts import alert_file, alerts_of
from driftwatch.incidents.incident import Transition
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.incidents import advance
from driftwatch.rulebook.book import load_rulebook
from driftwatch.rulebook.rules import Rule
from driftwatch.service import metrics as own_metrics
from driftwatch.service.metrics import OwnMetrics
from driftwatch.settings import load_settings

pytestmark = [
    pytest.mark.prometheus,
    pytest.mark.skipif(not prometheus_server.installed(), reason=prometheus_server.NOT_INSTALLED),
]


END = datetime(2026, 1, 2, 3, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
Labels = tuple[tuple[str, str], ...]


def served(
    rows: pl.DataFrame,
    targets: Mapping[TargetKey, Target] | None = None,
    *,
    rules: Collection[Rule],
) -> str:
    """The page of the newest minute of some rows, as the service's own exporter writes it."""
    end = rows["end"].max()
    assert isinstance(end, datetime)
    if targets is None:
        keys = [TargetKey(*key) for key in rows.select("instance", "engine").unique().iter_rows()]
        targets = {key: Target(key, pool="rag") for key in keys}
    metrics = OwnMetrics(lambda: end)
    metrics.note_minutes(rows, targets, rules)
    return generate_latest(metrics.registry).decode()


@dataclass
class Watched:
    """Rows after driftwatch watched them, every rule on its own."""

    rules: tuple[Rule, ...]
    pages: list[Page] = field(default_factory=list)  # of driftwatch itself, a page a minute
    # minute end → labels of the incidents that fire
    firing: dict[float, list[Labels]] = field(default_factory=dict)


def note_servers(one: Watched, rows: pl.DataFrame, until: datetime) -> None:
    """The minutes in which each server by itself would fire: an alert is a server's."""
    for (instance, engine, pool), own in rows.group_by(
        "instance", "engine", "pool", maintain_order=True
    ):
        key = TargetKey(str(instance), str(engine))
        verdicts = own.select(rule.verdict.alias(rule.id) for rule in one.rules)
        target = Target(key, pool=str(pool))
        _, happened, _ = advance(one.rules, {}, {key: target}, own, verdicts)
        _note(one, happened, until)


def _note(one: Watched, transitions: Sequence[Transition], until: datetime) -> None:
    by_id = {rule.id: rule for rule in one.rules}
    spans: dict[str, tuple[Labels, datetime]] = {}
    for transition in transitions:
        incident = transition.incident
        if transition.event == "firing":
            rule = by_id[incident.rule].model_copy(update={"severity": incident.severity})
            (server,) = incident.servers
            about = {"pool": incident.pool, "instance": server.instance, "engine": server.engine}
            spans[incident.key] = (_labels(rule, about), transition.at)
        elif transition.event == "resolved":
            note_firing(one, *spans.pop(incident.key), transition.at)
    for labels, since in spans.values():
        note_firing(one, labels, since, until)


def note_firing(one: Watched, labels: Labels, since: datetime, until: datetime) -> None:
    """In every minute that ends in [since, until)."""
    while since < until:
        one.firing.setdefault(since.timestamp(), []).append(labels)
        since += MINUTE


def _labels(rule: Rule, target: Mapping[str, str]) -> Labels:
    about = ("pool", "instance", "engine")
    override = next((one for one in rule.overrides if one.fits_pool(target["pool"])), None)
    labels = {
        "alertname": rule.alert,
        "severity": rule.severity,
        **rule.labels,
        **({} if override is None else {"pools": ",".join(override.pools)}),
        **{name: target[name] for name in about},
    }
    return tuple(sorted(labels.items()))


def promtool_test(one: Watched, folder: Path) -> str:
    """Run the alerts over the pages; what differs from the incidents, empty = nothing."""
    rules = folder / "rules.yml"
    rules.write_text(alert_file("prometheus", alerts_of(one.rules)), encoding="utf-8")
    series = [{"series": name, "values": values} for name, values in _series(one.pages)]
    expected = [
        {
            "expr": 'ALERTS{alertstate="firing"}',
            "eval_time": f"{number}m",
            "exp_samples": [
                {"labels": _name(labels), "value": 1} for labels in one.firing.get(at, ())
            ],
        }
        for number, (at, _) in enumerate(one.pages)
    ]
    document = {
        "rule_files": [str(rules)],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": expected}],
    }
    path = folder / "test.yml"
    path.write_text(json.dumps(document), encoding="utf-8")
    ran = subprocess.run(
        ["promtool", "test", "rules", str(path)], capture_output=True, text=True, check=False
    )
    return "" if ran.returncode == 0 else ran.stdout + ran.stderr


def _name(labels: Labels) -> str:
    pairs = {**dict(labels), "alertstate": "firing"}
    return "ALERTS" + "{" + ",".join(f"{k}={json.dumps(v)}" for k, v in pairs.items()) + "}"


def _series(pages: Sequence[Page]) -> Iterator[tuple[str, str]]:
    """Every series in promtool's notation; what is not on a page is stale, as after a scrape."""
    values: dict[str, dict[int, float]] = {}
    for number, (_, body) in enumerate(pages):
        for family in text_string_to_metric_families(body or ""):
            for sample in family.samples:
                labels = ",".join(f"{k}={json.dumps(v)}" for k, v in sorted(sample.labels.items()))
                values.setdefault(f"{sample.name}{{{labels}}}", {})[number] = sample.value
    for name, of_minutes in values.items():
        words = []
        for number in range(len(pages)):
            missing = "stale" if number - 1 in of_minutes else "_"
            words.append(repr(of_minutes[number]) if number in of_minutes else missing)
        yield name, " ".join(words)


# `waiting_requests` is always known here: `for` and `keep_firing_for` count other minutes than
# driftwatch where a minute has no verdict, which the file says
RULES = """
groups:
  - name: mine
    rules:
      - {alert: Plain, when: running_requests > 5, severity: page}
      - {alert: Holds, when: running_requests > 7, until: running_requests < 3, severity: page}
      - alert: Where
        given: slo_missed
        when: running_requests > 5
        until: running_requests < 4
        severity: ticket
      - {alert: Waits, when: waiting_requests > 5, for: 3m, keep_firing_for: 4m, severity: page}
      - alert: WaitsAndHolds
        when: waiting_requests > 7
        until: waiting_requests < 3
        for: 90s
        keep_firing_for: 3m
        severity: page
      - {alert: Missing, when: running_requests IS NULL AND NOT slo_missed, severity: notice}
      - {alert: Twice, when: running_requests > 6, severity: page, labels: {way: up}}
      - {alert: Twice, when: running_requests < 1, severity: page, labels: {way: up, at: "0"}}
      - {alert: Twice, when: waiting_requests > 8, severity: ticket}
      - alert: Elsewhere
        when: running_requests > 7
        severity: page
"""
CONFIG = """
sources: [{pages: ['http://h:8000/metrics']}]
rules:
  files: [rules.yaml]
  overrides:
    - alert: Elsewhere
      pools: [b*]
      when: running_requests > 3
      until: running_requests < 2
      severity: ticket
    - {alert: Elsewhere, pools: [c, bb], enabled: false, reason: nobody minds}
"""
POOLS = {"a0": "a", "a1": "a", "a2": "a", "b0": "bb", "b1": "bb", "c0": "c", "d0": "d"}
TARGETS = {TargetKey(name, "0"): Target(TargetKey(name, "0"), pool=p) for name, p in POOLS.items()}
SILENT = frozenset({TargetKey("a2", "0")})  # never answered: its pool does not wait for it
MINUTES = 150
_OF_INCIDENTS = {
    **dict.fromkeys(("binding_since", "deferred_since"), pl.Datetime("us", "UTC")),
    **dict.fromkeys(("seconds_since_last_token", "coverage_missing_seconds"), pl.Float64),
}


def _rows(seed: int) -> pl.DataFrame:
    """Values that wander, and are missing for a while now and then."""
    choose = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for key, target in TARGETS.items():
        running, waiting, missing = 5.0, 5.0, 0
        for number in range(MINUTES):
            running = min(max(running + choose.choice([-3, -1, 0, 1, 3]), 0.0), 10.0)
            waiting = min(max(waiting + choose.choice([-3, -1, 0, 1, 3]), 0.0), 10.0)
            missing = max(missing - 1, choose.choice([0] * 12 + [1, 4]))
            silent = key in SILENT
            rows.append(
                {
                    "instance": key.instance,
                    "pool": target.pool,
                    "end": END + number * MINUTE,
                    "ever_seen": not silent,
                    "running_requests": None if silent or missing else running,
                    "waiting_requests": None if silent else waiting,
                    "slo_missed": None if silent else choose.choice([True, True, False, None]),
                }
            )
    types = {"pool": pl.String, "slo_missed": pl.Boolean}
    return evidence_rows(*rows, **types, **_OF_INCIDENTS).sort("end", "instance")  # type: ignore[arg-type]


def life_cycle_rules(folder: Path) -> tuple[Rule, ...]:
    (folder / "rules.yaml").write_text(RULES, encoding="utf-8")
    config = folder / "driftwatch.yaml"
    config.write_text(CONFIG, encoding="utf-8")
    return load_rulebook(configured=load_settings(config)).rules


def life_cycle(folder: Path, seed: int) -> Watched:
    """The rules over rows of a seed: pages, and the minutes in which incidents fire."""
    rules, rows = life_cycle_rules(folder), _rows(seed)
    one = Watched(rules)
    for (end,), of_minute in rows.group_by("end", maintain_order=True):
        assert isinstance(end, datetime)
        page = served(of_minute, TARGETS, rules=rules)
        one.pages.append((end.timestamp(), page))
    note_servers(one, rows, END + MINUTES * MINUTE)
    return one


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_alerts_fire_in_the_minutes_of_the_incidents(seed: int, tmp_path: Path) -> None:
    one = life_cycle(tmp_path, seed)
    firing = {dict(labels)["alertname"] for minute in one.firing.values() for labels in minute}
    assert firing == {rule.alert for rule in one.rules}
    assert promtool_test(one, tmp_path) == ""


def test_an_alert_survives_a_restart_of_driftwatch_and_ends_with_its_target(
    tmp_path: Path,
) -> None:
    rules = life_cycle_rules(tmp_path)
    key = TargetKey("a0", "0")
    one = Watched(tuple(rule for rule in rules if rule.alert == "Holds"))
    for number in range(25):
        at = END + number * MINUTE
        row = {"instance": "a0", "end": at, "running_requests": 9.0 if number < 3 else 5.0}
        page = served(evidence_rows(row), {key: TARGETS[key]}, rules=one.rules)
        # away from 5 to 8, gone from 15 on
        is_served = number < 5 or 8 <= number < 15
        one.pages.append((at.timestamp(), page if is_served else ""))
    labels = {"alertname": "Holds", "severity": "page", "pool": "a", "instance": "a0"}
    until = END + 20 * MINUTE  # 5 min after the last page with it
    note_firing(one, tuple(sorted({**labels, "engine": "0"}.items())), END, until)
    assert promtool_test(one, tmp_path) == ""


@pytest.mark.parametrize("why", ["too many targets", "no driftwatch"])
def test_exported_alerts_are_not_silent_where_nothing_is_served(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_metrics, "MOST_VALUES", 1)
    rules = life_cycle_rules(tmp_path)
    one = Watched(tuple(rule for rule in rules if rule.alert == "Missing"))
    for number in range(20):
        at = END + number * MINUTE
        rows = evidence_rows({"instance": "a0", "end": at}, slo_missed=pl.Boolean)
        page = served(rows, rules=one.rules)
        one.pages.append((at.timestamp(), page if why == "too many targets" else ""))
        if number >= 15:
            alert = {"alertname": "DriftwatchServesNoRuleMetrics", "severity": "ticket"}
            one.firing[at.timestamp()] = [tuple(alert.items())]
    assert promtool_test(one, tmp_path) == ""
