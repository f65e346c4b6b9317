"""What a person reads of acknowledgements, repeats and silences."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from command_cases import START, Run, incident
from fakes.manual_clock import ManualClock
from outbox import planned
from small_page import small_page

from driftwatch.incidents.silence import parse_matchers
from driftwatch.store.store import Store, TickRecord
from tests.outbox import due_deliveries, mark_failed, mark_sent

FIRED = START + timedelta(minutes=10)
MINUTE = timedelta(minutes=1)
NIGHT = datetime(2026, 3, 1, 4, 0, tzinfo=UTC)
PAGE = small_page()


@pytest.fixture
def night(run: Run, fill: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> tuple[Run, Path]:
    """A page, the boss's later one, Ana's acknowledgement, and one more that nobody took."""
    path = fill(incident("a", page=PAGE), incident("b", page=PAGE))
    plans = [
        planned("a" * 12, PAGE, FIRED),
        planned("b" * 12, PAGE, FIRED),
        planned("a" * 12, PAGE, FIRED + 30 * MINUTE, "boss"),
        planned("b" * 12, PAGE, FIRED + 60 * MINUTE, number=1),
    ]
    with Store.open(path) as store:
        store.commit_tick(
            TickRecord(
                until=FIRED,
                incidents=store.open_incidents().values(),
                deliveries=plans,
            )
        )
        for one in due_deliveries(store, FIRED + MINUTE):
            mark_sent(store, one, FIRED + timedelta(seconds=1))
        (late, again) = due_deliveries(store, NIGHT)
        mark_sent(store, late, FIRED + 33 * MINUTE)
        mark_failed(store, again, NIGHT, "oncall answered 503", NIGHT + MINUTE)
        store.acknowledge("a", "Ana", FIRED + 36 * MINUTE, comment="restarting it", via="slack")
        store.add_silence(
            parse_matchers(["instance=gpu-b:8000"]),
            until=NIGHT + 120 * MINUTE,
            by="Bob",
            at=NIGHT - 10 * MINUTE,
            comment="load test",
        )
    for module in ("incidents", "acts"):
        monkeypatch.setattr(f"driftwatch.cli.{module}.SystemClock", lambda: ManualClock(NIGHT))
    return run, path


def test_the_list_and_the_history_of_one(
    night: tuple[Run, Path], golden: Callable[[str, str], None]
) -> None:
    run, _ = night
    screens = []
    for words in (("incidents",), ("incidents", "aa"), ("incidents", "bb")):
        code, out, err = run(*words, terminal=True)
        assert (code, err) == (0, "")
        screens.append(f"$ driftwatch {' '.join(words)}\n{out}")
    golden("cli/incident-history.txt", re.sub(r"\([0-9a-f]{8}\)", "(5d41402a)", "\n".join(screens)))


def test_acks_say_whom_driftwatch_tells(night: tuple[Run, Path]) -> None:
    run, path = night
    code, out, _ = run("ack", "aa", "--undo", "--by", "Ana", "--comment", "not mine")
    assert (code, out) == (
        0,
        f"{'a' * 12} not acknowledged any more, says Ana: BatchLimitBinding gpu-a:8000; "
        "driftwatch tells boss, oncall\n",
    )
    assert run("ack", "aa", "--undo")[0] == 2
    code, out, _ = run("ack", "aa", "--by", "Bob", "--comment", "mine")
    assert out == (
        f"{'a' * 12} acknowledged by Bob at 04:00 UTC, until it resolves: "
        "BatchLimitBinding gpu-a:8000; driftwatch tells boss, oncall\n"
    )
    with Store.open(path) as store:
        assert [(a.action, a.by, a.comment) for a in store.unplanned_actions()] == [
            ("acknowledge", "Ana", "restarting it"),
            ("unacknowledge", "Ana", "not mine"),
            ("acknowledge", "Bob", "mine"),
        ]
    _, out, _ = run("silence", "instance=gpu-a:8000", "--for", "2h")
    assert re.fullmatch(
        r"silence [0-9a-f]{12} until \d\d:\d\d UTC: instance=gpu-a:8000; "
        r"matches 1 open incident now\n",
        out,
    )
