"""How much of the past a tick hands to the next."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS, in_order
from driftwatch.service.state import HISTORY

_KEY = list(KEY_COLUMNS)


def recent(scrapes: pl.DataFrame, evaluated_until: datetime) -> pl.DataFrame:
    """What the next minutes need: the longest window, and the last usable scrape before it.

    Args:
        scrapes: scrape table, in order.
        evaluated_until: end of the last evaluated minute.
    """
    begin = evaluated_until - HISTORY
    kept = scrapes.filter(pl.col("time") >= begin)
    usable = pl.col("ok")
    older = scrapes.filter((pl.col("time") < begin) & usable)
    last = older.group_by(_KEY, maintain_order=True).last().select(scrapes.columns)
    silent = last.join(kept.filter(usable), on=_KEY, how="anti")
    return in_order(pl.concat([silent, kept]))
