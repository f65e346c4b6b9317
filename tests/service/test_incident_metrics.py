"""Open incidents on /metrics: nothing before a tick, zeros after it, and each one by name."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from pipeline_cases import T0
from prometheus_client.exposition import generate_latest

from driftwatch.incidents.incident import Incident
from driftwatch.service.own_metrics import MOST_INCIDENTS, ONE, OPEN, OwnMetrics

FIRING = Incident(
    id="1" * 12,
    key="CapBinds{instance=a:1}",
    rule="CapBinds",
    alert="BatchLimitBinding",
    severity="page",
    target={"instance": "a:1", "engine": "0", "pool": "rag", "model_name": "m"},
    state="firing",
    started_at=T0,
    last_true_at=T0,
    firing_at=T0 + timedelta(minutes=5),
)


def _served(own: OwnMetrics) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels.values()): sample.value
        for family in own.registry.collect()
        for sample in family.samples
        if sample.name == ONE
    }


def test_before_a_tick_nothing_is_said_and_after_it_none_is_open() -> None:
    own = OwnMetrics()
    assert f"{OPEN}{{" not in generate_latest(own.registry).decode()
    own.note_incidents([])
    page = generate_latest(own.registry).decode()
    said = sorted(line for line in page.splitlines() if line.startswith(f"{OPEN}{{"))
    assert said == [
        f'{OPEN}{{severity="{severity}",state="{state}"}} 0.0'
        for severity in ("notice", "page", "ticket")
        for state in ("firing", "pending")
    ]
    assert _served(own) == {}


def test_each_open_incident_is_named_until_it_is_over() -> None:
    own = OwnMetrics()
    pool = replace(FIRING, key="p", rule="Lost", target={"pool": "rag"}, state="pending")
    own.note_incidents([pool, FIRING, replace(FIRING, key="x", state="resolved")])
    assert _served(own) == {
        ("CapBinds", "rag", "a:1", "0", "page", "firing"): 1.0,
        ("Lost", "rag", "", "", "page", "pending"): 1.0,
    }
    value = own.registry.get_sample_value
    assert value(OPEN, {"severity": "page", "state": "firing"}) == 1
    assert value(OPEN, {"severity": "page", "state": "pending"}) == 1
    assert value(OPEN, {"severity": "ticket", "state": "firing"}) == 0
    own.note_incidents([])
    assert _served(own) == {}


def test_no_series_stands_there_twice() -> None:
    """Labels of a rule can hide what tells two incidents apart."""
    own = OwnMetrics()
    own.note_incidents([FIRING, replace(FIRING, key="another")])
    assert len(_served(own)) == 1
    assert own.registry.get_sample_value(OPEN, {"severity": "page", "state": "firing"}) == 2


def test_in_a_storm_the_most_urgent_are_named_and_all_are_counted() -> None:
    own = OwnMetrics()
    many = [
        replace(FIRING, key=f"{n:05d}", target={"instance": f"{n:05d}:1"}, severity="notice")
        for n in range(MOST_INCIDENTS + 50)
    ]
    late = replace(FIRING, key="~", target={"instance": "last:1"})
    own.note_incidents([*many, late])
    names = [labels[2] for labels in _served(own)]
    assert len(names) == MOST_INCIDENTS
    assert "last:1" in names
    value = own.registry.get_sample_value
    assert value(OPEN, {"severity": "notice", "state": "firing"}) == len(many)
