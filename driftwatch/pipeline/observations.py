"""The verdicts that can change an incident: most minutes of most targets cannot."""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

from driftwatch.incidents.life_cycle import MINUTE_SECONDS
from driftwatch.rulebook.rules import Rule


def relevant_verdicts(
    observed: pl.DataFrame, rule: Rule, by: Sequence[str], open_keys: pl.DataFrame
) -> pl.DataFrame:
    """The rows of one rule in which an incident of it is open or opens.

    An incident opens with a true minute. It is closed at the latest after ``keep_firing_for`` of
    calm minutes (:func:`driftwatch.incidents.life_cycle.step`). Rows between that and the next true
    minute change nothing. Of a rule with overrides the longest ``keep_firing_for`` counts.

    Args:
        observed: ``by``, ``end``, ``verdict`` and ``over`` (NULL = unknown), a row per key and
            minute.
        by: columns of the key.
        open_keys: ``by``, the keys with an open incident before the first row.
    """
    true = pl.col("verdict").fill_null(False)
    concerned = pl.concat([observed.filter(true).select(by), open_keys.select(by)]).unique()
    if concerned.is_empty():
        return observed.clear()
    mine = observed.join(concerned, on=by, how="semi").sort(*by, "end")
    if rule.over is None:
        calm, restless = pl.col("verdict").eq(False), pl.lit(False)
    else:
        # an unknown verdict leaves a pending incident as it is, whatever `until` is
        calm = pl.col("verdict").eq(False) & pl.col("over")
        restless = pl.col("over").eq(False)
    longest = max(one.keep_firing_for_seconds for one in rule.variants)
    needed = max(1, math.ceil(longest / MINUTE_SECONDS))
    episode, stretch = [*by, "episode"], [*by, "episode", "stretch"]
    counted = (
        mine.with_columns(true=true, calm=calm.fill_null(False), restless=restless.fill_null(False))
        .with_columns(episode=pl.col("true").cum_sum().over(by))
        .with_columns(stretch=pl.col("restless").cum_sum().over(episode))
        .with_columns(over_for=pl.col("calm").cum_sum().over(stretch) >= needed)
        .with_columns(closed=pl.col("over_for").shift(1, fill_value=False).cum_max().over(episode))
    )
    was_open = open_keys.select(by).unique().with_columns(was_open=pl.lit(True))
    started = (pl.col("episode") > 0) | pl.col("was_open").fill_null(False)
    return (
        counted.join(was_open, on=by, how="left", maintain_order="left")
        .filter(started & ~pl.col("closed"))
        .select(observed.columns)
    )
