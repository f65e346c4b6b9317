"""Servers over the same minutes: means of each, of what was counted there. Pure."""

from __future__ import annotations

from collections.abc import Collection

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.model import TargetKey

_KEY = list(KEY_COLUMNS)
# column of :func:`side_by_side` → what is counted in a minute, over what
MEANS = {
    "prompt_tokens_mean": ("prompt_tokens_sum", "prompt_tokens_count"),
    "generation_tokens_mean": ("generation_tokens_sum", "generation_tokens_count"),
    "batch_assembly_wait_seconds": ("queue_seconds_sum", "queue_seconds_count"),
    "ttft_seconds_mean": ("ttft_seconds_sum", "ttft_seconds_count"),
    "requests_per_forward_pass": ("outputs", "forward_passes"),
    "tokens_per_second_per_gpu": ("generation_tokens_total", "gpu_seconds"),
    "generation_tokens_per_second": ("generation_tokens_total", "duration_seconds"),
}


def side_by_side(minutes: pl.DataFrame, keys: Collection[TargetKey]) -> pl.DataFrame:
    """A row per key: ``minutes`` with a scrape, :data:`MEANS` (NULL: unknown), and ``changed``.

    ``minutes``: of :attr:`driftwatch.web.fleet_minutes.Fleet.minutes`; ``changed``: whether the
    server restarted or a knob changed in them.
    """
    frame = pl.DataFrame([tuple(key) for key in keys], dict.fromkeys(_KEY, pl.String), orient="row")
    if not minutes.width:
        names = (*MEANS, "minutes", "changed")
        return frame.with_columns(pl.lit(None).alias(name) for name in names)
    own = minutes.join(frame, on=_KEY, how="semi").with_columns(
        outputs=pl.col("itl_seconds_count") + pl.col("ttft_seconds_count"),
        gpu_seconds=pl.col("duration_seconds") * pl.col("gpu_count"),
    )
    changed = pl.any_horizontal(
        pl.col(name).fill_null(False) for name in ("restarted", "configuration_changed")
    )
    means = own.group_by(_KEY).agg(
        minutes=(pl.col("scrapes") > 0).sum(),
        changed=changed.any(),
        **{name: mean_of(*parts) for name, parts in MEANS.items()},
    )
    return frame.join(means, on=_KEY, how="left", maintain_order="left")


def mean_of(total: str, over: str) -> pl.Expr:
    """A sum over a sum, of the rows in which both are known; NULL where nothing was counted."""
    both = pl.col(total).is_not_null() & pl.col(over).is_not_null()
    count = pl.col(over).filter(both).sum()
    return pl.when(count > 0).then(pl.col(total).filter(both).sum() / count)
