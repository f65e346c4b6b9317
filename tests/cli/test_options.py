"""Settings of the server that no metric shows, from the command line."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import pytest
from fakes.manual_clock import ManualClock

from driftwatch.cli.history import plan_from
from driftwatch.cli.options import MOMENT, on_its_day, parse_time
from driftwatch.cli.printer import Progress
from driftwatch.errors import UsageError


def test_a_budget_below_the_cap_is_refused() -> None:
    with pytest.raises(UsageError, match="vLLM refuses"):
        plan_from(None, max_num_seqs=64, max_num_batched_tokens=32)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-18T02:56Z", "18 02:56:00"),
        ("2026-11-18T03:56+01:00", "18 02:56:00"),
        ("2026-11-18 02:56", "18 02:56:00"),
        ("1794970560", "18 02:56:00"),
        ("now", "01 12:00:00"),
        ("-1h30m", "01 10:30:00"),
    ],
)
def test_times(text: str, expected: str) -> None:
    clock = ManualClock(datetime(2026, 3, 1, 12, tzinfo=UTC))
    assert f"{parse_time(text, clock).astimezone(UTC):%d %H:%M:%S}" == expected


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


@pytest.mark.parametrize("text", ["", "yesterday", "nan", "1e300", "2026-13-01"])
def test_no_times(text: str) -> None:
    with pytest.raises(ValueError):
        parse_time(text)


def test_a_time_of_day_is_the_newest_such_time() -> None:
    last = datetime(2026, 11, 18, 9, 0, tzinfo=UTC)
    moments = [on_its_day(MOMENT.convert(text, None, None), last) for text in ("08:40", "09:01")]
    assert [f"{moment:%d %H:%M}" for moment in moments if moment] == ["18 08:40", "17 09:01"]
