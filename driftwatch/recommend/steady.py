"""The observed traffic going on: what a change is judged by.

A change restarts the server, and the queue of the moment is gone with it. What counts is how the
server would do if the traffic of the window went on: its requests again and again, in another order
each time, at their own times, from an empty server. Overload that a window of ten minutes only
begins to show builds up; a backlog that was there before does not hide what a change brings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np

from driftwatch.recommend.observed.traffic import Observed
from driftwatch.simulate.requests import Requests

PIECE_SECONDS = 300.0
LEAST_SPREAD, MOST_SPREAD = 0.1, 0.5  # of the rate
HORIZON_SECONDS = 3600.0
MOST_REQUESTS = 15_000
WARM_SHARE = 0.1  # of the horizon: the server starts empty


def steady(
    observed: Observed, seed: int, beside: Sequence[Observed] = ()
) -> tuple[Requests, float]:
    """Requests from second 0 on, and how long they last.

    Args:
        observed: the window.
        seed: of the order in which lengths come again.
        beside: windows of twins: theirs come in between, in turn, each for an equal part of the
            time: what a server of the pool is offered.
    """
    if beside:
        return _in_turn([steady(one, seed) for one in (observed, *beside)])
    since = 0.0
    own = observed.requests.take(slice(observed.carried_requests, None))
    if len(own) > MOST_REQUESTS:
        own = own.take(slice(len(own) - MOST_REQUESTS, None))
        since = float(own.arrival_seconds[0])
    span = observed.seconds - since
    if not len(own) or span <= 0:
        return own, max(span, 0.0)
    rounds = max(1, min(round(HORIZON_SECONDS / span), MOST_REQUESTS // len(own)))
    rng = np.random.default_rng(seed)
    if observed.source == "metrics":
        own = _staying(own, rng)
    at = own.arrival_seconds - since
    orders = [np.arange(len(own)), *(rng.permutation(len(own)) for _ in range(rounds - 1))]
    again = own.take(np.concatenate(orders))
    arrival = np.concatenate([at + number * span for number in range(rounds)])
    patience = again.cancel_seconds - again.arrival_seconds
    return replace(again, arrival_seconds=arrival, cancel_seconds=arrival + patience), rounds * span


def _staying(own: Requests, rng: np.random.Generator) -> Requests:
    """The requests whose clients left, with generations of those that stayed.

    What they got before they left is the work that was done; what they came for is the demand.
    """
    gone = np.isfinite(own.cancel_seconds)
    if not gone.any() or gone.all():
        return own
    generation = own.generation_tokens.copy()
    generation[gone] = rng.choice(generation[~gone], int(gone.sum()))
    return replace(own, generation_tokens=generation, cancel_seconds=np.full(len(own), np.inf))


def _in_turn(windows: Sequence[tuple[Requests, float]]) -> tuple[Requests, float]:
    """A part of each window behind that of the one before, as many requests as of one in all."""
    parts, starts, began = [], [], 0.0
    known = [(requests, lasting) for requests, lasting in windows if len(requests)]
    for requests, lasting in known:
        until = lasting / len(known)
        part = requests.take(requests.arrival_seconds < until)
        parts.append(part)
        starts.append(np.full(len(part), began))
        began += until
    if not parts:
        return windows[0]
    together = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in (one.name for one in fields(Requests))
    }
    moved = np.concatenate(starts)
    together["arrival_seconds"] = together["arrival_seconds"] + moved
    together["cancel_seconds"] = together["cancel_seconds"] + moved
    return Requests(**together), began


def demands(observed: Observed, rate: float) -> tuple[float, float]:
    """How much less and how much more than a rate the next hour may bring.

    The lower and the upper fifth of the window's rates over 5 minutes, over the given one; a tenth
    at least, as no window of minutes knows the demand better, and a half at most.

    Args:
        observed: the window.
        rate: requests a second that are replayed.
    """
    at = observed.requests.arrival_seconds[observed.carried_requests :]
    count = int(observed.seconds // PIECE_SECONDS)
    if count < 2 or rate <= 0:
        return 1 - LEAST_SPREAD, 1 + LEAST_SPREAD
    edges = observed.seconds - PIECE_SECONDS * np.arange(count, -1, -1)
    rates = np.diff(np.searchsorted(at, edges)) / PIECE_SECONDS / rate
    low, high = np.quantile(rates, [0.2, 0.8])
    return (
        float(np.clip(low, 1 - MOST_SPREAD, 1 - LEAST_SPREAD)),
        float(np.clip(high, 1 + LEAST_SPREAD, 1 + MOST_SPREAD)),
    )
