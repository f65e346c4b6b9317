"""How closely a window's requests tell what a change brings: the interval of its forecast.

A count of requests says nothing by itself: forty that generate for minutes may settle what two
thousand short ones leave open. The window is drawn anew from its own minutes, each with the
requests that came in it (a block bootstrap, Künsch, Annals of Statistics 17, 1989: bursts, rate and
lengths vary together, as they do between hours), goes on for an hour as
:mod:`driftwatch.recommend.steady` has it, and is replayed with and without the change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

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
_SIDE = 1.2816  # standard deviations: an 80 % interval, as every forecast has


def gain_interval(
    ground: Ground, observed: Observed, knobs: Knobs, seed: int, demand: float = 1.0
) -> tuple[float, ...]:
    """Lower and upper end of the gain in target, in the world that gains least; empty = unknown.

    Args:
        ground: of the sweep.
        observed: the traffic that is judged; of a request log as of minutes.
        knobs: the change.
        seed: of the draws.
        demand: times the observed rate.
    """
    world = min(
        ground.worlds,
        key=lambda one: _gain(replace(ground, worlds=[one]), knobs) or 0.0,
    )
    found = []
    for requests, lasting in _windows(observed, seed):
        judged = replace(ground.judged, since_seconds=WARM_SHARE * lasting, until_seconds=lasting)
        gain = _gain(_with(ground, requests, judged, world), knobs, demand)
        if gain is None:
            return ()
        found.append(gain)
    if not found:
        return ()
    middle, spread = float(np.mean(found)), float(np.std(found, ddof=1))
    return middle - _SIDE * spread, middle + _SIDE * spread


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


def _gain(ground: Ground, knobs: Knobs, demand: float = 1.0) -> float | None:
    found = gain_of(ground, knobs, demand)
    return None if found is None else found.mean


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
