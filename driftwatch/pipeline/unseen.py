"""The minutes of which no source has a scrape of a target, each with its reason. Pure."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS, TIME
from driftwatch.diagnose.evidence_table import minute_windows
from driftwatch.model import TargetKey
from driftwatch.pipeline.departures import middle
from driftwatch.pipeline.roster import Sources
from driftwatch.pipeline.state import State

_KEY = list(KEY_COLUMNS)


def listing(state: State, sources: Sources, left: frozenset[TargetKey]) -> pl.DataFrame:
    """Per target its ``origin``, the same as ``source`` unless it tells by itself, and ``left``."""
    origins = state.departures.origins
    named = [origins.get(key) for key in state.targets]
    return pl.DataFrame(
        {
            "instance": [key.instance for key in state.targets],
            "engine": [key.engine for key in state.targets],
            "origin": pl.Series(named, dtype=pl.String),
            "left": [key in left for key in state.targets] if left else [False] * len(named),
        }
    ).with_columns(
        source=pl.when(~pl.col("origin").is_in(sorted(sources.fixed))).then(pl.col("origin"))
    )


def said(absent: pl.DataFrame, listed: pl.DataFrame) -> pl.DataFrame:
    """The minutes without a scrape, each with its reason."""
    why = pl.when("left").then(pl.lit("not listed by ")).otherwise(pl.lit("not scraped by "))
    return absent.join(listed, on=_KEY, how="left").select(
        *_KEY, "end", reason=why + pl.col("source")
    )


def late(
    state: State, listed: pl.DataFrame, sources: Sources, first: datetime, last: datetime
) -> pl.DataFrame:
    """The minutes that are evaluated without a source that is late, for its targets."""
    told = pl.DataFrame(
        [
            (name, why, state.collected_until.get(name, first))
            for name, why in sorted((sources.late or {}).items())
        ],
        schema={"origin": pl.String, "reason": pl.String, "until": TIME},
        orient="row",
    )
    theirs = listed.join(told, on="origin")
    return (
        minute_windows(theirs, first, last)
        .join(theirs, on=_KEY)
        .filter(middle(pl.col("start")) >= pl.col("until"))
        .select(*_KEY, "end", "reason")
    )
