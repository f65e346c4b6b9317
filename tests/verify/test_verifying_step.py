"""Verifications open, are looked at and close in the minutes of ticks; on the real restart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from verify_cases import restart_of, run

from driftwatch.model import Fingerprint, TargetKey
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.pipeline.stored_state import stored_targets
from driftwatch.service.configuration import plan_of_rules
from driftwatch.service.stored_verifications import (
    verification_memory,
    verification_state_from,
)
from driftwatch.service.verifications import (
    PastAdvice,
    Surroundings,
    VerificationState,
    asked_now,
    step,
)
from driftwatch.signals.minutes import MINUTE_SCHEMA
from driftwatch.store.store import Store, TickRecord
from driftwatch.verify.verification import Verification

KEY = TargetKey("host:8000", "0")


@pytest.fixture(autouse=True)
def _recordings(shared_data: Path) -> None:
    """Skipped, by name, where the recordings are not there."""


@pytest.fixture
def rows() -> pl.DataFrame:
    store = run("run_cap")
    reach = store.minutes_reach()
    assert reach is not None
    return store.past(*reach).drop("seconds")


def _around(rows: pl.DataFrame, advice: Sequence[PastAdvice] = ()) -> Surroundings:
    def asked(key: TargetKey, pool: str, since: datetime, until: datetime) -> list[PastAdvice]:
        return [one for one in advice if since <= one.at < until]

    past = PastMinutes(rows.select(*MINUTE_SCHEMA))
    targets = plan_of_rules(()).assign(stored_targets(run("run_cap")))
    return Surroundings(past, asked, targets, lambda _: Fingerprint(), lambda _: None)


def _advised(rows: pl.DataFrame, minutes_before: float, knob: str, to: float) -> PastAdvice:
    said = {"action": "change", "knob": knob, "from": 8.0, "to": to, "forecast": {}}
    at = restart_of(rows) - timedelta(minutes=minutes_before)
    return PastAdvice(*KEY, "default", at, said, f"incident-{minutes_before:g}")


def _pieces(rows: pl.DataFrame, size: int) -> Iterator[pl.DataFrame]:
    for first in range(0, len(rows), size):
        yield rows[first : first + size]


def _told(
    rows: pl.DataFrame, size: int, around: Surroundings
) -> tuple[VerificationState, list[Verification]]:
    state, told = VerificationState(), []
    for piece in _pieces(rows, size):
        state, found = step(state, piece, around)
        told += found
    return state, told


def test_it_opens_when_more_run_than_the_inferred_cap_allowed(rows: pl.DataFrame) -> None:
    _, told = _told(rows, 1, _around(rows))
    first = told[0]
    assert first.verdict == "open"
    assert first.change.at == restart_of(rows)
    assert first.change.what["max_num_seqs"] == ("8 (inferred)", "at least 11")
    # light traffic after the restart shows nothing
    assert first.opened_at - first.change.at >= timedelta(minutes=3)
    assert (first.forecast, first.incident_id) == (None, None)
    assert len({one.id for one in told}) == 1


def test_it_is_looked_at_ten_minutes_after_the_warm_up(rows: pl.DataFrame) -> None:
    state, told = _told(rows, 1, _around(rows, [_advised(rows, 4, "max_num_seqs", 40)]))
    closed = told[-1]
    assert (closed.verdict, closed.effects[0].name) == ("PASS", "e2e_seconds_mean")
    assert closed.closed_at == restart_of(rows) + timedelta(minutes=12)
    assert min(closed.matched_minutes) == 10
    assert (state.opened, state.started) == ({}, {})


def test_what_nobody_promised_stays_open_after_ten_minutes(rows: pl.DataFrame) -> None:
    state, told = _told(rows, 1, _around(rows))
    last = told[-1]
    assert (last.verdict, last.closed_at) == ("open", None)
    at = restart_of(rows)
    assert state.opened[KEY].next_at == at + timedelta(minutes=22)
    # asked for once, when the recording ends, it is told
    end = rows["end"][-1]
    asked = asked_now(last, PastMinutes(rows.select(*MINUTE_SCHEMA)), end, None)
    assert (asked.verdict, asked.closed_at) == ("PASS", end)


@pytest.mark.parametrize("size", [7])
def test_how_minutes_are_split_over_ticks_changes_nothing(rows: pl.DataFrame, size: int) -> None:
    one, told = _told(rows, 1, _around(rows))
    other, again = _told(rows, size, _around(rows))
    assert one == other
    assert told[-1] == again[-1]


def test_the_newest_advice_of_its_knob_and_direction_is_what_it_is_held_against(
    rows: pl.DataFrame,
) -> None:
    advice = [
        _advised(rows, 9, "max_num_seqs", 16),
        _advised(rows, 4, "max_num_seqs", 40),
        _advised(rows, 2, "max_num_seqs", 4),
        _advised(rows, 1, "max_num_batched_tokens", 4096),
        _advised(rows, 15 * 24 * 60, "max_num_seqs", 64),
    ]
    _, told = _told(rows, 29, _around(rows, advice))
    assert told[-1].incident_id == "incident-4"
    too_old = advice[-1:]
    _, told = _told(rows, 29, _around(rows, too_old))
    assert told[-1].forecast is None


def test_a_start_without_a_change_opens_nothing(rows: pl.DataFrame) -> None:
    light = rows.filter(pl.col("end") <= restart_of(rows) + timedelta(minutes=2))
    state, told = _told(light, 1, _around(light))
    assert told == []
    assert KEY in state.started


def test_a_setting_that_is_read_opens_at_once_and_another_start_ends_it(
    rows: pl.DataFrame,
) -> None:
    again = restart_of(rows) + timedelta(minutes=11)
    known = rows.with_columns(
        max_num_seqs=pl.when(pl.col("end") < restart_of(rows))
        .then(8.0)
        .when(pl.col("end") < again)
        .then(64.0)
        .otherwise(32.0),
        max_num_seqs_inferred=pl.lit(False),
        restarted=pl.col("restarted") | (pl.col("end") == again),
    )
    state, told = _told(known, 1, _around(known))
    assert told[0].opened_at == told[0].change.at == restart_of(rows)
    assert told[0].change.what == {"max_num_seqs": ("8", "64")}
    (ended,) = [one for one in told if one.closed_at is not None]
    assert ended.verdict == "INCONCLUSIVE"
    assert "another change" in ended.reason
    assert state.opened[KEY].verification.change.what == {"max_num_seqs": ("64", "32")}


def test_another_process_goes_on_where_the_last_one_stopped(
    rows: pl.DataFrame, tmp_path: Path
) -> None:
    around = _around(rows, [_advised(rows, 4, "max_num_seqs", 40)])
    _, whole = _told(rows, 1, around)
    cut = 22
    with Store.open(tmp_path / "d.db") as store:
        state, found = step(VerificationState(), rows[:cut], around)
        at = rows["end"][cut - 1]
        store.commit_tick(
            TickRecord(
                incidents=[],
                transitions=[],
                deliveries=[],
                since=at,
                until=at,
                memory=verification_memory(None, state),
                verifications=found,
            )
        )
        assert [one.verdict for one in store.open_verifications()] == ["open"]
        resumed = verification_state_from(store)
    assert resumed == state
    assert verification_memory(resumed, state) == {}
    _, rest = step(resumed, rows[cut:], around)
    assert rest[-1] == whole[-1]
