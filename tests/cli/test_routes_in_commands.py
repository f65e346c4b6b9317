"""Routes in check, doctor, incidents: what nobody gets is visible."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from conftest import Run
from incident_cases import START, incident

from driftwatch.incidents.delivery import PlannedDelivery
from driftwatch.store import Store, TickRecord

CONFIG = """\
sources: [{pages: [http://127.0.0.1:9/metrics]}]
receivers: [{name: oncall, stdout: {}, severities: [page]}]
"""


@pytest.mark.parametrize("words", [("check",), ("rules", "check")])
def test_a_route_for_an_alert_that_no_rule_has_is_a_warning(
    run: Run, tmp_path: Path, words: tuple[str, ...]
) -> None:
    routes = "routes: [{matchers: [alert=BatchLimitBindng], receivers: [oncall]}]\n"
    (tmp_path / "driftwatch.yaml").write_text(CONFIG + routes, encoding="utf-8")
    code, out, _ = run(*words)
    assert code == 3
    assert out.splitlines()[0] == (
        "driftwatch.yaml:3:22: warning[unknown-alert] there is no alert BatchLimitBindng: "
        "this route takes nothing"
    )
    assert " help: did you mean BatchLimitBinding?" in out


def test_a_route_for_a_shipped_alert_is_no_problem(run: Run, tmp_path: Path) -> None:
    routes = "routes: [{matchers: [alert=BatchLimitBinding], receivers: [oncall]}]\n"
    (tmp_path / "driftwatch.yaml").write_text(CONFIG + routes, encoding="utf-8")
    assert run("check")[0] == 0


def test_doctor_names_severities_that_reach_nobody(run: Run, tmp_path: Path) -> None:
    (tmp_path / "driftwatch.yaml").write_text(CONFIG, encoding="utf-8")
    _, out, _ = run("doctor", "--json")
    checks = [one for one in json.loads(out)["checks"] if one["where"] == "routes"]
    assert [(one["status"], one["what"]) for one in checks] == [
        ("ok", "pages reach a receiver: receivers that take pages"),
        (
            "WARNING",
            "tickets reach nobody: no receiver takes tickets, and there is no fallback_receiver",
        ),
    ]
    (tmp_path / "driftwatch.yaml").write_text(f"{CONFIG}fallback_receiver: oncall\n", "utf-8")
    _, out, _ = run("doctor", "--json")
    checks = [one for one in json.loads(out)["checks"] if one["where"] == "routes"]
    assert [one["status"] for one in checks] == ["ok", "ok"]


def test_incidents_names_the_pages_that_no_receiver_got(run: Run, tmp_path: Path) -> None:
    page = {"event": "firing", "rule": "CapBinds"}
    lost, sent = incident("a", page=page), incident("b", page=page)
    others = [
        incident("c", page=page, severity="notice"),
        incident("d", page=page, silenced_by="s"),
        incident("e", "pending"),
    ]
    now = START + timedelta(minutes=10)
    with Store.open(tmp_path / "driftwatch.db") as store:
        delivery = PlannedDelivery(sent.id, "firing", "oncall", "first", page, now)
        incidents = (lost, sent, *others)
        store.commit_tick(TickRecord(START, now, incidents, deliveries=(delivery,)))
    code, _, err = run("incidents", "--db", "driftwatch.db")
    assert code == 0
    assert err == "no receiver got one of these: aaaaaaaa (see driftwatch notify route)\n"
    _, out, _ = run("incidents", "--db", "driftwatch.db", "--json")
    listed = {one["id"][0]: one["reaches_nobody"] for one in json.loads(out)["incidents"]}
    assert listed == {"a": True, "b": False, "c": False, "d": False, "e": False}
