"""Were the latency targets met over the last 10 minutes?"""

from __future__ import annotations

import polars as pl

from driftwatch.signals.histograms import share_within

# At 20 requests one miss moves the share by 5 points: fewer decide nothing.
MIN_REQUESTS = 20
_TARGETS = ("slo_share", "slo_ttft_seconds", "slo_tpot_seconds")


def slo_columns(totals: pl.DataFrame, serving: pl.DataFrame) -> pl.DataFrame:
    """Whether targets were met in windows (``totals``), beside ``serving``'s targets, row for row.

    A share is exact only on a bucket edge; elsewhere both bounds must agree. ``slo_missed`` is true
    where one target is missed, false where every target that is set is met.
    ``_in_target_10m_ratio`` is the lower bound.
    """
    shares = []
    for name in ("ttft", "tpot"):
        both = share_within(
            totals[f"{name}_seconds_buckets"],
            totals[f"{name}_seconds_edges"],
            serving[f"slo_{name}_seconds"],
            totals[f"{name}_seconds_sum"],
        )
        is_known = (pl.col("lower") > 0) | (pl.col("upper") < 1)  # a range from 0 to 1 is unknown
        enough = is_known & (totals[f"{name}_seconds_count"] >= MIN_REQUESTS)
        shares.append(
            both.select(
                pl.when(enough).then("lower").alias(f"{name}_in_target_10m_ratio"),
                pl.when(enough).then("upper").alias(f"{name}_in_target_10m_upper_ratio"),
            )
        )
    columns = pl.concat(shares, how="horizontal")
    any_target = pl.any_horizontal(pl.col(_TARGETS[1:]).is_not_null())
    missed = pl.when(any_target).then(_missed("ttft") | _missed("tpot"))
    with_targets = columns.with_columns(serving[name] for name in _TARGETS)
    return with_targets.select(*columns.columns, slo_missed=missed)


def _missed(name: str) -> pl.Expr:
    """Unknown between the bounds; false without such a target."""
    low, high = (pl.col(f"{name}_in_target_10m{end}_ratio") for end in ("", "_upper"))
    share = pl.col("slo_share")
    met = (low >= share) | pl.col(f"slo_{name}_seconds").is_null()
    return pl.when(high < share).then(True).when(met).then(False)
