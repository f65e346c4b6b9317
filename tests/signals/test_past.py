"""What evaluated scrapes leave behind: a tick at a time gives what the whole history gives."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
from pipeline_cases import KEY, T0, scrapes, serving

from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.diagnose.evidence_table import Carried, evidence_table, minute_windows
from driftwatch.pipeline.state import last_scrapes

INPUTS = ("running_requests", "generation_tokens_total", "ttft_seconds")
MINUTE = timedelta(minutes=1)


def _minutes(frame: pl.DataFrame) -> tuple[datetime, datetime]:
    first, last = frame["time"].min(), frame["time"].max()
    assert isinstance(first, datetime)
    assert isinstance(last, datetime)
    return first.replace(second=0, microsecond=0), last.replace(second=0, microsecond=0) + MINUTE


def _at_once(frame: pl.DataFrame, asked: pl.DataFrame) -> pl.DataFrame:
    return evidence_table(
        frame, asked, kind="chained", cut=False, serving=serving(frame), inputs=INPUTS
    ).rows


def _tick_by_tick(
    frame: pl.DataFrame, asked: pl.DataFrame, ends: list[datetime]
) -> tuple[pl.DataFrame, pl.DataFrame, list[int]]:
    """Evidence of every minute, the last ten minutes at each end, scrapes held in full."""
    carried, held, done = Carried(), frame.clear(), frame["time"].min()
    settings_, rows, pages, sizes = serving(frame), [], [], []
    for end in ends:
        brought = frame.filter((pl.col("time") >= done) & (pl.col("time") < end))
        held = pl.concat([held, brought]).sort([*KEY, "time"])
        windows = asked.filter((pl.col("end") <= end) & (pl.col("start") >= _floor(carried, asked)))
        page = windows.group_by(KEY, maintain_order=True).last()
        page = page.with_columns(start=(pl.col("end") - 10 * MINUTE).cast(asked.schema["start"]))
        table, tenth = (
            evidence_table(
                held,
                of.select(asked.columns),
                kind="chained",
                cut=cut,
                serving=settings_,
                inputs=INPUTS,
                carried=carried,
            )
            for of, cut in ((windows, False), (page, True))
        )
        rows.append(table.rows)
        pages.append(tenth.rows)
        carried, done = table.carried, end
        held = last_scrapes(held, end)
        sizes.append(len(held))
    return pl.concat(rows).sort([*KEY, "start"]), pl.concat(pages).sort([*KEY, "end"]), sizes


def _floor(carried: Carried, asked: pl.DataFrame) -> Any:
    return carried.until or asked["start"].min()


def _ends(frame: pl.DataFrame, strides: list[int]) -> list[datetime]:
    first, last = _minutes(frame)
    ends = []
    for stride in strides * 200:
        first += stride * MINUTE
        if first >= last:
            break
        ends.append(first)
    return [*ends, last]


def test_a_recording_tick_by_tick_is_the_recording_at_once(shared_data: Path) -> None:
    source = RecordingSource(shared_data / "vllm-0.32" / "run_cap")
    frame = source.collect(*source.span()).scrapes
    asked = minute_windows(frame.select(KEY), *_minutes(frame))
    ends = _ends(frame, [3, 1])
    rows, pages, held = _tick_by_tick(frame, asked, ends)
    assert rows.equals(_at_once(frame, asked))
    tenths = asked.filter(pl.col("end").is_in(ends)).with_columns(
        start=(pl.col("end") - 10 * MINUTE).cast(asked.schema["start"])
    )
    whole = evidence_table(
        frame, tenths, kind="chained", cut=True, serving=serving(frame), inputs=INPUTS
    ).rows
    settled = [c for c in pages.columns if c not in _CARRIED]
    assert pages.select(settled).equals(whole.select(settled))
    assert max(held) <= 2 * frame.select(KEY).n_unique() + frame.group_by(KEY).len()["len"].max()
    assert held[-1] <= 3 * frame.select(KEY).n_unique()


# what only the minutes teach: a ten-minute window alone starts without it
_CARRIED = (
    "max_num_seqs",
    "max_num_seqs_inferred",
    "sequence_utilization",
    "binding_limit",
    "binding_running_requests",
    "binding_waiting_requests",
    "binding_requests",
    "binding_since",
    "binding_margin_ratio",
    "limit_binding_share_10m_ratio",
    "allows_max_num_seqs",
    "seconds_since_last_token",
    "coverage_missing_seconds",
    "coverage_missing_inputs",
    "pool_coverage_missing_ratio",
    "pool_coverage_missing_targets",
)


def test_a_restart_in_a_gap_is_no_part_of_the_ten_minutes_after_it() -> None:
    """25 min without a scrape, and another process behind the name: who knows when it counted."""
    page = {"running_requests": 2.0, "waiting_requests": 0.0}
    rows = [
        {
            "t": t,
            **page,
            "process_start_time_seconds": 1.7e9 + (60 if t else 0),
            "generation_tokens_total": n,
        }
        for t, n in ((0.0, 50.0), (1500.0, 10.0), (1505.0, 20.0), (1795.0, 30.0))
    ]
    frame = scrapes(rows)
    asked = minute_windows(frame.select(KEY), *_minutes(frame))
    once = _at_once(frame, asked)
    observed = once["observed_10m_seconds"].drop_nulls()
    assert observed.max() == 295.0
    ticks, _, _ = _tick_by_tick(frame, asked, _ends(frame, [5]))
    assert ticks["observed_10m_seconds"].equals(once["observed_10m_seconds"])


def test_a_target_whose_last_scrape_is_taken_away_begins_anew() -> None:
    """Behind a reborn name stands another server: what the one before counted is not its own."""
    page = {"generation_tokens_total": 100.0, "process_start_time_seconds": 1.7e9}
    old = scrapes([{"t": 15.0 * n, **page} for n in range(8)])
    new = scrapes(
        [{"t": 120 + 15.0 * n, **page, "generation_tokens_total": 40.0 + n} for n in range(4)]
    )
    asked = minute_windows(old.select(KEY), T0, T0 + 3 * MINUTE)

    def table(frame: pl.DataFrame, minutes: pl.DataFrame, carried: Carried) -> Any:
        return evidence_table(
            frame, minutes, kind="chained", cut=False, serving=serving(old), carried=carried
        )

    before = table(old, asked.head(2), Carried())
    kept = last_scrapes(old, T0 + 2 * MINUTE)
    anew = table(new, asked.tail(1), before.carried).rows
    on = table(pl.concat([kept, new]), asked.tail(1), before.carried).rows
    assert anew["restarted"].to_list() == [False]
    assert anew["duration_seconds"].to_list() == [45.0]
    assert on["restarted"].to_list() == [True]
