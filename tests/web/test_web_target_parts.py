"""Parts of a target's page: spans, what is usual, changes, plots."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from driftwatch.web.page import Link, View
from driftwatch.web.target_minutes import (
    SCHEMA,
    SIGNALS,
    Signals,
    changes,
    spans,
    usual,
    width_of,
)
from driftwatch.web.target_plots import LengthShares, target_plots

T0 = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def rows(count: int, **columns: Any) -> pl.DataFrame:
    """So many minutes after T0; a list is a column, anything else its every value."""
    plain = dict.fromkeys(SCHEMA) | {
        "end": [T0 + (at + 1) * MINUTE for at in range(count)],
        "scrapes": 4.0,
        "seconds": 60.0,
        "duration_seconds": 60.0,
        "gpu_count": 2.0,
        "forward_passes": 100.0,
        "generation_tokens_total": 6000.0,
        "itl_seconds_count": 1900.0,
        "ttft_seconds_count": 100.0,
        **columns,
    }
    full = {n: v if isinstance(v, list) else [v] * count for n, v in plain.items()}
    return pl.DataFrame(full, schema={**SCHEMA, "seconds": pl.Float64})


def test_a_span_without_a_row_is_unknown_and_means_are_of_sums() -> None:
    minutes = rows(6, forward_passes=[100.0, 300.0, 0.0, None, 100.0, 100.0])
    minutes = minutes.filter(pl.col("end") != T0 + 6 * MINUTE)
    table = spans(minutes, T0, T0 + 8 * MINUTE, 120).to_dicts()
    assert [row["end"] for row in table] == [T0 + at * MINUTE for at in (2, 4, 6, 8)]
    # 4,000 tokens in 400 steps; of the next two minutes one has no step and one is unknown
    assert [row["requests_per_forward_pass"] for row in table] == [10.0, None, 20.0, None]
    assert table[0]["tokens_per_second_per_gpu"] == 50.0
    assert table[0]["prompt_tokens_mean"] is None


@pytest.mark.parametrize(
    ("hours", "longest", "seconds"),
    [(3, 60.0, 60), (24, 60.0, 600), (3, 600.0, 600), (840, 60.0, 21_600)],
)
def test_a_range_has_at_most_180_spans_and_none_is_shorter_than_a_row(
    hours: int, longest: float, seconds: int
) -> None:
    minutes = rows(1, seconds=longest)
    assert width_of(T0, T0 + timedelta(hours=hours), minutes) == seconds


def test_usual_are_nine_in_ten_of_the_ten_minute_means() -> None:
    batches = [100.0 + at // 10 for at in range(100)]  # ten blocks of ten minutes
    bands = usual(rows(100, itl_seconds_count=[100.0 * one - 100.0 for one in batches]))
    low, high = bands["requests_per_forward_pass"]
    assert (low, high) == pytest.approx((100.45, 108.55))
    assert "batch_assembly_wait_seconds" not in bands  # nobody measured it
    assert usual(rows(50)) == {}  # five blocks say too little


def test_what_changed_is_named_with_its_numbers() -> None:
    minutes = rows(
        4,
        restarted=[None, True, False, False],
        configuration_changed=[False, True, False, True],
        max_num_seqs=[256.0, 512.0, 512.0, None],
        release_changed=[False, False, True, False],
    )
    assert changes(minutes) == [
        (T0 + 2 * MINUTE, "restart, max_num_seqs 256 → 512"),
        (T0 + 3 * MINUTE, "release changed"),
        (T0 + 4 * MINUTE, "settings changed"),
    ]


def test_plots_of_a_busy_day_are_small_and_say_what_they_found() -> None:
    ends = [T0 + at * MINUTE for at in range(1, 181)]
    incidents = [
        {
            "started_at": T0 + at * MINUTE,
            "resolved_at": T0 + (at + 3) * MINUTE,
            "link": Link(text="x" * 100, path="/incidents/x"),
        }
        for at in range(0, 180, 5)
    ]
    signals = Signals(
        span_seconds=60,
        spans=[{"end": at, **dict.fromkeys(SIGNALS, 1234.5678 * (1 + at.minute))} for at in ends],
        recent={"requests_per_forward_pass": 67.0},
        usual={"requests_per_forward_pass": (90.0, 99.0)},
        without_usual=None,
        episodes=incidents,
        changes=[(at, "restart, <b>") for at in ends[:40]],
    )
    lengths = LengthShares(
        length="prompt_tokens",
        text="Prompts ×2.3 longer than in the baseline",
        edges_tokens=(1.0, 10.0, 100.0, None),
        share=(0.1, 0.2, 0.3, 0.4),
        baseline_share=(0.4, 0.3, 0.2, 0.1),
    )
    view = View.of("t", since=T0, until=ends[-1], signals=signals, lengths=[lengths])
    plots = target_plots(view)
    assert max(len(one.svg) for one in plots.values()) <= 10_000
    batch = plots["requests_per_forward_pass"]
    found = "Batch: 67.0 requests a step in the last 10 min, below the baseline's 90.0 to 99.0"
    assert batch.title == found
    assert "<b>" not in batch.svg and "restart, &lt;b&gt;" in batch.svg
    assert 'class="stripe' in batch.svg and 'class="band c4' in batch.svg
