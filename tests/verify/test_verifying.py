"""Verifications open, are looked at and close in the minutes of ticks; on the real restart."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from verify_cases import restart_of, run

from driftwatch.model import Advice, KnobMove, Reason, TargetKey
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.pipeline.stored_state import stored_targets
from driftwatch.pipeline.verifications import (
    RUNS_MEMORY,
    Verifications,
    runs_memory,
    step,
    verifications_from,
)
from driftwatch.recommend.advice import Answer
from driftwatch.service.configuration import plan_of_rules
from driftwatch.store.history import TargetAdvice
from driftwatch.store.store import Store
from driftwatch.verify.before_after import judge_at
from driftwatch.verify.verification import Verification

KEY = TargetKey("host:8000", "0")
MINUTE = timedelta(minutes=1)


@pytest.fixture
def rows(shared_data: Path) -> pl.DataFrame:
    store = run("run_cap")
    reach = store.minutes_reach()
    assert reach is not None
    return store.past(*reach).drop("seconds")


def advised(rows: pl.DataFrame, minutes_before: float, knob: str, to: float) -> TargetAdvice:
    move = KnobMove(knob, 8.0, to)
    change = Advice(action="change", reason=Reason("x", "y"), moves=(move,), forecast={})
    at, id_ = restart_of(rows) - minutes_before * MINUTE, f"incident-{minutes_before:g}"
    return TargetAdvice(KEY, "default", at, Answer(at=at, advice=change), id_)


PROMISED = (4, "max_num_seqs", 40)


def stepped(
    rows: pl.DataFrame,
    size: int,
    advice: Sequence[TargetAdvice] = (),
    state: Verifications | None = None,
    whole: pl.DataFrame | None = None,
) -> tuple[Verifications, list[Verification]]:
    """What is known after the rows, ``size`` a tick, and all news."""
    state, news, plan = state or Verifications(), list[Verification](), plan_of_rules(())
    targets = plan.assign(stored_targets(run("run_cap")))
    past = PastMinutes(None, [rows if whole is None else whole])

    def given(since: datetime, until: datetime) -> list[TargetAdvice]:
        return [one for one in advice if since <= one.at < until]

    for first in range(0, len(rows), size):
        here = rows[first : first + size]
        state, found = step(state, here, past.minutes, given, targets, plan, [])
        news += found
    return state, news


def test_it_opens_when_more_run_than_the_inferred_cap_allowed(rows: pl.DataFrame) -> None:
    state, news = stepped(rows, 1)
    first, last, at = news[0], news[-1], restart_of(rows)
    assert (first.verdict, first.change.at) == ("open", at)
    assert first.change.what["max_num_seqs"] == ("8 (most that ran at once)", "at least 11")
    # light traffic after the restart shows nothing
    assert first.opened_at - at >= 3 * MINUTE
    assert (first.forecast, first.incident_id) == (None, None)
    assert len({one.id for one in news}) == 1
    # ten minutes are too few where nobody had promised anything; asked for once, they are judged
    assert (last.verdict, last.closed_at) == ("open", None)
    assert state.opened[KEY] == last
    end = rows["end"][-1]
    asked = judge_at(last, PastMinutes(None, [rows]).minutes, end, None)
    assert (asked.verdict, asked.closed_at) == ("PASS", end)


def test_a_promise_is_judged_ten_minutes_after_the_warm_up(rows: pl.DataFrame) -> None:
    state, news = stepped(rows, 1, [advised(rows, *PROMISED)])
    closed = news[-1]
    assert (closed.verdict, closed.effects[0].name) == ("PASS", "e2e_seconds_mean")
    assert closed.closed_at == restart_of(rows) + 12 * MINUTE
    assert min(closed.matched_minutes) == 10
    assert (state.opened, state.runs[KEY].before) == ({}, None)


def test_how_minutes_are_split_over_ticks_changes_nothing(rows: pl.DataFrame) -> None:
    one, news = stepped(rows, 1)
    other, again = stepped(rows, 7)
    assert (one, news[-1]) == (other, again[-1])


def test_it_is_held_against_the_newest_advice_of_its_knob_and_direction(
    rows: pl.DataFrame,
) -> None:
    advice = [
        advised(rows, 9, "max_num_seqs", 16),
        advised(rows, *PROMISED),
        advised(rows, 2, "max_num_seqs", 4),
        advised(rows, 1, "max_num_batched_tokens", 4096),
        advised(rows, 15 * 24 * 60, "max_num_seqs", 64),
    ]
    assert stepped(rows, 29, advice)[1][-1].incident_id == "incident-4"
    too_old = advice[-1:]
    assert stepped(rows, 29, too_old)[1][-1].forecast is None


def test_a_server_that_left_is_forgotten(rows: pl.DataFrame) -> None:
    state, _ = stepped(rows[:5], 5)
    assert state.runs
    past, plan = PastMinutes(None, [rows]), plan_of_rules(())
    left, _ = step(state, rows[5:6], past.minutes, lambda *_: [], {}, plan, [])
    assert (left.runs, left.last_read) == ({}, {})


def test_a_setting_that_is_read_opens_at_once_and_another_start_ends_it(
    rows: pl.DataFrame,
) -> None:
    at = restart_of(rows)
    again = at + 11 * MINUTE
    caps = pl.when(pl.col("end") < at).then(8.0).when(pl.col("end") < again).then(64.0)
    known = rows.with_columns(
        max_num_seqs=caps.otherwise(128.0),
        max_num_seqs_inferred=pl.lit(False),
        restarted=pl.col("restarted") | (pl.col("end") == again),
    )
    state, news = stepped(known, 1)
    assert news[0].opened_at == news[0].change.at == at
    assert news[0].change.what == {"max_num_seqs": ("8", "64")}
    (ended,) = (one for one in news if one.closed_at is not None)
    assert ended.verdict == "INCONCLUSIVE"
    assert "another change" in ended.reason
    assert state.opened[KEY].change.what == {"max_num_seqs": ("64", "128")}


def test_another_process_goes_on_from_the_store(rows: pl.DataFrame) -> None:
    advice = [advised(rows, *PROMISED)]
    expected = stepped(rows, 1, advice)[1][-1]
    cut = 22
    with Store.in_memory() as store:
        state, news = stepped(rows[:cut], cut, advice, whole=rows)
        for one in news:
            store.write_verification(one)
        resumed = verifications_from(store, runs_memory(state.runs)[RUNS_MEMORY])
    assert resumed == state
    assert [one.verdict for one in resumed.opened.values()] == ["open"]
    assert stepped(rows[cut:], 1, advice, resumed, rows)[1][-1] == expected
