"""driftwatch incidents: which are listed, and how."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from incident_cases import START, incident
from small_page import small_page

from driftwatch.clock import ManualClock

Run = Callable[..., tuple[int, str, str]]


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
        return "".join(line[0] for line in out.splitlines())

    assert listed() == "ba"
    assert listed("--all") == "badc"
    assert listed("--since", "24h") == "bad"
    assert listed("--since", "2026-03-01T00:00Z") == "badc"
    assert listed("--since", "2026-03-01T03:56:01") == "bad"  # UTC where it does not say
    assert listed("--since", "2026-03-01T04:56:00+01:00") == "badc"
    assert listed("--all", "--limit", "2") == "ba"


def test_a_cut_list_says_so(run: Run, fill: Callable[..., Path]) -> None:
    fill(incident("a"), incident("b"))
    assert "--limit" in run("incidents", "--limit", "1")[2]
    assert "--limit" not in run("incidents", "--limit", "2")[2]
    assert json.loads(run("incidents", "--limit", "1", "--json")[1])["more"] is True


def test_nothing_open_is_said_on_stderr(run: Run, fill: Callable[..., Path]) -> None:
    fill(incident("c", "resolved"))
    code, out, err = run("incidents")
    assert (code, out) == (0, "")
    assert "no open incident" in err


def test_json(run: Run, fill: Callable[..., Path]) -> None:
    fill(incident("a", page=small_page()), incident("b", "resolved"))
    code, out, _ = run("incidents", "--all", "--json")
    told = json.loads(out)
    assert (code, told["schema_version"], told["more"]) == (0, 1, False)
    one, other = told["incidents"]
    assert one["id"] == "a" * 12
    assert one["started_at"] == "2026-03-01T02:45:00Z"
    assert one["resolved_at"] is None
    assert [server["instance"] for server in one["servers"]] == ["gpu-a:8000"]
    assert one["page"] == small_page().document()
    assert other["resolved_at"] == "2026-03-01T03:56:00Z"


def test_a_label_cannot_break_a_row_or_drive_the_terminal(
    run: Run, fill: Callable[..., Path]
) -> None:
    fill(incident("a", target={"instance": "x\ty\n\x1b[31mz\u202e", "engine": "0"}))
    _, out, _ = run("incidents")
    assert out.count("\n") == 1
    assert out.split("\t")[4] == r"x\ty\n\x1b[31mz\u202e"


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
