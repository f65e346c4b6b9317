"""How much of the past a tick hands to the next."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS

_KEY = list(KEY_COLUMNS)


def recent(scrapes: pl.DataFrame, evaluated_until: datetime) -> pl.DataFrame:
    """What the next minutes need in full: the open minute, and of each target what came last.

    That is its last usable scrape, from which the next one counts on, and its last two of any
    kind, which say how often it is scraped. The rest is in ``Carried.past``.

    Args:
        scrapes: scrape table, in order.
        evaluated_until: end of the last evaluated minute.
    """
    done = pl.col("time") < evaluated_until

    def from_the_end(kept: pl.Expr, count: int) -> pl.Expr:
        """The last ``count`` rows of each target for which this holds."""
        return kept & (kept.cum_sum(reverse=True).over(_KEY) <= count)

    wanted = scrapes.select(
        ~done | from_the_end(done, 2) | from_the_end(done & pl.col("ok"), 1)
    ).to_series()
    return scrapes.filter(wanted)
