"""What the GPU readings of minutes say of a window of them."""

from __future__ import annotations

import numpy as np
import polars as pl

from driftwatch.signals.gpus.readings import MEANS
from driftwatch.signals.windows import MinuteWindows, Spans

# What a minute row keeps of its GPU readings (:func:`driftwatch.signals.gpus.gpu_columns`).
GPU_COLUMNS: dict[str, pl.DataType | type[pl.DataType]] = {
    "gpu_count": pl.Float64,
    "gpu_count_source": pl.String,
    **dict.fromkeys(MEANS, pl.Float64),
    "gpu_clock_event_reasons": pl.String,
    "gpus_lost": pl.Float64,
    "gpus_lost_names": pl.String,
    "gpus_of_server": pl.Float64,
    "gpu_reasons": pl.String,
}


def window_gpus(minutes: MinuteWindows, spans: Spans) -> pl.DataFrame:
    """:data:`GPU_COLUMNS` of windows: means over their minutes, the rest as the last one has it."""
    filled = spans.filled
    at_last = minutes.at_end(list(GPU_COLUMNS), spans)
    if (spans.first == spans.last)[filled].all():
        return at_last
    means = (
        minutes.of_minutes(spans, list(MEANS)).group_by("window").agg(pl.col(list(MEANS)).mean())
    )
    windows = pl.DataFrame({"window": np.arange(len(filled))}).cast({"window": pl.UInt32})
    of_windows = windows.join(means, on="window", how="left", maintain_order="left")
    return at_last.with_columns(of_windows.drop("window"))
