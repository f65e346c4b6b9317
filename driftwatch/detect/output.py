"""Arrays of detectors as evidence columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

Schema = dict[str, pl.DataType | type[pl.DataType]]


def frame_of(values: Mapping[str, Any], schema: Schema) -> pl.DataFrame:
    """Arrays or series by column → columns of ``schema``; NaN is unknown, flags are 0 and 1."""
    series = [
        pl.Series(name, list(values[name]) if dtype == pl.String else values[name], strict=False)
        for name, dtype in schema.items()
    ]
    frame = pl.DataFrame(series).with_columns(pl.col(pl.Float64).fill_nan(None))
    return frame.select(pl.col(name).cast(dtype) for name, dtype in schema.items())
