"""The sweep: which settings would serve the observed traffic better, in every scenario.

Every scenario serves the same requests (common random numbers). A first pass looks at one knob at a
time with the best step-time model on a bounded number of requests; what is best there, and pairs of
it, are simulated whole in every scenario, at the demand as it is and at a little more and less. A
change brings the mean over these demands: near the capacity the share in target goes from most to
none within a few percent of the rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from driftwatch.recommend.capacity import nearly_best
from driftwatch.recommend.ground import TIES, Ground
from driftwatch.recommend.simulation import Measured
from driftwatch.recommend.sweep_values import Knobs, Range, moved, pairs, single_knobs

MOST_TIMES_TPOT = 2.0
HEADROOM = 1.5  # times the busiest demand
_CLOSE = 0.1  # of the share in target: as far as the first pass may be off


@dataclass(frozen=True, slots=True)
class Gain:
    """What some knobs bring over today, in every scenario and at every demand."""

    knobs: Knobs
    mean: float
    least: float
    least_likely: float
    # times the observed demand → share in target of today and then, mean over the scenarios
    at: Mapping[float, tuple[float, float]]
    # mean end-to-end time over today's, of the worst scenario and demand
    latency_ratio: float = 1.0

    @property
    def share(self) -> float:
        """Share in target then, mean over scenarios and demands."""
        return sum(then for _, then in self.at.values()) / len(self.at)

    @property
    def least_demand(self) -> float:
        """The mean over the scenarios at the demand where it is least."""
        return min(then - now for now, then in self.at.values())


def sweep(ground: Ground) -> list[Gain]:
    """The finalists, best first; empty where nothing is better than today by any hint."""
    return ranked(ground, finalists(ground))


def finalists(ground: Ground) -> list[Knobs]:
    """What the first pass leaves: the best of each knob, then a pair where it is better still."""
    today = ground.scenarios[0].configuration
    whole = not ground.has_tpot_target
    base = ground.screened({}, whole=whole)
    if base is None:
        return []
    longest = int(ground.requests.prompt_tokens.max())
    singles = single_knobs(Range(today, ground.budget_known, _open_peak(ground), longest))
    screened = [(k, ground.screened(k, whole=whole)) for k in singles]
    bearable = [(k, m) for k, m in screened if m is not None and _bearable(ground, base, m)]
    better = [one for one in bearable if one[1].in_target_ratio >= base.in_target_ratio - TIES]
    lines = [
        _of_line(ground, [one for one in better if name in one[0]])
        for name in dict.fromkeys(name for knobs, _ in better for name in knobs)
    ]
    chosen = [knobs for line in lines for knobs in line]
    if len(lines) > 1:
        top = max(measured.in_target_ratio for _, measured in better)
        tried = [(k, ground.screened(k)) for k in pairs(lines[0][:2], lines[1][:2])]
        worth = [(k, m) for k, m in tried if m is not None and m.in_target_ratio > top + TIES]
        if worth:
            most = max(m.in_target_ratio for _, m in worth)
            tied = [k for k, m in worth if m.in_target_ratio >= most - TIES]
            chosen.append(min(tied, key=lambda k: moved(today, k)))
    return chosen


def _of_line(ground: Ground, line: list[tuple[Knobs, Measured]]) -> list[Knobs]:
    """Of one knob's values: the one that ties, capacity and the move prefer, then the nearest."""
    today = ground.scenarios[0].configuration
    top = max(measured.in_target_ratio for _, measured in line)
    close = [one for one in line if one[1].in_target_ratio >= top - _CLOSE]
    whole = [(k, m) for k, _ in close if (m := ground.measured(ground.scenarios[0], k)) is not None]
    line = whole or line
    best, most = max(line, key=lambda one: one[1].in_target_ratio)
    tied = [
        knobs
        for knobs, m in line
        if m.in_target_ratio >= most.in_target_ratio - TIES
        or (moved(today, knobs) < moved(today, best) and ground.served_alike(knobs, best))
    ]
    if ground.objective == "latency":
        first = min(line, key=lambda one: one[1].e2e_seconds or float("inf"))[0]
    else:
        first = _preferred(ground, tied)[0]
    nearest = min(tied, key=lambda knobs: moved(today, knobs))
    return [first] if nearest == first else [first, nearest]


