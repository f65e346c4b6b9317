"""Settings of the server that no metric shows, from the command line."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from driftwatch.cli.options import parse_time, plan_from
from driftwatch.cli.printer import Progress
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


def test_a_startup_log_alone(shared_data: Path) -> None:
    plan = plan_from(None, startup_log=shared_data / "vllm-0.32/server_startup_log.txt")
    assert plan.default_serving.max_num_seqs is not None
    assert plan.default_serving.max_num_seqs.value == 64
    assert plan.default_serving.max_num_seqs.provenance == "startup log"


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


def test_progress_begins_a_new_estimate_with_each_step(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    now = [0.0]
    progress = Progress("reading", lambda: now[0])
    for seconds, share in ((10.0, 0.5), (20.0, 0.98), (21.0, 0.02), (30.0, 0.5)):
        now[0] = seconds
        progress(share, 1.0)
    progress.close()
    bars = [line.strip() for line in capsys.readouterr().err.split("\r") if "[" in line]
    assert [line.split("] ")[1].strip() for line in bars] == [
        "50 %, 10 s left",
        "98 %, 0 s left",
        "50 %, 9 s left",
    ]


@pytest.mark.parametrize("text", ["", "yesterday", "nan", "1e300", "2026-13-01"])
def test_no_times(text: str) -> None:
    with pytest.raises(ValueError):
        parse_time(text)
