"""The traffic that a change is judged by: since it is as it is now, going on for an hour, and drawn
anew to tell how closely it is known.

A change restarts the server and its queue is gone: the window's requests come again and again, in
another order each time, at their own times, to an empty server. The interval of a forecast is a
block bootstrap (Künsch, Annals of Statistics 17, 1989) over the window's minutes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

import numpy as np
import polars as pl

from driftwatch.arrays import Floats
from driftwatch.errors import NoVerdict
from driftwatch.recommend.capacity import FEWEST_REQUESTS
from driftwatch.recommend.ground import Ground
from driftwatch.recommend.sweep import gain_of
from driftwatch.recommend.sweep_values import Knobs
from driftwatch.recommend.traffic.from_minutes import observed_of
from driftwatch.recommend.traffic.observed import Observed, joined, moved
from driftwatch.recommend.traffic.stretch import Clean, clean
from driftwatch.simulate.requests import Requests

_PIECE_SECONDS = 60.0
_PIECES_AT_LEAST = 2  # on each side of a change
_ALIKE = 1.25  # times or over this: less than any drift that is told
# Standard deviations between two means, each piece counting once: of the best of 60 places and
# three figures, chance alone reaches it in fewer than one window of a hundred.
_CERTAIN = 4.0
# Fewer requests for less than that are a lull between two waves: the demand comes back, and what is
# asked is whether the server serves it.
_LULL_PIECES = 10
# More of them, or others, for less than that: too short to judge a server by. The traffic before it
# is judged, and not refused for it.
_SHORTEST_PIECES = 3


def alike_since(observed: Observed) -> float:
    """Second from which on the requests are alike in rate, prompt and generation length.

    The window is split at the minute that separates two means best, as long as these differ by a
    quarter or more and by four standard deviations of what minutes differ by among themselves; then
    its later part again (binary segmentation, Scott and Knott 1974). A rate that fell counts once
    it stayed low for ten minutes; whatever changed, once requests came in three minutes since, and
    as many requests as are judged at least: from fewer no server can be judged, and the last
    minutes' lengths are those of the few that ended by then.
    """
    pieces = int(observed.seconds // _PIECE_SECONDS)
    if pieces < 2 * _PIECES_AT_LEAST:
        return 0.0
    edges: Floats = observed.seconds - _PIECE_SECONDS * np.arange(pieces, -1, -1.0)
    requests = observed.requests.take(slice(observed.carried_requests, None))
    figures, counts = _figures(requests, edges), np.histogram(requests.arrival_seconds, edges)[0]
    noise, first, last = _noise(figures), 0, pieces
    while (change := _change(figures[:, first:last], noise)) is not None:
        place, rate = change
        since = counts[first + place :]
        few = int((since > 0).sum()) < _SHORTEST_PIECES or int(since.sum()) < FEWEST_REQUESTS
        if few or (rate < 0 and len(since) < _LULL_PIECES):
            last = first + place
        else:
            first += place
    return float(edges[first]) if first else 0.0


_RATE = 0  # the first of the figures


def _figures(requests: Requests, edges: Floats) -> Floats:
    """Logs of rate, mean prompt and mean generation, a column a piece; NaN where nobody came."""
    piece = np.searchsorted(edges, requests.arrival_seconds, side="right") - 1
    inside = (piece >= 0) & (piece < len(edges) - 1)
    many = len(edges) - 1
    count = np.bincount(piece[inside], minlength=many).astype(np.float64)
    rows = [np.log(count + 0.5)]
    for values in (requests.prompt_tokens, requests.generation_tokens):
        total = np.bincount(piece[inside], weights=values[inside], minlength=many)
        with np.errstate(divide="ignore", invalid="ignore"):
            rows.append(np.where(count > 0, np.log(total / count), np.nan))
    return np.array(rows)


def _noise(figures: Floats) -> Floats:
    """Variance of a piece by its differences from the piece before, which no change moves much."""
    variances = []
    for row in figures:
        steps = np.diff(row[np.isfinite(row)])
        # of squared normal steps, each with twice the variance, the median is 0.455 of the mean
        variances.append(float(np.median(steps**2)) / (2 * 0.455) if len(steps) else np.inf)
    return np.array(variances)


def _change(figures: Floats, noise: Floats) -> tuple[int, int] | None:
    """The piece with which something else begins, and whether that is the rate and how it moved (-1
    fell, 1 rose, 0 lengths); None where nothing does.
    """
    best: float = _CERTAIN**2
    change: tuple[int, int] | None = None
    for place in range(_PIECES_AT_LEAST, figures.shape[1] - _PIECES_AT_LEAST + 1):
        score = 0.0
        moved = 0
        for number, (row, least) in enumerate(zip(figures, noise, strict=True)):
            finite = np.isfinite(row)
            before, after = row[:place][finite[:place]], row[place:][finite[place:]]
            if len(before) < _PIECES_AT_LEAST or len(after) < _PIECES_AT_LEAST:
                continue
            off = float(after.mean() - before.mean())
            if abs(off) <= np.log(_ALIKE):
                continue
            inside = ((before - before.mean()) ** 2).sum() + ((after - after.mean()) ** 2).sum()
            variance = max(float(inside) / max(len(before) + len(after) - 2, 1), float(least))
            apart = 1.0 / len(before) + 1.0 / len(after)
            own = off * off / max(variance * apart, 1e-12)
            if own > score:
                score, moved = own, int(np.sign(off)) if number == _RATE else 0
        if score > best:
            best, change = score, (place, moved)
    return change


def recent(observed: Observed, minutes: pl.DataFrame, since: float) -> Observed:
    """The end of a window, as a window of its own.

    Requests that were there when it begins are not in it: it is what came that is judged.
    ``since``: second of its clock; the nearest edge of a row counts.
    """
    if since <= 0.0:
        return observed
    stretch = clean(minutes)
    row = min(int(np.searchsorted(stretch.edges, since - 1.0)), len(stretch.edges) - 2)
    since = float(stretch.edges[row])
    start = stretch.start + timedelta(seconds=since)
    late = Clean(stretch.rows.slice(row), stretch.edges[row:] - since, start)
    requests = observed.requests.take(slice(observed.carried_requests, None))
    requests = requests.take(requests.arrival_seconds >= since)
    if not len(requests):
        raise NoVerdict(f"no request came since the traffic changed at {start:%H:%M} UTC")
    late_requests = moved(requests, requests.arrival_seconds - since)
    return observed_of(late, late_requests, 0, observed.source, observed.notes)


PIECE_SECONDS = 300.0
LEAST_SPREAD, MOST_SPREAD = 0.1, 0.5  # of the rate
HORIZON_SECONDS = 3600.0
MOST_REQUESTS = 15_000
WARM_SHARE = 0.1  # of the horizon: the server starts empty


def steady(
    observed: Observed, seed: int, beside: Sequence[Observed] = ()
) -> tuple[Requests, float]:
    """Requests from second 0 on, and how long they last.

    ``beside``: windows of peers: theirs come in between, in turn, each for an equal part of the
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
    return moved(again, arrival), rounds * span