def _preferred(ground: Ground, tied: Sequence[Knobs]) -> list[Knobs]:
    """Settings that serve alike, by capacity; within the ties of the best one by the move."""
    today = ground.scenarios[0].configuration
    if len(tied) < 2:
        return list(tied)
    limits = [ground.limit(knobs) for knobs in tied]
    enough = HEADROOM * max(ground.demands) * ground.offered
    near = nearly_best(limits, enough=enough, ties=max(TIES, ground.open_ratio))
    order = sorted(zip(near, tied, strict=True), key=lambda one: (not one[0], moved(today, one[1])))
    return [knobs for _, knobs in order]


def _open_peak(ground: Ground) -> int | None:
    """Twice the most requests that hold a place where max_num_seqs is as large as it may be."""
    today = ground.scenarios[0].configuration
    ceiling = min(1024, today.max_num_batched_tokens) if ground.budget_known else 1024
    ceiling = max(ceiling, today.max_num_seqs)
    measured = ground.screened({"max_num_seqs": float(ceiling)}, whole=True)
    return None if measured is None else 2 * measured.peak_running_requests


def _bearable(ground: Ground, base: Measured, then: Measured) -> bool:
    """Without a target of its own the time per token may double, and no more."""
    before, after = base.tpot_p95_seconds, then.tpot_p95_seconds
    if ground.has_tpot_target or before is None or after is None:
        return True
    return after <= MOST_TIMES_TPOT * before


def ranked(ground: Ground, wanted: Sequence[Knobs]) -> list[Gain]:
    """Gains of some settings in every scenario, best first; ties by capacity, then by the move."""
    gains = [gain for knobs in wanted if (gain := gain_of(ground, knobs)) is not None]
    if not gains:
        return []
    gains.sort(key=lambda gain: -gain.mean)
    today, top = ground.scenarios[0].configuration, gains[0]
    tied = [
        gain
        for gain in gains
        if gain.mean >= top.mean - TIES
        or (
            set(gain.knobs) <= set(top.knobs)  # less of the same change, not another one
            and moved(today, gain.knobs) < moved(today, top.knobs)
            and ground.served_alike(gain.knobs, top.knobs, ground.levels)
        )
    ]
    rest = [gain for gain in gains if gain not in tied]
    if ground.objective == "latency":
        return [*sorted(tied, key=lambda gain: gain.latency_ratio), *rest]
    order = _preferred(ground, [gain.knobs for gain in tied])
    return [*sorted(tied, key=lambda gain: order.index(gain.knobs)), *rest]


def gain_of(ground: Ground, knobs: Knobs, demands: Sequence[float] | None = None) -> Gain | None:
    """What some knobs bring; None = not to be said.

    ``demands``: times the observed demand; None = :attr:`Ground.levels`.
    """
    rows, ratios = [], []
    for demand in demands or ground.levels:
        before = [ground.measured(scenario, {}, demand=demand) for scenario in ground.scenarios]
        after = [ground.measured(scenario, knobs, demand=demand) for scenario in ground.scenarios]
        pairs = [(b, a) for b, a in zip(before, after, strict=True) if b and a]
        if len(pairs) < len(ground.scenarios):
            return None
        rows.append((demand, [(b.in_target_ratio, a.in_target_ratio) for b, a in pairs]))
        ratios += [_ratio(a.e2e_seconds, b.e2e_seconds) for b, a in pairs]
    gains = [mean([shares[n][1] - shares[n][0] for _, shares in rows]) for n in range(len(pairs))]
    likely = [
        gain
        for gain, scenario in zip(gains, ground.scenarios, strict=True)
        if ground.likely(scenario)
    ]
    return Gain(
        knobs,
        mean(gains),
        min(gains),
        min(likely or gains),
        {
            demand: (mean([now for now, _ in shares]), mean([then for _, then in shares]))
            for demand, shares in rows
        },
        max(ratios),
    )


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean."""
    return sum(values) / len(values)


def _ratio(after: float | None, before: float | None) -> float:
    return 1.0 if after is None or not before else after / before
