"""driftwatch's own metrics: the newest minute of each target, open incidents, what the log says."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from made_incidents import incident_of, with_values
from pipeline_cases import T0
from prometheus_client.exposition import generate_latest
from target_metric_cases import evidence_rows

from driftwatch.collect.schema import scrape_frame
from driftwatch.model import Target, TargetKey
from driftwatch.rulebook.book import load_rulebook
from driftwatch.rulebook.rules import Rule
from driftwatch.service import metrics as own_metrics
from driftwatch.service.metrics import (
    EVERY_TARGET,
    LEFT_OUT,
    LIMIT_BINDS,
    LIMITS,
    MOST_INCIDENTS,
    ONE,
    OPEN,
    PREFIX,
    RULE,
    RULES_LEFT_OUT,
    TARGET_COLUMNS,
    OwnMetrics,
)
from driftwatch.service.notes import ScrapeFailures
from driftwatch.settings import load_settings

END = T0 + timedelta(minutes=1)
RUNNING = f"{PREFIX}running_requests"


class Served:
    """The metrics of a process at a time."""

    def __init__(self) -> None:
        self.now = END
        self.own = OwnMetrics(lambda: self.now)

    def note(
        self,
        *rows: Mapping[str, object],
        targets: tuple[str, ...] = ("a:1",),
        pool: str = "rag",
        rules: tuple[Rule, ...] = (),
    ) -> None:
        keys = [TargetKey(instance, "0") for instance in targets]
        listed = {key: Target(key, pool=pool) for key in keys}
        frame = evidence_rows(*({"end": END, **row} for row in rows))
        self.own.note_minutes(frame, listed, rules)

    def value(self, name: str, instance: str = "a:1", **labels: str) -> float | None:
        found = {"instance": instance, "engine": "0", "pool": "rag", **labels}
        return self.own.registry.get_sample_value(name, found)

    @property
    def incidents(self) -> dict[tuple[str, ...], float]:
        return {
            tuple(sample.labels.values()): sample.value
            for family in self.own.registry.collect()
            for sample in family.samples
            if sample.name == ONE
        }


@pytest.fixture
def served() -> Served:
    return Served()


def test_what_is_known_is_served_and_what_is_not_has_no_series(served: Served) -> None:
    known = {"instance": "a:1", "running_requests": 0.0, "binding_limit": "kv_cache"}
    never = {"instance": "c:1", "ever_seen": False}
    served.note(known, {"instance": "b:1"}, never, targets=("a:1", "b:1", "c:1"))
    assert (served.value(RUNNING), served.value(RUNNING, "b:1")) == (0.0, None)
    binds = {limit: served.value(LIMIT_BINDS, limit=limit) for limit in LIMITS}
    assert binds == {**dict.fromkeys(LIMITS, 0.0), "kv_cache": 1.0}
    assert served.value(LIMIT_BINDS, "b:1", limit="kv_cache") is None
    assert [served.value(EVERY_TARGET, f"{name}:1") for name in "abc"] == [1.0, 1.0, 0.0]


def test_only_the_newest_minute_is_served_while_it_is_now(served: Served) -> None:
    older = {"instance": "gone:1", "end": T0, "running_requests": 1.0}
    served.note(older, {"instance": "a:1", "running_requests": 2.0})
    assert served.value(RUNNING) == 2.0
    assert "gone:1" not in generate_latest(served.own.registry).decode()
    served.now = END + timedelta(seconds=own_metrics.STALE_SECONDS)
    assert served.value(RUNNING) == 2.0
    served.now += timedelta(seconds=1)
    assert served.value(RUNNING) is None


# how many targets and values fit → what is served of one target with two rules; what says so
@pytest.mark.parametrize(
    ("targets", "values", "running", "state", "left_out"),
    [
        (1, len(TARGET_COLUMNS) + 2, 1.0, 0.0, (0, 0)),
        (1, len(TARGET_COLUMNS) + 1, 1.0, None, (0, 1)),
        (0, 0, None, None, (1, 0)),
    ],
)
def test_above_a_bound_states_give_way_and_then_everything(
    served: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    targets: int,
    values: int,
    running: float | None,
    state: float | None,
    left_out: tuple[int, int],
) -> None:
    monkeypatch.setattr(own_metrics, "MOST_TARGETS", targets)
    monkeypatch.setattr(own_metrics, "MOST_VALUES", values)
    served.note({"instance": "a:1", "running_requests": 1.0}, rules=rules_of(tmp_path))
    assert (served.value(RUNNING), served.value(RULE, rule="Full")) == (running, state)
    said = (served.own.registry.get_sample_value(name) for name in (LEFT_OUT, RULES_LEFT_OUT))
    assert tuple(said) == left_out


RULES = """
groups:
  - name: mine
    rules:
      - {alert: Full, when: running_requests > 7, until: running_requests < 3, severity: page}
      - {alert: Waits, when: waiting_requests > 5, severity: page}
