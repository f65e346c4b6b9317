"""Since when the traffic is as it is now: what a change is judged by."""

from __future__ import annotations

import numpy as np

from driftwatch.recommend.observed.traffic import Observed
from driftwatch.simulate.requests import Requests

_PIECE_SECONDS = 300.0  # as long as it takes to know a mean length to some percent
_PIECES_AT_LEAST = 2
_REQUESTS_AT_LEAST = 300
_ALIKE = 1.25  # times or over this: less than any drift that is told (detection.md: x1.5)


def alike_since(observed: Observed) -> float:
    """Second from which on the requests are alike in rate, prompt and generation length.

    From the end of the window backwards in pieces of 5 minutes, as long as the piece before is
    within a quarter of what came after it; 10 minutes and 300 requests at least.
    """
    requests, end = observed.requests, observed.seconds
    pieces = int(end // _PIECE_SECONDS)
    since = end
    for piece in range(pieces):
        first = end - (piece + 1) * _PIECE_SECONDS
        before, after = _work(requests, first, since), _work(requests, since, end)
        enough = piece >= _PIECES_AT_LEAST and _count(requests, since, end) >= _REQUESTS_AT_LEAST
        if enough and not _similar(before, after):
            return since
        since = first
    return 0.0


def _count(requests: Requests, first: float, last: float) -> int:
    at = requests.arrival_seconds
    return int(((at >= first) & (at < last)).sum())


def _work(requests: Requests, first: float, last: float) -> tuple[float, float, float]:
    """Requests a second, mean prompt and mean generation of those that arrived then."""
    at = requests.arrival_seconds
    some = (at >= first) & (at < last) & (at > 0.0)
    if last <= first or not some.any():
        return 0.0, 0.0, 0.0
    return (
        float(some.sum()) / (last - first),
        float(np.mean(requests.prompt_tokens[some])),
        float(np.mean(requests.generation_tokens[some])),
    )


def _similar(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return all(
        a == b == 0.0 or (b > 0.0 and 1 / _ALIKE <= a / b <= _ALIKE)
        for a, b in zip(one, other, strict=True)
    )
