"""Were the latency targets met over the last 10 minutes?"""

from __future__ import annotations

import polars as pl

from driftwatch.signals.histograms import share_within

# At 20 requests one miss moves the share by 5 points: fewer decide nothing.
MIN_REQUESTS = 20


def slo_columns(totals: pl.DataFrame, serving: pl.DataFrame) -> pl.DataFrame:
    """Whether targets were met in windows (``totals``), beside ``serving``'s targets, row for row.

    A share is exact only on a bucket edge; elsewhere both bounds must agree. One missed target
    makes ``slo_missed`` true. It is false where TTFT is met, even with TPOT unknown, and where TPOT
    is met and no TTFT target is set. ``_in_target_10m_ratio`` is the lower bound.
    """
    columns: dict[str, pl.Series] = {}
    for name in ("ttft", "tpot"):
        shares = share_within(
            totals[f"{name}_seconds_buckets"],
            totals[f"{name}_seconds_edges"],
            serving[f"slo_{name}_seconds"],
            totals[f"{name}_seconds_sum"],
        )
        enough = (totals[f"{name}_seconds_count"] >= MIN_REQUESTS) & (
            (shares["lower"] > 0) | (shares["upper"] < 1)  # a range from 0 to 1 is unknown
        )
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

    each = frame.select(ttft=missed("ttft"), tpot=missed("tpot"))
    return frame.select(
        *columns,
        slo_missed=_missed(each, frame["slo_ttft_seconds"].is_null()),
    )


def _missed(each: pl.DataFrame, no_ttft_target: pl.Series) -> pl.Series:
    """Both targets as one answer."""
    ttft, tpot = pl.col("ttft"), pl.col("tpot")
    in_target = ~ttft | (~tpot & pl.col("no_ttft_target"))
    return (
        each.with_columns(no_ttft_target=no_ttft_target)
        .select(
            pl.when((ttft | tpot).fill_null(False))
            .then(True)
            .when(in_target.fill_null(False))
            .then(False)
        )
        .to_series()
    )
