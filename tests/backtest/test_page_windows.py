"""The ten minutes of a page, put together from kept minutes."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import polars as pl

from driftwatch.backtest.archive_writer import keep
from driftwatch.backtest.windows import rows_of_windows
from driftwatch.collect.recordings import open_recording
from driftwatch.diagnose.evidence_table import WINDOW_SCHEMA
from driftwatch.service.configuration import plan_of

OF_TARGETS = ("ttft_in_target_10m_ratio", "ttft_in_target_10m_upper_ratio", "slo_missed")


def test_a_last_minute_without_a_scrape_leaves_the_latency_targets_of_the_window(
    fleet: Path, tmp_path: Path
) -> None:
    """Servers are scraped at their own seconds: now and then a minute has no scrape."""
    source, plan = open_recording(fleet), plan_of(fleet / "driftwatch.yaml")
    first, _ = source.span()
    archive = keep([source], (first, first + timedelta(hours=1)), plan, tmp_path)
    (day,) = archive.days
    targets = archive.roster(day)[0].targets
    key = min(targets)
    minutes = archive.rows(day, archive.columns(day), [key])
    end = minutes["end"].max()
    window = {"instance": key.instance, "engine": key.engine, "end": end}
    window["start"] = minutes["end"].to_list()[-11]
    windows = pl.DataFrame([window]).select(
        pl.col(name).cast(dtype) for name, dtype in WINDOW_SCHEMA.items()
    )
    scraped = rows_of_windows(minutes, windows, targets, plan)
    is_last = pl.col("end") == end
    dark = minutes.with_columns(
        pl.when(~is_last).then(pl.col(name)).alias(name) for name in OF_TARGETS
    ).with_columns(scrapes=pl.when(is_last).then(0.0).otherwise("scrapes"))
    unscraped = rows_of_windows(dark, windows, targets, plan)
    assert scraped["slo_missed"].to_list() == [False]
    assert unscraped.select(OF_TARGETS).equals(scraped.select(OF_TARGETS))
