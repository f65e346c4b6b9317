"""Scrapes that show an older sample once more: of a page behind a cache, or asked too often.

A page that changes every 15 s, or that a Prometheus takes once a minute, reads the same from one
scrape to the next. That is one sample seen several times: what it says of the scheduler held until
the next sample came, and no step without a token lies between them. A frozen engine's page reads
the same too, so this is believed for a minute only, the longest interval that scrapes are promised
to be judged at; from then on the engine gives no token.
"""

from __future__ import annotations

import polars as pl

from driftwatch.collect.registry import COUNTERS, GAUGES, HISTOGRAMS

# Prometheus' default scrape_interval, and half of what makes an engine stuck (detection.md).
BELIEVED_SECONDS = 60

_SHOWN = (*COUNTERS, *GAUGES, *(f"{h}_{part}" for h in HISTOGRAMS for part in ("sum", "count")))
# since the scrape before: of a repeated sample there is nothing between the two
_SINCE = ("preempted", "tokens_per_step", "first_tokens_per_step", "steps_per_second", "stalled")


def reads_the_same(epochs: pl.DataFrame, stalled: pl.Series) -> pl.Series:
    """Whether a scrape shows nothing but what the one before it showed.

    Args:
        epochs: from :func:`driftwatch.signals.continuity.with_epochs`.
        stalled: requests run, and no token came since the scrape before. Only of these it is
            asked: of any other scrape the answer would change nothing.

    Returns:
        Boolean per row of ``epochs``.
    """
    rows = stalled.fill_null(False).arg_true()
    if not len(rows):
        return pl.repeat(False, len(epochs), dtype=pl.Boolean, eager=True)
    # a stalled scrape is none that begins an epoch: the row before it is of the same target
    now, before = (epochs.select(pl.col(_SHOWN).gather(at)) for at in (rows, rows - 1))
    same = pl.repeat(True, len(rows), dtype=pl.Boolean, eager=True)
    for name in _SHOWN:
        same &= now[name].eq_missing(before[name])
    found = pl.repeat(False, len(epochs), dtype=pl.Boolean, eager=True)
    return found.scatter(rows.filter(same), True)


def with_samples(facts: pl.DataFrame, new: pl.Series) -> pl.DataFrame:
    """Facts of scrapes, those of repeated samples as their sample's were.

    Args:
        facts: by target and time, with ``time``, ``preempted``, ``tokens_per_step``,
            ``first_tokens_per_step``, ``steps_per_second``, ``stalled`` and ``repeats``
            (:func:`reads_the_same`); of rows that are not new as this function left them, with
            ``sampled_at``.
        new: Boolean per row; the row before a new one that repeats is of the same target.

    Returns:
        The rows with ``sampled_at`` (the scrape that showed the sample first); ``repeats`` is true
        while the repetition is believed, and what happened since the scrape before is then what
        the sample said.
    """
    again = facts["repeats"] & new
    at = facts.select(pl.when(new).then("time").otherwise("sampled_at")).to_series()
    if not again.any():
        return facts.with_columns(sampled_at=at)
    place = facts.select(
        pl.when(~again).then(pl.int_range(pl.len(), dtype=pl.UInt32)).forward_fill()
    ).to_series()
    sampled = at.gather(place)
    age = (facts["time"] - sampled).dt.total_milliseconds()
    believed = again & (age < BELIEVED_SECONDS * 1000)
    then = facts.select(pl.col(_SINCE).gather(place)).rename(lambda name: f"{name}_then")
    return (
        facts.hstack(then)
        .with_columns(
            sampled_at=sampled,
            repeats=pl.when(new).then(believed).otherwise("repeats"),
            **{name: pl.when(believed).then(f"{name}_then").otherwise(name) for name in _SINCE},
        )
        .drop(then.columns)
    )
