"""What a driftwatch serves of rows, and the minutes in which its incidents fire."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
from fakes.exposition_server import Page
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from driftwatch.export.alerts import Exported, alerts_of, file_of
from driftwatch.incidents.incident import Transition
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.incidents import advanced
from driftwatch.rulebook.rules import Rule
from driftwatch.service.metrics import OwnMetrics

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

    @property
    def exported(self) -> Exported:
        return alerts_of(self.rules)

    @property
    def ends(self) -> list[float]:
        return [at for at, _ in self.pages]


def note_servers(one: Watched, rows: pl.DataFrame, until: datetime) -> None:
    """The minutes in which each server by itself would fire: an alert is a server's."""
    for (instance, engine, pool), own in rows.group_by(
        "instance", "engine", "pool", maintain_order=True
    ):
        key = TargetKey(str(instance), str(engine))
        verdicts = own.select(rule.verdict.alias(rule.id) for rule in one.rules)
        target = Target(key, pool=str(pool))
        _, happened, _ = advanced(one.rules, {}, {key: target}, own, verdicts)
        _note(one, happened, until)


def _note(one: Watched, transitions: Sequence[Transition], until: datetime) -> None:
    by_id = {rule.id: rule for rule in one.rules}
    spans: dict[str, tuple[Labels, datetime]] = {}
    for transition in transitions:
        incident = transition.incident
        if transition.event == "firing":
            rule = replace(by_id[incident.rule], severity=incident.severity)
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


def rules_file(exported: Exported, folder: Path) -> Path:
    text = file_of("prometheus", exported)
    path = folder / "rules.yml"
    path.write_text(text, encoding="utf-8")
    return path


def promtool_test(one: Watched, rules: Path, folder: Path) -> str:
    """Run the alerts over the pages; what differs from the incidents, empty = nothing."""
    series = [{"series": name, "values": values} for name, values in _series(one.pages)]
    expected = [
        {
            "expr": 'ALERTS{alertstate="firing"}',
            "eval_time": f"{number}m",
            "exp_samples": [
                {"labels": _name(labels), "value": 1} for labels in one.firing.get(at, ())
            ],
        }
        for number, at in enumerate(one.ends)
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
