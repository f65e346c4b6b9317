"""How closely a window's requests tell what a change brings: the interval of its forecast.

A count of requests says nothing by itself: forty that generate for minutes may settle what two
thousand short ones leave open. The window is drawn anew from its own minutes, each with the
requests that came in it (a block bootstrap, Künsch, Annals of Statistics 17, 1989: bursts, rate and
lengths vary together, as they do between hours), goes on for an hour as
:mod:`driftwatch.recommend.steady` has it, and is replayed with and without the change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from driftwatch.recommend.observed.traffic import Observed
from driftwatch.recommend.replaying import Judged
from driftwatch.recommend.steady import WARM_SHARE, steady
from driftwatch.recommend.sweep import Ground, gain_of
from driftwatch.recommend.sweep_candidates import Knobs
from driftwatch.recommend.worlds import World
from driftwatch.simulate.requests import Requests

Integers = npt.NDArray[np.int64]

_BLOCK_SECONDS = 60.0
_DRAWS = 8
_MOST_REQUESTS = 5000  # of one replay: the draws differ by more than so many requests leave open
_INSIDE = (0.1, 0.9)  # an 80 % interval, as every forecast has


class Interval(NamedTuple):
    """A gain in target over windows that could have been.

    Attributes:
        low: lower end.
        high: upper end.
        mean: over the windows.
    """

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
    """The gain in target of some knobs by the best law; None = unknown.

    What is not known of the law is no question of the requests: every world is asked by itself.

    Args:
        ground: of the sweep.
        observed: the traffic that is judged; of a request log as of minutes.
        knobs: the change.
        seed: of the draws.
        demands: times the observed demand; None = those of the ground.
    """
    found = []
    for requests, lasting in _windows(observed, seed):
        judged = replace(ground.judged, since_seconds=WARM_SHARE * lasting, until_seconds=lasting)
        gain = gain_of(_with(ground, requests, judged, ground.worlds[0]), knobs, demands)
        if gain is None:
            return None
        found.append(gain.mean)
    if not found:
        return None
    low, high = np.quantile(found, _INSIDE)
    return Interval(float(low), float(high), float(np.mean(found)))


def _with(ground: Ground, requests: Requests, judged: Judged, world: World) -> Ground:
    return replace(
        ground,
        worlds=[world],
        requests=requests,
        judged=judged,
        whole_hits=None,
        memory={},
        limits={},
        capacities={},
    )


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
        moved = np.repeat((np.arange(blocks) - chosen) * width, counts)
        drawn = own.take(places)
        arrival = drawn.arrival_seconds + moved
        patience = drawn.cancel_seconds - drawn.arrival_seconds
        again = replace(drawn, arrival_seconds=arrival, cancel_seconds=arrival + patience)
        order = np.argsort(arrival, kind="stable")
        window = replace(observed, requests=again.take(order), carried_requests=0)
        requests, lasting = steady(window, seed + draw)
        if len(requests) > _MOST_REQUESTS:
            lasting = float(requests.arrival_seconds[_MOST_REQUESTS])
            requests = requests.take(slice(_MOST_REQUESTS))
        yield requests, lasting
