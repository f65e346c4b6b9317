"""The sweep: which settings would serve the observed traffic better, in every scenario.

Every scenario serves the same requests (common random numbers). A first pass looks at one knob at a
time with the best step-time model on a bounded number of requests; what is best there, and pairs of
it, are simulated whole in every scenario, at the demand as it is and at a little more and less. A
change brings the mean over these demands: near the capacity the share in target goes from most to
none within a few percent of the rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from driftwatch.errors import ImpossibleConfiguration, NoVerdict
from driftwatch.recommend.capacity import Capacity, Narrowing, nearly_best, rate_within, stretch
from driftwatch.recommend.scenarios import BlockCount, Scenario, with_knobs
from driftwatch.recommend.simulated import Judged, Measured, share_simulated, simulated
from driftwatch.recommend.sweep_values import Knobs, Range, moved, pairs, single_knobs
from driftwatch.simulate.requests import Requests


def served_alike(
    nearer: Sequence[float | None], further: Sequence[float | None], ties: float
) -> bool:
    """The further setting puts no more requests in target, as far as can be told.

    Args:
        nearer: share in target in each scenario; None = vLLM would refuse the setting.
        ties: of the share in target: less is no difference anyway.
    """
    more = []
    for one, other in zip(nearer, further, strict=True):
        if one is None or other is None:
            return False
        more.append(other - one)
    if not more:
        return False
    return min(more) <= ties and sum(more) / len(more) <= max(ties, (max(more) - min(more)) / 2)


SCREENED_REQUESTS = 5000
TIES = 0.02  # of the share in target: below it capacity and the smaller move decide
MOST_TIMES_TPOT = 2.0
HEADROOM = 1.5  # times the busiest demand
_CLOSE = 0.1  # of the share in target: as far as the first pass may be off


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """What every simulation of a sweep shares.

    Attributes:
        demands: times the observed rate, less and more, at which a change must still be right.
        whole_hits: the same requests with prefix hits as whole prompts, for the scenarios that
            ask for them; None where none does.
        ttft_compared: today's simulated TTFT was held against the observed one; where it was
            not, none is forecast.
    """

    scenarios: Sequence[Scenario]
    requests: Requests
    judged: Judged
    blocks: BlockCount
    budget_known: bool
    objective: Literal["throughput", "latency"] = "throughput"
    demands: tuple[float, ...] = (0.9, 1.1)
    whole_hits: Requests | None = None
    ttft_compared: bool = True
    memory: dict[tuple[object, ...], Measured | None] = field(default_factory=dict)
    limits: dict[tuple[object, ...], Narrowing] = field(default_factory=dict)
    capacities: dict[tuple[object, ...], Capacity] = field(default_factory=dict)

    def measured(
        self, scenario: Scenario, knobs: Knobs, *, scraped: bool = False, demand: float = 1.0
    ) -> Measured | None:
        """A simulation of the whole window; None where vLLM or the requests do not fit the
        settings.

        Args:
            scraped: with latencies, ITL, running and KV; else what is better is judged by
                alone.
        """
        key = (*scenario.key, tuple(sorted(knobs.items())), demand)
        if key not in self.memory or (scraped and _unscraped(self.memory[key])):
            requests, judged = self.requests_of(scenario), self.judged
            if demand != 1.0:
                at, patience = requests.arrival_seconds, requests.cancel_seconds
                patience, at = patience - at, at / demand
                requests = replace(requests, arrival_seconds=at, cancel_seconds=at + patience)
                judged = replace(
                    judged,
                    since_seconds=judged.since_seconds / demand,
                    until_seconds=judged.until_seconds / demand,
                )
            self.memory[key] = self._simulated(
                scenario, knobs, requests, judged, scraped, whole=self.objective == "latency"
            )
        return self.memory[key]

    @property
    def open_ratio(self) -> float:
        """Sd of the log of a larger batch's step time: what the data leave open of it."""
        fit = self.scenarios[0].fit
        return 0.0 if fit is None or fit.reach_log_sd is None else fit.reach_log_sd

    def likely(self, scenario: Scenario) -> bool:
        """Whether a scenario is a fit of the best settings.

        An end of the interval of a step's time, or a value that an unknown max_num_batched_tokens
        is assumed to have, is possible, not likely.
        """
        return not scenario.is_end and scenario.configuration == self.scenarios[0].configuration

    def served_alike(
        self, nearer: Knobs, further: Knobs, demands: Sequence[float] = (1.0,)
    ) -> bool:
        """The further setting serves no more within the targets, as far as can be told."""
        ours, theirs = (
            [self.share(scenario, knobs, demands) for scenario in self.scenarios]
            for knobs in (nearer, further)
        )
        return served_alike(ours, theirs, TIES)

    def share(self, scenario: Scenario, knobs: Knobs, demands: Sequence[float]) -> float | None:
        """Share in target, mean over the demands; None where vLLM would refuse the settings."""
        found = [self.measured(scenario, knobs, demand=demand) for demand in demands]
        shares = [one.in_target_ratio for one in found if one is not None]
        return _mean(shares) if len(shares) == len(found) else None

    @property
    def levels(self) -> tuple[float, ...]:
        """Times the observed demand: as it is, less and more."""
        return (1.0, *self.demands)

    @property
    def offered(self) -> float:
        """Requests a second."""
        lasting = self.judged.until_seconds
        return len(self.requests) / lasting if lasting > 0 else 0.0

    def limit(self, knobs: Knobs) -> Narrowing:
        """Capacity in one scenario, requests a second, to be narrowed; 0 where it is not to be had.

        Where max_num_batched_tokens is unknown, in the scenario with the smallest.
        """
        key = tuple(sorted(knobs.items()))
        if key not in self.limits:
            scenario = min(self.scenarios, key=lambda one: one.configuration.max_num_batched_tokens)
            blocks = self.blocks.after(scenario.configuration, knobs)
            try:
                self.limits[key] = rate_within(
                    stretch(self.requests_of(scenario)),
                    with_knobs(scenario.configuration, knobs, blocks),
                    scenario.step_time,
                    self.judged.slo,
                    overhead=scenario.ttft_overhead_seconds,
                )
            except (ImpossibleConfiguration, NoVerdict):
                self.limits[key] = Narrowing.known(0.0)
        return self.limits[key]

    def requests_of(self, scenario: Scenario) -> Requests:
        """The window's requests as a scenario has them."""
        if scenario.whole_hits and self.whole_hits is not None:
            return self.whole_hits
        return self.requests

    def screened(self, knobs: Knobs, *, whole: bool = False) -> Measured | None:
        """A simulation of the first requests where they are many, in the first scenario alone.

        Args:
            whole: with latencies and the peak; else the share in target alone.
        """
        requests, judged = self.screening()
        return self._simulated(self.scenarios[0], knobs, requests, judged, False, whole=whole)

    def screening(self) -> tuple[Requests, Judged]:
        """The first requests, and the same share of them to warm up."""
        if len(self.requests) <= SCREENED_REQUESTS:
            return self.requests, self.judged
        until = float(self.requests.arrival_seconds[SCREENED_REQUESTS])
        part = until / self.judged.until_seconds
        return self.requests.take(slice(SCREENED_REQUESTS)), replace(
            self.judged, since_seconds=part * self.judged.since_seconds, until_seconds=until
        )

    def _simulated(
        self,
        scenario: Scenario,
        knobs: Knobs,
        requests: Requests,
        judged: Judged,
        scraped: bool,
        *,
        whole: bool,
    ) -> Measured | None:
        blocks = self.blocks.after(scenario.configuration, knobs)
        judged = replace(judged, ttft_overhead_seconds=scenario.ttft_overhead_seconds)
        try:
            configuration = with_knobs(scenario.configuration, knobs, blocks)
            if not (whole or scraped):
                return share_simulated(requests, configuration, scenario.step_time, judged)
            return simulated(requests, configuration, scenario.step_time, judged, scraped=scraped)
        except (ImpossibleConfiguration, NoVerdict):
            return None


