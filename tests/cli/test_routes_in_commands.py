"""Doctor and incidents: what nobody gets is visible."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

from conftest import Run
from incident_cases import START, incident
from outbox import planned
from page_cases import CAP

from driftwatch.store import Store, TickRecord

CONFIG = """\
sources: [{pages: [http://127.0.0.1:9/metrics]}]
receivers: [{name: oncall, stdout: {}, severities: [page]}]
"""


def test_doctor_names_severities_that_reach_nobody(run: Run, tmp_path: Path) -> None:
    (tmp_path / "driftwatch.yaml").write_text(CONFIG, encoding="utf-8")
    _, out, _ = run("doctor", "--json")
    checks = [one for one in json.loads(out)["checks"] if one["where"] == "routes"]
    assert [(one["status"], one["what"]) for one in checks] == [
        ("ok", "pages reach a receiver: receivers that take pages"),
        ("WARNING", "tickets reach nobody: no receiver takes tickets"),
    ]


def test_incidents_names_the_pages_that_no_receiver_got(run: Run, tmp_path: Path) -> None:
    page = CAP.page()
    lost, sent = incident("a", page=page), incident("b", page=page)
    others = [
        incident("c", page=page, severity="notice"),
        incident("d", page=page, silenced_by="s"),
        incident("e", "pending"),
    ]
    now = START + timedelta(minutes=10)
    with Store.open(tmp_path / "driftwatch.db") as store:
        delivery = planned(sent.id, page, now)
        incidents = (lost, sent, *others)
        store.commit_tick(TickRecord(START, now, incidents, deliveries=(delivery,)))
    code, _, err = run("incidents", "--db", "driftwatch.db")
    assert code == 0
    assert err == "no receiver got one of these: aaaaaaaa (see driftwatch doctor)\n"
    _, out, _ = run("incidents", "--db", "driftwatch.db", "--json")
    listed = {one["id"][0]: one["reaches_nobody"] for one in json.loads(out)["incidents"]}
    assert listed == {"a": True, "b": False, "c": False, "d": False, "e": False}
