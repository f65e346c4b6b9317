"""Were the latency targets met over the last 10 minutes?"""

from __future__ import annotations

import polars as pl

from driftwatch.signals.histograms import share_within

# At 20 requests one miss moves the share by 5 points: fewer decide nothing.
MIN_REQUESTS = 20


def slo_columns(totals: pl.DataFrame, serving: pl.DataFrame) -> pl.DataFrame:
    """SLO columns per window.

    A share is exact only where the target is a bucket edge; elsewhere the buckets bound it, and a
    verdict is given only where both bounds agree.

    Args:
        totals: totals of the last 10 min.
        serving: slo_ttft_seconds, slo_tpot_seconds, slo_share, row for row beside ``totals``.

    Returns:
        ``slo_missed``, ``ttft_in_target_10m_ratio``, ``tpot_in_target_10m_ratio`` (lower bounds)
        and ``ttft_in_target_10m_upper_ratio``, ``tpot_in_target_10m_upper_ratio``.
    """
    columns: dict[str, pl.Series] = {}
    for name in ("ttft", "tpot"):
        shares = share_within(
            totals[f"{name}_seconds_buckets"],
            totals[f"{name}_seconds_edges"],
            serving[f"slo_{name}_seconds"],
        )
        enough = totals[f"{name}_seconds_count"] >= MIN_REQUESTS
        for bound, suffix in (("lower", "_ratio"), ("upper", "_upper_ratio")):
            columns[f"{name}_in_target_10m{suffix}"] = (
                pl.DataFrame({"share": shares[bound], "enough": enough})
                .select(pl.when("enough").then("share"))
                .to_series()
            )
    frame = pl.DataFrame(columns).with_columns(
        serving["slo_share"], serving["slo_ttft_seconds"], serving["slo_tpot_seconds"]
    )

    def missed(name: str) -> pl.Expr:
        low, high = (
            pl.col(f"{name}_in_target_10m_ratio"),
            pl.col(f"{name}_in_target_10m_upper_ratio"),
        )
        return (
            pl.when(high < pl.col("slo_share"))
            .then(True)
            .when(low >= pl.col("slo_share"))
            .then(False)
        )

    asked = ["ttft", "tpot"]
    no_target = pl.all_horizontal(pl.col(f"slo_{n}_seconds").is_null() for n in asked)
    each = [
        pl.when(pl.col(f"slo_{n}_seconds").is_null()).then(False).otherwise(missed(n))
        for n in asked
    ]
    return frame.select(
        *columns, slo_missed=pl.when(no_target).then(None).otherwise(pl.any_horizontal(each))
    )