def _unscraped(found: Measured | None) -> bool:
    return found is not None and found.generation_tokens_per_second is None


@dataclass(frozen=True, slots=True)
class Gain:
    """What some knobs bring over today, in every scenario and at every demand.

    Attributes:
        at: times the observed demand → share in target of today and then, mean over the
            scenarios.
        latency_ratio: mean end-to-end time over today's, of the worst scenario and demand.
    """

    knobs: Knobs
    mean: float
    least: float
    least_likely: float
    at: Mapping[float, tuple[float, float]]
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
    whole = not _has_tpot_target(ground)
    base = ground.screened({}, whole=whole)
    if base is None:
        return []
    singles = _singles(ground, _open_peak(ground))
    looked = [(k, ground.screened(k, whole=whole)) for k in singles]
    known = [(k, m) for k, m in looked if m is not None and _bearable(ground, base, m)]
    better = [one for one in known if one[1].in_target_ratio >= base.in_target_ratio - TIES]
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


def _singles(ground: Ground, peak: int | None) -> list[Knobs]:
    today = ground.scenarios[0].configuration
    longest = int(ground.requests.prompt_tokens.max())
    return single_knobs(Range(today, ground.budget_known, peak, longest))


def _open_peak(ground: Ground) -> int | None:
    """Twice the most requests that hold a place where max_num_seqs is as large as it may be."""
    today = ground.scenarios[0].configuration
    ceiling = min(1024, today.max_num_batched_tokens) if ground.budget_known else 1024
    ceiling = max(ceiling, today.max_num_seqs)
    found = ground.screened({"max_num_seqs": float(ceiling)}, whole=True)
    return None if found is None else 2 * found.peak_running_requests


