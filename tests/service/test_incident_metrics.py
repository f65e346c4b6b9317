"""Open incidents on /metrics: nothing before a tick, zeros after it, and each one by name."""

from __future__ import annotations

from datetime import timedelta

from made_incidents import incident_of, with_values
from pipeline_cases import T0
from prometheus_client.exposition import generate_latest

from driftwatch.service.own_metrics import MOST_INCIDENTS, ONE, OPEN, OwnMetrics

FIRING = incident_of("1", rule="CapBinds", pool="rag", at=T0 + timedelta(minutes=5))


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
        for state in ("acknowledged", "firing", "pending")
    ]
    assert _served(own) == {}


def test_each_open_incident_is_named_until_it_is_over() -> None:
    own = OwnMetrics()
    waits = incident_of("2", rule="Lost", pool="rag", firing=False)
    own.note_incidents([waits, FIRING, with_values(FIRING, resolved_at=T0)])
    assert _served(own) == {
        ("CapBinds", "rag", "page", "firing"): 1.0,
        ("Lost", "rag", "page", "pending"): 1.0,
    }
    value = own.registry.get_sample_value
    assert value(OPEN, {"severity": "page", "state": "firing"}) == 1
    assert value(OPEN, {"severity": "page", "state": "pending"}) == 1
    assert value(OPEN, {"severity": "ticket", "state": "firing"}) == 0
    own.note_incidents([])
    assert _served(own) == {}


def test_in_a_storm_the_most_urgent_are_named_and_all_are_counted() -> None:
    own = OwnMetrics()
    many = [
        with_values(FIRING, pool=f"{n:05d}", severity="notice") for n in range(MOST_INCIDENTS + 50)
    ]
    late = with_values(FIRING, pool="~")
    own.note_incidents([*many, late])
    names = [labels[1] for labels in _served(own)]
    assert len(names) == MOST_INCIDENTS
    assert "~" in names
    value = own.registry.get_sample_value
    assert value(OPEN, {"severity": "notice", "state": "firing"}) == len(many)
