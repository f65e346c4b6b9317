"""Clients that wait for their answer before they ask again: fixed concurrency, think time.

Without think time ``simulate(..., concurrency=N)`` is the closed loop. With it a client sends its
next request ``think_seconds`` after an answer, so arrivals depend on completions; the engine is
then run forward by at most the shortest think time at once, in which no new arrival can fall.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from driftwatch.simulate.requests import Floats, Requests

if TYPE_CHECKING:
    from driftwatch.simulate.engine import Engine


def think(
    mean_seconds: float, count: int, rng: np.random.Generator, *, spread: float = 0.5
) -> Floats:
    """Think times, uniform in mean · (1 ± spread).

    Raises:
        ValueError: the mean is not above 0, or the spread not in [0, 1).
    """
    if not (np.isfinite(mean_seconds) and mean_seconds > 0):
        raise ValueError(f"mean_seconds must be above 0, not {mean_seconds}")
    if not 0 <= spread < 1:
        raise ValueError(f"spread must be at least 0 and below 1, not {spread}")
    return mean_seconds * rng.uniform(1.0 - spread, 1.0 + spread, count)


def closed_loop(
    engine: Engine, lengths: Requests, think_seconds: Floats, *, concurrency: int
) -> pl.DataFrame:
    """Send all of ``lengths`` through a fixed number of clients; ``Outcome.requests`` of all.

    Args:
        engine: a fresh engine; it ends when the last request has.
        lengths: what is sent, in this order; the first ``concurrency`` at time 0. Their own
            arrivals are not used; cancellations count from them.
        think_seconds: for each request, how long its client waited after the answer before.
        concurrency: clients.

    Raises:
        ValueError: no clients, or a think time that is not above 0.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency must be at least 1, not {concurrency}")
    if len(think_seconds) != len(lengths) or not (think_seconds > 0).all():
        raise ValueError("think_seconds must be above 0, one for each request")
    patience = lengths.cancel_seconds - lengths.arrival_seconds
    step = float(think_seconds.min(initial=np.inf))
    due = np.zeros(min(concurrency, len(lengths)))
    sent, thought, ended, now = 0, len(due), 0, 0.0
    frames = []
    while thought < len(lengths) or len(due):
        # who gets an answer after `now` asks again after now + step; while nobody waits for an
        # answer, nothing happens before the next request is due
        until = now + step if sent > ended else float(due.min())
        ready, due = np.sort(due[due <= until]), due[due > until]
        engine.offer(_at(lengths, sent, ready, patience))
        sent += len(ready)
        frames.append(engine.advance(until).requests)
        ended += frames[-1].height
        # a request that was refused has no end: its client knows at once
        ends = frames[-1].select(pl.coalesce("end_seconds", "arrival_seconds")).to_series()
        following = think_seconds[thought : thought + len(ends)]
        thought += len(following)
        due = np.concatenate((due, np.sort(ends.to_numpy())[: len(following)] + following))
        now = until
    frames.append(engine.advance().requests)
    return pl.concat(frames).sort("index")


def _at(lengths: Requests, start: int, arrival: Floats, patience: Floats) -> Requests:
    from dataclasses import replace

    some = lengths.take(slice(start, start + len(arrival)))
    return replace(
        some,
        arrival_seconds=arrival,
        cancel_seconds=arrival + patience[start : start + len(arrival)],
    )
