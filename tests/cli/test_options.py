"""Settings of the server that no metric shows, from the command line."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from driftwatch.cli.history import plan_from
from driftwatch.cli.options import parse_time
from driftwatch.cli.printer import Progress, table_lines
from driftwatch.clock import ManualClock
from driftwatch.errors import UsageError


def test_the_command_line_wins_over_the_log(
    shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = shared_data / "vllm-0.32/server_startup_log.txt"
    serving = plan_from(None, max_num_seqs=16, startup_log=log).default_serving
    assert serving.max_num_seqs is not None
    assert (serving.max_num_seqs.value, serving.max_num_seqs.provenance) == (16, "command line")
    # what the log says otherwise is said, not swallowed
    assert "max_num_seqs is 16" in capsys.readouterr().err


def test_a_budget_below_the_cap_is_refused() -> None:
    with pytest.raises(UsageError, match="vLLM refuses"):
        plan_from(None, max_num_seqs=64, max_num_batched_tokens=32)


@pytest.mark.parametrize(
    "text", ["2026-11-18T02:56Z", "2026-11-18T03:56+01:00", "2026-11-18 02:56", "1794970560"]
)
def test_times(text: str) -> None:
    assert parse_time(text).isoformat() == "2026-11-18T02:56:00+00:00"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("now", "12:00:00"), ("-6h", "06:00:00"), ("-90s", "11:58:30"), ("-1h30m", "10:30:00")],
)
def test_times_before_now(text: str, expected: str) -> None:
    clock = ManualClock(datetime(2026, 3, 1, 12, tzinfo=UTC))
    assert f"{parse_time(text, clock):%H:%M:%S}" == expected


def test_time_left_is_that_of_the_last_half_minute(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow beginning (6 % in a minute) does not spoil what follows at 2 % a second."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    now = 0.0
    progress = Progress("replaying", lambda: now)
    shares = [0.001 * second for second in range(61)] + [0.06 + 0.02 * s for s in range(1, 46)]
    for share in shares:
        progress(share, 1.0)
        now += 1.0
    progress.close()
    assert capsys.readouterr().err.splitlines() == [
        "replaying: 3 %, 970 s left",
        "replaying: 6 %, 940 s left",
        "replaying: 65 %, 17 s left",
    ]


def test_what_ends_within_a_second_shows_no_progress(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    now = 0.0
    progress = Progress("reading", lambda: now)
    for now in (0.0, 0.5, 0.9):
        progress(now, 1.0)
    progress.close()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("text", ["", "yesterday", "nan", "1e300", "2026-13-01"])
def test_no_times(text: str) -> None:
    with pytest.raises(ValueError):
        parse_time(text)


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_a_narrow_terminal_loses_no_letter(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    row = ["3f9c1a7be204", "resolved", "BatchLimitBinding", "rag-8b", "2026-11-21 08:22 UTC"]
    lines = [*table_lines(["id", "state", "rule", "where", "since"], [row], is_terminal=True)]
    assert max(map(len, lines)) <= columns
    drawn = "".join(line for line in lines[1:])
    assert sorted(drawn.replace(" ", "")) == sorted("".join(row).replace(" ", ""))
