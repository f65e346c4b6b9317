"""Since when the traffic is as it is now: what a change is judged by.

A page fires minutes after traffic changed. The law of a step does not depend on the traffic, so all
that was seen of the engine says what a step takes; a knob sized for a mix of before and after would
be sized for traffic that no server ever sees again.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.errors import NoVerdict
from driftwatch.recommend.capacity import FEWEST_REQUESTS
from driftwatch.recommend.observed.chunks import chunks_of, p95_of
from driftwatch.recommend.observed.clean import Clean, clean
from driftwatch.recommend.observed.from_minutes import busy_minutes, is_saturated
from driftwatch.recommend.observed.hits import whole_hit_ratio
from driftwatch.recommend.observed.traffic import Observed
from driftwatch.simulate.requests import Requests

Floats = npt.NDArray[np.float64]

_PIECE_SECONDS = 60.0
_PIECES_AT_LEAST = 2  # on each side of a change
_ALIKE = 1.25  # times or over this: less than any drift that is told (detection.md: x1.5)
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
    came = observed.requests.take(slice(observed.carried_requests, None))
    figures, counts = _figures(came, edges), np.histogram(came.arrival_seconds, edges)[0]
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
    found = []
    for row in figures:
        steps = np.diff(row[np.isfinite(row)])
        # of squared normal steps, each with twice the variance, the median is 0.455 of the mean
        found.append(float(np.median(steps**2)) / (2 * 0.455) if len(steps) else np.inf)
    return np.array(found)


def _change(figures: Floats, noise: Floats) -> tuple[int, int] | None:
    """The piece with which something else begins, and whether that is the rate and how it moved (-1
    fell, 1 rose, 0 lengths); None where nothing does.

    Args:
        figures: of :func:`_figures`.
        noise: variance of each figure's pieces, at least.
    """
    best: float = _CERTAIN**2
    found: tuple[int, int] | None = None
    for place in range(_PIECES_AT_LEAST, figures.shape[1] - _PIECES_AT_LEAST + 1):
        score = 0.0
        moved = 0
        for number, (row, least) in enumerate(zip(figures, noise, strict=True)):
            known = np.isfinite(row)
            before, after = row[:place][known[:place]], row[place:][known[place:]]
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
            best, found = score, (place, moved)
    return found


def recent(observed: Observed, minutes: pl.DataFrame, since: float) -> Observed:
    """The end of a window, as a window of its own.

    Requests that were there when it begins are not in it: it is what came that is judged.

    Args:
        observed: the whole window.
        minutes: of which it was made.
        since: second of its clock; the nearest edge of a row counts.
    """
    if since <= 0.0:
        return observed
    stretch = clean(minutes)
    row = min(int(np.searchsorted(stretch.edges, since - 1.0)), len(stretch.edges) - 2)
    since = float(stretch.edges[row])
    start = stretch.start + timedelta(seconds=since)
    late = Clean(stretch.rows.slice(row), stretch.edges[row:] - since, start)
    came = observed.requests.take(slice(observed.carried_requests, None))
    came = came.take(came.arrival_seconds >= since)
    if not len(came):
        raise NoVerdict(f"no request came since the traffic changed at {start:%H:%M} UTC")
    return replace(
        observed,
        start=start,
        seconds=late.seconds,
        requests=replace(
            came,
            arrival_seconds=came.arrival_seconds - since,
            cancel_seconds=came.cancel_seconds - since,
        ),
        chunks=chunks_of(late),
        busy_windows=busy_minutes(late),
        finished_requests=int(np.nansum(late.column("generation_tokens_count"))),
        saturated=is_saturated(late),
        prefix_hit_ratio=whole_hit_ratio(late),
        ttft_p95_seconds=p95_of(late, "ttft_seconds"),
        tpot_p95_seconds=p95_of(late, "tpot_seconds"),
        carried_requests=0,
        waits=None,
    )