"""


def rules_of(folder: Path) -> tuple[Rule, ...]:
    (folder / "rules.yaml").write_text(RULES)
    config = folder / "driftwatch.yaml"
    overrides = "{alert: Waits, pools: [rag], when: waiting_requests > 2}"
    rules = f"rules: {{files: [rules.yaml], overrides: [{overrides}]}}"
    config.write_text(f"sources: [{{pages: [http://h:1]}}]\n{rules}\n")
    return load_rulebook(configured=load_settings(config)).rules


@pytest.mark.parametrize(
    ("running", "state"), [(8.0, 1.0), (5.0, 0.5), (2.0, 0.0), (None, None), (float("nan"), None)]
)
def test_the_state_of_a_rule_in_its_pool(
    served: Served, running: float | None, state: float | None, tmp_path: Path
) -> None:
    row = {"instance": "a:1", "running_requests": running, "waiting_requests": 4.0}
    for pool, waits in (("rag", 1.0), ("other", 0.0)):  # of rag another threshold counts
        served.note(row, pool=pool, rules=rules_of(tmp_path))
        assert served.value(RULE, rule="Full", pool=pool) == state
        assert served.value(RULE, rule="Waits", pool=pool) == waits


FIRING = incident_of("1", rule="CapBinds", pool="rag", at=T0 + timedelta(minutes=5))


def test_each_open_incident_is_named_until_it_is_over(served: Served) -> None:
    def count(state: str) -> float | None:
        return served.own.registry.get_sample_value(OPEN, {"severity": "page", "state": state})

    assert count("firing") is None
    waits = incident_of("2", rule="Lost", pool="rag", firing=False)
    served.own.note_incidents([waits, FIRING, with_values(FIRING, resolved_at=T0)])
    assert served.incidents == {
        ("CapBinds", "rag", "page", "firing"): 1.0,
        ("Lost", "rag", "page", "pending"): 1.0,
    }
    assert [count(state) for state in ("firing", "pending", "acknowledged")] == [1, 1, 0]
    served.own.note_incidents([])
    assert (served.incidents, count("firing")) == ({}, 0)


def test_in_a_storm_the_most_urgent_are_named_and_all_are_counted(served: Served) -> None:
    many = [
        with_values(FIRING, pool=f"{n:05d}", severity="notice") for n in range(MOST_INCIDENTS + 50)
    ]
    served.own.note_incidents([*many, with_values(FIRING, pool="~")])
    names = [labels[1] for labels in served.incidents]
    assert len(names) == MOST_INCIDENTS and "~" in names
    labels = {"severity": "notice", "state": "firing"}
    assert served.own.registry.get_sample_value(OPEN, labels) == len(many)


# scrapes of one call: server, engine, second, why it failed → what the log says of it
@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ([[("a", "0", 0, None)], [("a", "0", 5, "x")], [("a", "0", 10, "x")]], [("a", 5, "x")]),
        ([[("a", "0", 0, "x")], [("a", "0", 5, "y")]], [("a", 0, "x"), ("a", 5, "y")]),
        ([[("a", "0", 0, "x")], [("a", "0", 5, None)]], [("a", 0, "x"), ("a", 5, None)]),
        # a number that changes is no news
        ([[("a", "0", 0, "byte 81")], [("a", "0", 5, "byte 9")]], [("a", 0, "byte 81")]),
        # engines of one server fail together
        ([[("a", "0", 0, "x"), ("a", "1", 0, "x")]], [("a", 0, "x")]),
        ([[("b", "0", 9, None), ("b", "0", 0, "x"), ("a", "0", 0, "y")]],
         [("a", 0, "y"), ("b", 0, "x"), ("b", 9, None)]),
    ],
)  # fmt: skip
def test_a_server_that_fails_is_named_when_that_begins_changes_and_ends(
    calls: list[list[tuple[str, str, int, str | None]]], said: list[tuple[str, int, str | None]]
) -> None:
    failing, found = ScrapeFailures(), []

    def at(second: int) -> datetime:
        return T0 + timedelta(seconds=second)

    for rows in calls:
        names = ("instance", "engine", "time", "ok", "reason")
        scrapes = scrape_frame(
            [
                dict(zip(names, (name, engine, at(second), why is None, why), strict=True))
                for name, engine, second, why in rows
            ]
        )
        found += [(c.instance, c.time, c.reason) for c in failing.changes(scrapes)]
    assert found == [(name, at(second), why) for name, second, why in said]
