"""How long requests waited for their first token, and arrivals moved so that a simulation waits so.

A count of a minute does not say whether its requests came evenly or in clumps; how long they waited
does. Who waited the n-th longest in a simulation gets the n-th longest of the observed times
(iterated surrogates: Schreiber and Schmitz 1996), until the histogram is explained as well as
chance explains it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from driftwatch.arrays import Floats
from driftwatch.recommend.traffic.arrivals import LONGEST_WINDOWS, histograms
from driftwatch.recommend.traffic.observed import UNIT_SECONDS, Observed, RowWaits, Waits, joined
from driftwatch.recommend.traffic.stretch import Clean
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.trial import Trial
from driftwatch.simulate.workload.histograms import sample_lengths


def waits_of(stretch: Clean, waiting_first: int, seed: int) -> Waits | None:
    """The waits of a stretch; None where their buckets are not on every page."""
    by_row = histograms(stretch)
    if by_row is None:
        return None
    rng = np.random.default_rng([seed, len(by_row)])
    longest = round(LONGEST_WINDOWS * max(stretch.seconds, 1.0) / UNIT_SECONDS)
    rows, edges = [], np.array([0.0, np.inf])
    for one in by_row:
        edges = np.concatenate(([0.0], one.edges, [np.inf])) * UNIT_SECONDS
        cell = np.repeat(np.arange(len(one.counts)), one.counts)
        lengths = sample_lengths(one, len(cell), rng, longest=longest)
        rows.append(
            RowWaits(
                edges[cell], edges[cell + 1], np.sort(lengths.astype(np.float64)) * UNIT_SECONDS
            )
        )
    return Waits(stretch.edges, tuple(rows), waiting_first, edges)


UNLIKE = (
    "requests waited longer than any simulation says: clients may send in batches, and then shares "
    "in target are too good; a request log would show it"
)
_ROUNDS = 8
_ENOUGH = (
    0.05  # mean log by which waits miss their buckets: what no step-time model says of them either
)
_FINE = 0.03  # of that mean: a round that mends less was the last but one
# Of one simulation; of a longer window its end is moved (what a change is judged by is no longer).
_MOST_REQUESTS = 15_000
_DRAIN = 0.5  # of the window, for what still waits at its end
_EARLIEST_SECONDS = 1e-6  # at 0 arrive those that were there before


def as_waited(
    observed: Observed,
    configuration: SchedulerConfiguration,
    step_time: StepTime,
    ttft_overhead_seconds: float = 0.0,
    *,
    in_bursts: Requests | None = None,
    evenly: Sequence[Requests] = (),
    wander_log_sd: float = 0.0,
    seed: int = 0,
) -> Observed:
    """The observed traffic with its arrivals moved inside their minutes.

    The same where the times to first token are unknown, arrivals are those of a request log, or a
    simulation waits as was observed already. ``in_bursts``: the same requests at other times inside
    their minutes, as a calibration has them: begun with if they wait more like the observed ones;
    ``evenly``: the same requests drawn evenly inside their minutes, two or more times: where no two
    of these differ by as much in their waits, it is not chance, and arrivals are moved;
    ``wander_log_sd``: of the engine's own speed between minutes, which makes others wait as well.
    Raises ImpossibleConfiguration: a request never fits; NoVerdict: the simulation makes no
    progress.
    """
    waits = observed.waits
    if waits is None or observed.source != "metrics" or not len(observed.requests):
        return observed if in_bursts is None else replace(observed, requests=in_bursts)
    first = max(len(observed.requests) - _MOST_REQUESTS, 0)
    before = waits.waiting_first + max(first - observed.carried_requests, 0)

    def moved(requests: Requests) -> tuple[float, Requests, Requests]:
        token = _first_tokens(requests, configuration, step_time, waits)
        token = token + ttft_overhead_seconds
        arrival, off = _moved(requests.arrival_seconds, token, waits, before)
        return off, requests, _at(requests, arrival)

    def chance() -> list[float]:
        rng, tokens = np.random.default_rng(seed), []
        parts = [one.take(slice(first, None)) for one in evenly]
        for one in parts:
            factors = np.exp(wander_log_sd * rng.standard_normal(len(waits.rows)))
            tokens.append(_first_tokens(one, configuration, step_time, waits, factors))
        return _by_chance(parts, tokens, waits)

    begin, best = observed.requests, moved(observed.requests.take(slice(first, None)))
    by_chance = [] if best[0] < _ENOUGH else chance()
    least = max([_ENOUGH, *by_chance])
    if best[0] < least:  # as another even draw might miss them
        return observed
    enough = max(_ENOUGH, float(np.mean(by_chance))) if by_chance else _ENOUGH
    if in_bursts is not None:
        other = moved(in_bursts.take(slice(first, None)))
        begin, best = (in_bursts, other) if other[0] < best[0] else (begin, best)
    last, idle = best, 0
    for _ in range(_ROUNDS):
        if best[0] < enough or idle == 2:
            break
        last = moved(last[2])
        idle = idle + 1 if last[0] > best[0] * (1.0 - _FINE) else 0
        best = min(best, last, key=lambda one: one[0])
    whole = joined((begin.take(slice(first)), best[1]))
    notes = observed.notes if not by_chance or best[0] < least else (*observed.notes, UNLIKE)
    return replace(observed, requests=_at(whole, whole.arrival_seconds), notes=notes)


def _first_tokens(
    requests: Requests,
    configuration: SchedulerConfiguration,
    step_time: StepTime,
    waits: Waits,
    factors: Floats | None = None,
) -> Floats:
    """When each gets its first token in a simulation; inf where it has none half a window later."""
    until = (1.0 + _DRAIN) * float(waits.edges[-1])
    edges = None if factors is None else waits.edges[:-1]
    trial = Trial(requests, configuration, factor_seconds=edges)
    return trial.run(step_time, factors=factors, until_seconds=until).first_token_seconds


def _by_chance(parts: Sequence[Requests], tokens: Sequence[Floats], waits: Waits) -> list[float]:
    """By how much the waits of each draw miss the buckets of each other one."""
    misses = []
    for i, other in enumerate(parts):
        buckets = waits.as_if(other.arrival_seconds, tokens[i])
        misses += [
            _moved(part.arrival_seconds, token, buckets, 0)[1]
            for part, token in zip(parts, tokens, strict=True)
            if part is not other
        ]
    return misses


def _moved(arrival: Floats, token: Floats, waits: Waits, before: int) -> tuple[Floats, float]:
    """Arrivals by the observed waits, and by how much the simulated ones missed their buckets."""
    inside = np.flatnonzero((arrival > 0) & np.isfinite(token))
    order = inside[np.argsort(token[inside], kind="stable")]
    upto = np.cumsum([len(row.drawn_seconds) for row in waits.rows])
    row_of = np.searchsorted(upto, before + np.arange(len(order)), side="right")
    arrivals, missed, counted = arrival.copy(), 0.0, 0
    for row in np.unique(row_of[row_of < len(waits.rows)]):
        those = order[row_of == row]
        observed = waits.rows[row].of(len(those))
        waited = token[those] - arrival[those]
        longest = np.argsort(waited, kind="stable")
        missed += float(observed.off(waited[longest]).sum())
        counted += len(those)
        own = np.empty(len(those))
        own[longest] = observed.moved(waited[longest])
        at = _within(token[those], float(waits.edges[row]), float(waits.edges[row + 1]))
        arrivals[those] = np.maximum(at - own, _EARLIEST_SECONDS)
    return arrivals, missed / max(counted, 1)


def _within(token: Floats, low: float, high: float) -> Floats:
    """First tokens put into the row that counts them, as they lie to each other."""
    first, last = float(token.min()), float(token.max())
    if last - first > high - low:
        return np.asarray(low + (token - first) * (high - low) / (last - first))
    return token + (max(low - first, 0.0) or min(high - last, 0.0))


def _at(requests: Requests, arrival: Floats) -> Requests:
    """The requests at other times, in their order."""
    order = np.argsort(arrival, kind="stable")
    return replace(requests.take(order), arrival_seconds=arrival[order])