def _bearable(ground: Ground, base: Measured, then: Measured) -> bool:
    """Without a target of its own the time per token may double, and no more."""
    if _has_tpot_target(ground):
        return True
    before, after = base.tpot_p95_seconds, then.tpot_p95_seconds
    return before is None or after is None or after <= MOST_TIMES_TPOT * before


def _has_tpot_target(ground: Ground) -> bool:
    slo = ground.judged.slo
    return slo is not None and slo.tpot_seconds is not None


def ranked(ground: Ground, wanted: Sequence[Knobs]) -> list[Gain]:
    """Gains of some settings in every scenario, best first; ties by capacity, then by the move."""
    found = [gain for knobs in wanted if (gain := gain_of(ground, knobs)) is not None]
    if not found:
        return []
    found.sort(key=lambda gain: -gain.mean)
    today, top = ground.scenarios[0].configuration, found[0]
    tied = [
        gain
        for gain in found
        if gain.mean >= top.mean - TIES
        or (
            set(gain.knobs) <= set(top.knobs)  # less of the same change, not another one
            and moved(today, gain.knobs) < moved(today, top.knobs)
            and ground.served_alike(gain.knobs, top.knobs, ground.levels)
        )
    ]
    rest = [gain for gain in found if gain not in tied]
    if ground.objective == "latency":
        return [*sorted(tied, key=lambda gain: gain.latency_ratio), *rest]
    order = _preferred(ground, [gain.knobs for gain in tied])
    return [*sorted(tied, key=lambda gain: order.index(gain.knobs)), *rest]


def gain_of(ground: Ground, knobs: Knobs, demands: Sequence[float] | None = None) -> Gain | None:
    """What some knobs bring; None = not to be said.

    Args:
        demands: times the observed demand; None = :attr:`Ground.levels`.
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
    gains = [_mean([shares[n][1] - shares[n][0] for _, shares in rows]) for n in range(len(pairs))]
    likely = [
        gain
        for gain, scenario in zip(gains, ground.scenarios, strict=True)
        if ground.likely(scenario)
    ]
    return Gain(
        knobs,
        _mean(gains),
        min(gains),
        min(likely or gains),
        {
            demand: (_mean([now for now, _ in shares]), _mean([then for _, then in shares]))
            for demand, shares in rows
        },
        max(ratios),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _ratio(after: float | None, before: float | None) -> float:
    return 1.0 if after is None or not before else after / before
