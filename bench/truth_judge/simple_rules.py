"""Two rules that anybody could write in an afternoon, for comparison.

*15 % slower*: the mean time between two tokens over ten minutes is 15 % above that of the baseline.
*Folk*: requests waited at half of the scrapes of ten minutes. Each pages once and again after ten
minutes in which it did not hold. Both read the counters of the recording and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from truth_judge.facts import Finding

SLOW_RATIO, WAITING_SHARE = 1.15, 0.5
RAW, FOLK = "15 % rule", "folk rule"
_WINDOW = "10m"
_AGAIN_SECONDS = 600.0
_COLUMNS = ("instance", "time", "ok", "itl_seconds_sum", "itl_seconds_count", "waiting_requests")


def said_by(folder: Path, baseline: tuple[float, float] | None) -> dict[str, list[Finding]]:
    """Rule → its pages.

    Args:
        folder: of a compact recording.
        baseline: from, to in unix seconds; without it there is nothing to be slower than.
    """
    parts = sorted(folder.glob("*.scrapes.parquet"))
    whole = pl.concat(pl.read_parquet(part, columns=list(_COLUMNS)) for part in parts)
    found: dict[str, list[Finding]] = {RAW: [], FOLK: []}
    for (instance,), rows in whole.filter("ok").sort("time").group_by("instance"):
        windows = _windows(rows)
        seconds = windows["time"].dt.epoch("us") / 1e6
        if baseline is not None:
            inside = windows.filter(seconds.is_between(*baseline))
            usual = inside["itl"].drop_nulls().drop_nans().mean()
            if isinstance(usual, float) and usual > 0:
                slow = windows["itl"] >= SLOW_RATIO * usual
                found[RAW] += _pages(str(instance), seconds, slow, "SlowerAtEqualLoad")
        waits = windows["waits"] >= WAITING_SHARE
        found[FOLK] += _pages(str(instance), seconds, waits, "BatchLimitBinding")
    return found


def _windows(rows: pl.DataFrame) -> pl.DataFrame:
    """Time between tokens, and share of scrapes at which requests waited, of the last minutes."""
    grown = [
        pl.col(name).diff().clip(lower_bound=0.0).fill_null(0.0).alias(name)
        for name in ("itl_seconds_sum", "itl_seconds_count")
    ]
    sums = [
        pl.col(c).rolling_sum_by("time", _WINDOW) for c in ("itl_seconds_sum", "itl_seconds_count")
    ]
    waiting = (pl.col("waiting_requests") > 0).cast(pl.Float64)
    return rows.with_columns(grown).select(
        "time",
        itl=(sums[0] / sums[1]).fill_nan(None),
        waits=waiting.rolling_mean_by("time", _WINDOW),
    )


def _pages(instance: str, seconds: pl.Series, holds: pl.Series, rule: str) -> Iterator[Finding]:
    last = -_AGAIN_SECONDS * 2
    for at, on in zip(seconds.to_list(), holds.fill_null(False).to_list(), strict=True):
        if not on:
            continue
        if at - last > _AGAIN_SECONDS:
            yield Finding("firing", rule, "page", at, at, instance)
        last = at
