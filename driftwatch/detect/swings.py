"""How far the mean lengths of a baseline swing by themselves.

Null: nothing is wrong, and mean lengths swing as they did in the baseline. |ln| of a ten-minute
mean over the baseline's mean is taken to have an exponential tail beyond its median: real traffic
comes in bursts, and a normal tail would be too short. Of N such blocks the largest is then about
b ln N, and one of M blocks goes as far as b ln M: so the largest swing of the baseline, raised to
ln M / ln N, is reached about once in M blocks. M is a month's blocks of both lengths, so that one
server goes beyond it about once a month.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Final

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS

_KEY = list(KEY_COLUMNS)
LENGTHS: Final = ("prompt_tokens", "generation_tokens")
BLOCK: Final = timedelta(minutes=10)
# A mean of fewer lengths is not compared.
MIN_REQUESTS: Final = 100
# An hour's: fewer say nothing about a tail.
MIN_BLOCKS: Final = 6
# What a server may go beyond once: ten minutes of a month of 30 days, times two lengths.
MONTH_BLOCKS: Final = 30 * 24 * 6 * len(LENGTHS)
# A baseline that saw this much of a day knows its nights; a shorter one answers for as long as it
# lasted, and no longer.
WHOLE_DAY: Final = timedelta(hours=20)


def swings(minutes: pl.DataFrame) -> pl.DataFrame:
    """Targets → how far a ten-minute mean of each length goes from the baseline's by itself.

    Args:
        minutes: :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`, of a baseline.

    Returns:
        instance, engine, and ``reference_…_usual_ratio`` of both lengths: a factor of 1 and more
        that a mean is above, or below, about once a month; NULL where fewer than
        :data:`MIN_BLOCKS` blocks have :data:`MIN_REQUESTS` finished requests.
    """
    block = (pl.col("end") - timedelta(minutes=1)).dt.truncate(BLOCK)
    blocks = minutes.group_by(*_KEY, block=block, maintain_order=True).agg(
        pl.col(f"{name}_{part}").sum() for name in LENGTHS for part in ("sum", "count")
    )
    return blocks.group_by(_KEY, maintain_order=True).agg(
        _usual(name).alias(f"reference_{name}_usual_ratio") for name in LENGTHS
    )


def _usual(name: str) -> pl.Expr:
    tokens, count = pl.col(f"{name}_sum"), pl.col(f"{name}_count")
    counted = (count >= MIN_REQUESTS) & (tokens > 0)
    mean = tokens.filter(counted).sum() / count.filter(counted).sum()
    furthest = (tokens / count / mean).log().abs().filter(counted).max()
    number = counted.sum()
    beyond = math.log(MONTH_BLOCKS) / number.cast(pl.Float64).log()
    return pl.when(number >= MIN_BLOCKS).then((furthest * beyond).exp())


def usual_ratio(name: str) -> pl.Expr:
    """A row's ``…_usual_ratio``: the reference's, for as long as the reference answers for it.

    Args:
        name: of :data:`LENGTHS`.
    """
    length = pl.col("reference_until") - pl.col("reference_since")
    answers = (length >= WHOLE_DAY) | (pl.col("end") <= pl.col("reference_until") + length)
    return pl.when(answers).then(pl.col(f"reference_{name}_usual_ratio"))
