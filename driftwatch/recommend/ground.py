"""What every simulation of an answer shares: traffic, scenarios, demands, what is known so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from driftwatch.errors import ImpossibleConfiguration, NoVerdict
from driftwatch.recommend.capacity import (
    FEWEST_REQUESTS,
    Capacity,
    Narrowing,
    rate_within,
    stretch,
)
from driftwatch.recommend.scenarios import BlockCount, Scenario, with_knobs
from driftwatch.recommend.simulation import Judged, Measured, share_simulated, simulated
from driftwatch.recommend.sweep_values import Knobs
from driftwatch.recommend.traffic.observed import moved
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import Requests

SCREENED_REQUESTS = 5000
TIES = 0.02  # of the share in target: below it capacity and the smaller move decide


def served_alike(
    nearer: Sequence[float | None], further: Sequence[float | None], ties: float
) -> bool:
    """The further setting puts no more requests in target, as far as can be told.

    ``nearer``: share in target in each scenario; None = vLLM would refuse the setting; ``ties``: of
    the share in target: less is no difference anyway.
    """
    more = []
    for one, other in zip(nearer, further, strict=True):
        if one is None or other is None:
            return False
        more.append(other - one)
    if not more:
        return False
    return min(more) <= ties and sum(more) / len(more) <= max(ties, (max(more) - min(more)) / 2)


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """What every simulation of a sweep shares."""

    scenarios: Sequence[Scenario]
    requests: Requests
    judged: Judged
    blocks: BlockCount
    budget_known: bool
    objective: Literal["throughput", "latency"] = "throughput"
    # times the observed rate, less and more, at which a change must still be right
    demands: tuple[float, ...] = (0.9, 1.1)
    # the same requests with prefix hits as whole prompts, for the scenarios that ask for them; None
    # where none does
    whole_hits: Requests | None = None
    # today's simulated TTFT was held against the observed one; where it was not, none is forecast
    ttft_compared: bool = True
    memory: dict[tuple[object, ...], Measured | None] = field(default_factory=dict)
    limits: dict[tuple[object, ...], Narrowing] = field(default_factory=dict)
    capacities: dict[tuple[object, ...], Capacity] = field(default_factory=dict)

    def measured(
        self, scenario: Scenario, knobs: Knobs, *, scraped: bool = False, demand: float = 1.0
    ) -> Measured | None:
        """A simulation of the whole window; None where vLLM or the requests do not fit the
        settings.

        ``scraped``: with latencies, ITL, running and KV; else what is better is judged by alone.
        """
        key = (*scenario.key, tuple(sorted(knobs.items())), demand)
        earlier = self.memory.get(key)
        partial = earlier is not None and earlier.generation_tokens_per_second is None
        if key not in self.memory or (scraped and partial):
            requests, judged = self.requests_of(scenario), self.judged
            if demand != 1.0:
                requests = moved(requests, requests.arrival_seconds / demand)
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
        runs = [self.measured(scenario, knobs, demand=demand) for demand in demands]
        shares = [one.in_target_ratio for one in runs if one is not None]
        return sum(shares) / len(shares) if len(shares) == len(runs) else None

    @property
    def has_tpot_target(self) -> bool:
        """Whether the time per token has a target of its own."""
        return self.judged.slo is not None and self.judged.slo.tpot_seconds is not None

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
            try:
                self.limits[key] = self.rate(scenario, knobs, self.requests_of(scenario))
            except (ImpossibleConfiguration, NoVerdict):
                self.limits[key] = Narrowing.of_rate(0.0)
        return self.limits[key]

    def rate(
        self, scenario: Scenario, knobs: Knobs, requests: Requests, near: float | None = None
    ) -> Narrowing:
        """Capacity in a scenario by a stretch of requests, to be narrowed from ``near`` requests/s.

        Raises ImpossibleConfiguration: vLLM would refuse the settings, or a request never fits.
        """
        return rate_within(
            stretch(requests),
            self.configuration(scenario, knobs),
            scenario.step_time,
            self.judged.slo,
            near=near,
            overhead=scenario.ttft_overhead_seconds,
        )

    def capacity(self, knobs: Knobs, requests: Requests, near: float | None = None) -> Capacity:
        """Capacity in every scenario; unknown where the knobs do not fit, or requests are few.

        What the ground's own requests allow is looked for once.
        """
        key = (*(one.key for one in self.scenarios), tuple(sorted(knobs.items())), near)
        own = requests is self.requests
        if not own or key not in self.capacities:
            capacity = self._capacity(knobs, requests, near)
            if not own:
                return capacity
            self.capacities[key] = capacity
        return self.capacities[key]

    def _capacity(self, knobs: Knobs, requests: Requests, near: float | None) -> Capacity:
        rates: list[float] = []
        if len(stretch(requests)) < FEWEST_REQUESTS:
            return Capacity()
        try:
            for scenario in self.scenarios:
                rate = self.rate(scenario, knobs, requests, near).settled()
                if rate or self.judged.slo is not None:
                    rates.append(rate)
                near = rate or near
        except (ImpossibleConfiguration, NoVerdict):
            return Capacity()
        return Capacity(tuple(rates))

    def is_below(self, knobs: Knobs, requests: Requests, near: float | None, rate: float) -> bool:
        """Whether the capacity is below a rate in the first scenario, narrowed no further."""
        try:
            return self.rate(self.scenarios[0], knobs, requests, near).is_below(rate)
        except (ImpossibleConfiguration, NoVerdict):
            return False

    def configuration(self, scenario: Scenario, knobs: Knobs) -> SchedulerConfiguration:
        """Today's settings of a scenario with some knobs turned, and the KV blocks left then."""
        blocks = self.blocks.after(scenario.configuration, knobs)
        return with_knobs(scenario.configuration, knobs, blocks)

    def other(self, **changes: Any) -> Ground:
        """The same but for something, with nothing remembered."""
        return replace(self, **changes, memory={}, limits={}, capacities={})

    def requests_of(self, scenario: Scenario) -> Requests:
        """The window's requests as a scenario has them."""
        if scenario.whole_hits and self.whole_hits is not None:
            return self.whole_hits
        return self.requests

    def screened(self, knobs: Knobs, *, whole: bool = False) -> Measured | None:
        """A simulation of the first requests where they are many, in the first scenario alone.

        ``whole``: with latencies and the peak; else the share in target alone.
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
        judged = replace(judged, ttft_overhead_seconds=scenario.ttft_overhead_seconds)
        try:
            configuration = self.configuration(scenario, knobs)
            if not (whole or scraped):
                return share_simulated(requests, configuration, scenario.step_time, judged)
            return simulated(requests, configuration, scenario.step_time, judged, scraped=scraped)
        except (ImpossibleConfiguration, NoVerdict):
            return None