def _staying(own: Requests, rng: np.random.Generator) -> Requests:
    """The requests whose clients left, with generations of those that stayed."""
    cancelled = np.isfinite(own.cancel_seconds)
    if not cancelled.any() or cancelled.all():
        return own
    generation = own.generation_tokens.copy()
    generation[cancelled] = rng.choice(generation[~cancelled], int(cancelled.sum()))
    return replace(own, generation_tokens=generation, cancel_seconds=np.full(len(own), np.inf))


def _in_turn(windows: Sequence[tuple[Requests, float]]) -> tuple[Requests, float]:
    """A part of each window behind that of the one before, as many requests as of one in all."""
    parts, began = [], 0.0
    not_empty = [(requests, lasting) for requests, lasting in windows if len(requests)]
    for requests, lasting in not_empty:
        until = lasting / len(not_empty)
        part = requests.take(requests.arrival_seconds < until)
        parts.append(moved(part, part.arrival_seconds + began))
        began += until
    return (joined(parts), began) if parts else windows[0]


def demands(observed: Observed, rate: float) -> tuple[float, float]:
    """How much less and how much more than a rate the next hour may bring.

    The lower and the upper fifth of the window's rates over 5 minutes, over the given one; a tenth
    at least, as no window of minutes knows the demand better, and a half at most.
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


_BLOCK_SECONDS = 60.0
_DRAWS = 8
_MOST_REQUESTS = (
    5000  # of one simulation: the draws differ by more than so many requests leave open
)
_INSIDE = (0.1, 0.9)  # an 80 % interval, as every forecast has


class Interval(NamedTuple):
    """A gain in target over windows that could have been."""

    low: float
    high: float
    mean: float


def gain_interval(
    ground: Ground,
    observed: Observed,
    knobs: Knobs,
    seed: int,
    demands: Sequence[float] | None = None,
) -> Interval | None:
    """The gain in target of some knobs by the best step-time model; None = unknown.

    What is not known of the step-time model is no question of the requests: every scenario is asked
    by itself. ``observed``: the traffic that is judged; of a request log as of minutes;
    ``demands``: times the observed demand; None = those of the ground.
    """
    gains = []
    for requests, lasting in _windows(observed, seed):
        judged = replace(ground.judged, since_seconds=WARM_SHARE * lasting, until_seconds=lasting)
        gain = gain_of(
            ground.other(
                scenarios=ground.scenarios[:1], requests=requests, judged=judged, whole_hits=None
            ),
            knobs,
            demands,
        )
        if gain is None:
            return None
        gains.append(gain.mean)
    if not gains:
        return None
    low, high = np.quantile(gains, _INSIDE)
    return Interval(float(low), float(high), float(np.mean(gains)))


def _windows(observed: Observed, seed: int) -> Iterator[tuple[Requests, float]]:
    """The window drawn anew, going on, and how long it lasts."""
    own = observed.requests.take(slice(observed.carried_requests, None))
    blocks = max(1, round(observed.seconds / _BLOCK_SECONDS))
    width = observed.seconds / blocks
    edges = np.searchsorted(own.arrival_seconds, width * np.arange(blocks + 1))
    edges[0], edges[-1] = 0, len(own)
    for draw in range(_DRAWS):
        rng = np.random.default_rng([seed, draw])
        chosen = rng.integers(blocks, size=blocks)
        places = np.concatenate([np.arange(edges[b], edges[b + 1]) for b in chosen])
        if not len(places):
            continue
        counts = (edges[1:] - edges[:-1])[chosen]
        shift = np.repeat((np.arange(blocks) - chosen) * width, counts)
        sample = own.take(places)
        arrival = sample.arrival_seconds + shift
        again = moved(sample, arrival)
        order = np.argsort(arrival, kind="stable")
        window = replace(observed, requests=again.take(order), carried_requests=0)
        requests, lasting = steady(window, seed + draw)
        if len(requests) > _MOST_REQUESTS:
            lasting = float(requests.arrival_seconds[_MOST_REQUESTS])
            requests = requests.take(slice(_MOST_REQUESTS))
        yield requests, lasting
