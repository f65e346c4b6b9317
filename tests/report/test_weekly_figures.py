"""The drawings of the report: ten bad minutes never dominate, the baseline and the target stand."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import polars as pl
import pytest
from report_cases import WEEK, cell, cells

from driftwatch.model import Slo
from driftwatch.plots.scales import robust_high
from driftwatch.report.figures import week_plots
from driftwatch.report.material import Material
from driftwatch.report.timeline import timelines


def _week(**values: Any) -> pl.DataFrame:
    """A day of a server; ``values``: of its tenth half hour."""
    rows = []
    for number in range(144):
        row = {
            "ttft_seconds_count": 100.0,
            "ttft_over_low": 1.0,
            "ttft_over_high": 2.0,
            "tpot_over_low": 0.0,
            "tpot_over_high": 0.0,
            "generation_tokens_total": 60_000.0,
            "duration_seconds": 600.0,
            "speed_at_equal_load_ratio": 1.0,
        }
        there = values if number // 3 == 10 else {}
        rows.append(cell(end=WEEK.start + timedelta(minutes=10 * (number + 1)), **row | there))
    return cells(*rows)


def _material(week: pl.DataFrame, **values: Any) -> Material:
    return Material(week=WEEK, until=WEEK.end, cells=week, slos={"p": Slo(1.0, 0.05)}, **values)


def test_a_half_hour_is_one_point_of_each_signal() -> None:
    (timeline,) = timelines(_material(_week(ttft_over_high=50.0, speed_at_equal_load_ratio=0.8)))
    assert timeline["tokens_per_second"][:2] == [100.0, 100.0]
    assert timeline["tokens_per_second"][48] is None
    assert timeline["in_target_ratio"][10] == pytest.approx(0.5)
    assert timeline["in_target_ratio"][11] == pytest.approx(0.98)
    assert timeline["speed_lowest_ratio"][10] == pytest.approx(0.8)
    assert timeline["baseline"] is None


def test_ten_bad_minutes_do_not_stretch_the_axis_and_their_value_is_printed() -> None:
    (timeline,) = timelines(_material(_week(generation_tokens_total=60_000_000.0)))
    *_, rate = week_plots(timeline)
    assert "off the scale: 100,000" in rate.svg
    labels = re.findall(r'class="end">([\d,.]+)<', rate.svg)
    assert max(float(text.replace(",", "")) for text in labels) <= 200


@pytest.mark.parametrize(
    ("values", "high"),
    [
        ([1.0, 1.1, 1.2, 1.3], None),
        ([1.0, 2.0, 4.0, 8.0], None),  # grows, and nothing stands apart
        ([0.1, 0.2, 0.2, 1600.0], 0.24),
        ([0.0, 0.0, 0.0, 5.0], None),  # nothing else to draw
        ([5.0], None),
    ],
)
def test_an_axis_leaves_out_only_what_stands_far_apart(
    values: list[float], high: float | None
) -> None:
    assert robust_high(values) == (None if high is None else pytest.approx(high))


def test_the_baselines_usual_range_and_the_required_share_are_drawn() -> None:
    before = _week().with_columns(pl.col("end") - timedelta(days=3))
    (timeline,) = timelines(_material(_week(), baseline_cells=before))
    assert timeline["baseline"]["tokens_per_second"] == [100.0, 100.0]
    plots = list(week_plots(timeline))
    assert all("usual in the baseline" in one.svg for one in plots)
    assert "required" in plots[1].svg and "required" not in plots[0].svg
