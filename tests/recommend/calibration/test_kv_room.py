"""KV use that is told otherwise than it is simulated: of matter only where the cache might bind."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from recorded_runs import AT
from test_calibrate import CONFIGURATION, SERVER, window

from driftwatch.recommend.calibration.calibrate import calibrate
from driftwatch.recommend.calibration.fits import Calibration
from driftwatch.recommend.calibration.prior import prior_of
from driftwatch.recommend.traffic.observed import Observed


def told(use: pl.Expr) -> Calibration:
    """The step-time models of a window whose KV use is said to be this."""
    seen: Observed = replace(
        window(), chunks=window().chunks.with_columns(kv_cache_usage_ratio=use)
    )
    return calibrate(seen, CONFIGURATION, prior_of(SERVER, seen, CONFIGURATION), at=AT)


USE = pl.col("kv_cache_usage_ratio")


def test_a_fifth_in_use_contradicts_nothing_though_it_is_replayed_as_half_of_that() -> None:
    assert window().chunks["kv_cache_usage_ratio"].max() < 0.25  # type: ignore[operator]
    found = told(2.0 * USE)
    assert found.best.residuals["kv_cache_usage_ratio"] < -0.4
    assert found.identifiable, found.why_not


@pytest.mark.parametrize("most", [0.6])
def test_a_cache_that_might_bind_does(most: float) -> None:
    found = told(USE * most / USE.max())
    assert not found.identifiable
    assert found.why_not is not None and "KV cache usage -" in found.why_not
