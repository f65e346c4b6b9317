"""driftwatch incidents: which are listed, and how."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from command_cases import START, Run, incident
from fakes.manual_clock import ManualClock
from outbox import planned
from page_cases import CAP

from driftwatch.store.store import Store, TickRecord


def test_piped_it_is_whole_rows_between_tabs_open_ones_only(
    run: Run, fill: Callable[..., Path]
) -> None:
    long = "gpu-" + "x" * 200 + ":8000"
    fill(
        incident("a", "pending", inhibited_by="EngineStuck"),
        incident("b", target={"instance": long, "engine": "1"}, silenced_by="c0ffee"),
        incident("c", "resolved"),
    )
    code, out, err = run("incidents")
    assert (code, err) == (0, "")
    known = ["b" * 12, "silenced", "page", "2026-03-01T02:45:00Z"]
    assert [line.split("\t") for line in out.splitlines()] == [
        ["ID", "STATE", "SEVERITY", "SINCE UTC", "WHERE", "ALERT", "NOTE"],
        [*known, f"{long}/1", "BatchLimitBinding", ""],
        [
            *("a" * 12, "pending", *known[2:]),
            *("gpu-a:8000", "BatchLimitBinding", "waits while EngineStuck fires"),
        ],
    ]


def test_which_are_listed(run: Run, fill: Callable[..., Path]) -> None:
    now = datetime.now(UTC)
    old = incident("c", "resolved")
    new = incident("d", "resolved", started_at=now, resolved_at=now)
    fill(incident("a", "pending"), incident("b"), old, new)

    def listed(*arguments: str) -> str:
        code, out, _ = run("incidents", *arguments)
        assert code == 0
        return "".join(line[0] for line in out.splitlines()[1:])

    assert listed() == "ba"
    assert listed("--all") == "badc"
    assert listed("--since", "24h") == "bad"
    assert listed("--since", "2026-03-01T00:00Z") == "badc"
    assert listed("--since", "2026-03-01T03:56:01") == "bad"  # UTC where it does not say
    assert listed("--since", "2026-03-01T04:56:00+01:00") == "badc"


def test_a_list_that_is_cut_or_empty_says_so(
    run: Run, fill: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(incident("a", "resolved"), incident("b", "resolved"))
    assert run("incidents")[:2] == (0, "")
    assert "no open incident" in run("incidents")[2]
    assert "the first" not in run("incidents", "--all")[2]
    monkeypatch.setattr("driftwatch.cli.incidents._MOST", 1)
    assert "the first 1; --since for fewer" in run("incidents", "--all")[2]
    assert json.loads(run("incidents", "--all", "--json")[1])["more"] is True


def test_a_label_cannot_break_a_row_or_drive_the_terminal(
    run: Run, fill: Callable[..., Path]
) -> None:
    fill(incident("a", target={"instance": "x\ty\n\x1b[31mz\u202e", "engine": "0"}))
    _, out, _ = run("incidents")
    assert out.count("\n") == 2
    assert out.splitlines()[1].split("\t")[4] == r"x\ty\n\x1b[31mz\u202e"


def test_the_table_on_a_terminal(
    run: Run, fill: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = START + timedelta(hours=1)
    monkeypatch.setattr("driftwatch.cli.incidents.SystemClock", lambda: ManualClock(now))
    yesterday = START - timedelta(days=1)
    fill(
        incident("a"),
        incident("b", acknowledged_by="Ana"),
        incident("c", "resolved", severity="notice", started_at=yesterday),
        incident("d", started_at=yesterday, target={"instance": "h" * 70}, alert="A" * 70),
    )
    rows = run("incidents", "--all", terminal=True)[1].splitlines()
    assert max(len(row) for row in rows) <= 80
    assert rows[0].split() == ["ID", "STATE", "SEVERITY", "SINCE", "UTC", "WHERE", "ALERT"]
    assert [row.split()[:4] for row in rows[1:] if not row.startswith(" ")] == [
        ["aaaaaaaa", "firing", "page", "02:45"],
        ["bbbbbbbb", "acknowledged", "page", "02:45"],
        ["dddddddd", "firing", "page", "28"],
        ["cccccccc", "resolved", "notice", "28"],
    ]
    assert " " * 10 + "Ana" in rows
    assert "…" not in "".join(rows)  # nothing is cut


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
        store.commit_tick(TickRecord(now, incidents, deliveries=(delivery,)))
    code, _, err = run("incidents", "--db", "driftwatch.db")
    assert code == 0
    hint = "(a replay sends none; driftwatch doctor -c FILE checks the receivers)"
    assert err == f"no receiver got one of these: aaaaaaaa {hint}\n"
    _, out, _ = run("incidents", "--db", "driftwatch.db", "--json")
    listed = {one["id"][0]: one for one in json.loads(out)["incidents"]}
    assert [name for name, one in listed.items() if one["reaches_nobody"]] == ["a"]
    assert listed["a"]["page"] == page.document() and listed["a"]["resolved_at"] is None
