"""The requests of each server: season, drift, prefix hits, cancellations, adapters.

A pool's requests are split at random over the servers that are up: each server draws its own
share, with demand that is common to all of them. The same seed gives the same requests, in any
order of servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

import numpy as np
import numpy.typing as npt

from driftwatch.fleet.hidden_engine import capacity, factor_of, is_on, wander
from driftwatch.fleet.scenario.demand import Bursts, Change, Season
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.servers import Replica, generator, servers_of, servers_up
from driftwatch.fleet.traffic_source import ClockedRequests, source_of
from driftwatch.simulate.requests import Requests, make_requests

Floats = npt.NDArray[np.float64]

_GRID_SECONDS = 10.0  # steps of the rate
_WANDER_SECONDS = 1800.0  # correlation time of demand's slow wander
_WEEK_HOURS = 168
_HIT_SHARE = 0.8  # cached share of a prompt with a hit; the rest is new text
_NEW_CLIENT_SIGMA = 0.25  # of the log of its lengths
_PATIENCE_SECONDS = 8.0  # median time until a client gives up, of those that do
_PATIENCE_SIGMA = 1.0
_BURST_SIGMA = 0.5  # of the logs of a burst's length and of its size
_DAY_SECONDS = 86_400.0


@dataclass(frozen=True, eq=False)
class PoolTraffic:
    """The traffic of a scenario's pool."""

    scenario: Scenario
    seed: int
    servers: tuple[Replica, ...]  # the pool's servers

    @classmethod
    def of(cls, scenario: Scenario, seed: int) -> PoolTraffic:
        """The traffic of a scenario under a seed."""
        return cls(scenario, seed, servers_of(scenario))

    def rates(self, times: Floats) -> Floats:
        """Requests per second of the whole pool at these times (a grid).

        With changes of the whole pool, without those of single replicas.
        """
        traffic = self.scenario.traffic
        rate = self.mean_rate * season_factor(self.scenario, times)
        knots = np.arange(0.0, self.scenario.duration + 2 * _WANDER_SECONDS, _WANDER_SECONDS)
        rng = generator(self.seed, "demand")  # common to all servers
        slow = wander(traffic.wander_ratio, _WANDER_SECONDS, knots, rng)
        rate *= np.exp(np.interp(times, knots, slow))
        rate *= self._bursts_and_hours("rate_factor", times)
        for change in traffic.changes:
            if not change.replicas:
                rate *= factor_of(change, change.rate_factor, times)
        return rate

    @cached_property
    def mean_rate(self) -> float:
        """Requests per second of the whole pool over a week, without changes and bursts."""
        traffic = self.scenario.traffic
        if traffic.requests_per_second is not None:
            return traffic.requests_per_second
        assert traffic.utilisation_ratio is not None  # noqa: S101 - the file has one of the two
        return traffic.utilisation_ratio * self.scenario.pool.replicas * capacity(self.scenario)

    def _burst_factors(self, bursts: Bursts, times: Floats) -> Floats:
        """The factor on the rate of the last burst that began before each time; 0 once it ended."""
        rng = generator(self.seed, "bursts")
        count = rng.poisson(bursts.per_day * self.scenario.duration / _DAY_SECONDS)
        start = np.sort(rng.uniform(0.0, self.scenario.duration, count))
        lasting, size = np.exp(_BURST_SIGMA * rng.standard_normal((2, count)))
        if not count:
            return np.zeros(len(times))
        last = np.searchsorted(start, times, side="right") - 1
        on = (last >= 0) & (times < (start + bursts.lasting * lasting)[np.maximum(last, 0)])
        factors = 1.0 + (bursts.rate_factor - 1.0) * size
        return np.where(on, factors[np.maximum(last, 0)], 0.0)

    def _bursts_and_hours(self, name: str, times: Floats) -> Floats:
        """The factor of this name of bursts and hours of the day at these times."""
        traffic, factors = self.scenario.traffic, np.ones(len(times))
        clock = hour_of_day(self.scenario, times)
        for hours in traffic.hours:
            since, until = hours.since_hour, hours.until_hour
            lasts = (clock - since) % 24.0 < (until - since) % 24.0
            factors[lasts] *= getattr(hours, name)
        if traffic.bursts is not None:
            size = self._burst_factors(traffic.bursts, times)
            factor = size if name == "rate_factor" else float(getattr(traffic.bursts, name))
            factors = np.where(size > 0.0, factors * factor, factors)
        return factors

    def changes_of(self, number: int) -> tuple[Change, ...]:
        """The changes of one server, in the file's order."""
        changes = self.scenario.traffic.changes
        return tuple(c for c in changes if not c.replicas or number in c.replicas)

    def requests(self, number: int, since: float, until: float) -> Requests:
        """The requests that one server gets in since <= time < until, in order.

        ``since``: seconds from the scenario's start; ``until``: at most a day later, so that memory
        stays bounded.
        """
        edges = np.append(np.arange(since, until, _GRID_SECONDS), until)
        middles = (edges[1:] + edges[:-1]) / 2.0
        up = servers_up(self.servers, middles)
        per_server = np.where(up > 0, self.rates(middles) / np.maximum(up, 1), 0.0)
        per_server *= self.servers[number].is_up(middles)
        changes = self.changes_of(number)
        for change in changes:
            if change.replicas:
                per_server *= factor_of(change, change.rate_factor, middles)
        day = int(since * 1000)
        rng = generator(self.seed, "traffic", number, day)
        # the source's clock: one request of the pool a second, for the mean number of servers up
        share = max(1, round(float(np.mean(up[up > 0])) if (up > 0).any() else 1))
        clock = np.concatenate([[0.0], np.cumsum(per_server * share * np.diff(edges))])
        if clock[-1] <= 0:
            return make_requests([], [], [])
        clocked = source_of(self.scenario.traffic).draw(
            float(clock[-1]), share, (since, until), rng
        )
        # keep the order: rounding could put a request before the one that ends a block
        arrival = np.interp(np.maximum.accumulate(clocked.at), clock, edges)
        arrival = np.minimum(arrival, np.nextafter(until, since))
        sent = ClockedRequests(arrival, clocked.prompt_tokens, clocked.generation_tokens)
        return self._finished(sent, changes, rng)

    def _finished(
        self, clocked: ClockedRequests, changes: Sequence[Change], rng: np.random.Generator
    ) -> Requests:
        """The requests with the changes' factors on lengths, cache hits, cancels and adapters."""
        traffic, at = self.scenario.traffic, clocked.at
        prompt = clocked.prompt_tokens.astype(float)
        generation = clocked.generation_tokens.astype(float)
        prompt *= self._bursts_and_hours("prompt_factor", at)
        generation *= self._bursts_and_hours("generation_factor", at)
        for change in changes:
            prompt *= factor_of(change, change.prompt_factor, at)
            generation *= factor_of(change, change.generation_factor, at)
        at, prompt, generation = _with_new_clients(changes, at, prompt, generation, rng)
        most = self.scenario.pool.serving.max_model_len
        prompts = np.clip(np.rint(prompt), 1, most - 1).astype(np.int64)
        generations = np.clip(np.rint(generation), 1, most - prompts).astype(np.int64)
        hit = _in_force(at, traffic.prefix_hit_ratio, [(c, c.prefix_hit_ratio) for c in changes])
        cancelled = _in_force(
            at, traffic.cancelled_ratio, [(c, c.cancelled_ratio) for c in changes]
        )
        adapters = _in_force(at, traffic.adapters or 0, [(c, c.adapters) for c in changes])
        block = self.scenario.pool.serving.block_size
        has_hit = rng.random(len(at)) < hit / _HIT_SHARE
        cached = np.where(has_hit, prompts * np.maximum(hit, _HIT_SHARE), 0.0)
        cached = np.minimum(cached, prompts - 1) // block * block
        patience = _PATIENCE_SECONDS * np.exp(_PATIENCE_SIGMA * rng.standard_normal(len(at)))
        cancel = np.where(rng.random(len(at)) < cancelled, at + patience, np.inf)
        adapter = np.floor(rng.random(len(at)) * np.maximum(adapters, 1)).astype(np.int64)
        return make_requests(
            at,
            prompts,
            generations,
            cached_tokens=cached.astype(np.int64),
            cancel_seconds=cancel,
            adapter=np.where(adapters > 0, adapter, -1),
        )


def _with_new_clients(
    changes: Sequence[Change],
    at: Floats,
    prompt: Floats,
    generation: Floats,
    rng: np.random.Generator,
) -> tuple[Floats, Floats, Floats]:
    """The given requests and those of new clients, in order of time."""
    for change in changes:
        client = change.new_client
        if client is None or not len(at):
            continue
        during = np.flatnonzero(is_on(change, at))
        count = rng.poisson(len(during) * client.share_ratio / (1.0 - client.share_ratio))
        beside = np.sort(rng.choice(during, count)) if len(during) else during
        spread = np.exp(
            _NEW_CLIENT_SIGMA * rng.standard_normal((2, len(beside))) - _NEW_CLIENT_SIGMA**2 / 2
        )
        own = (
            generation[rng.choice(during, len(beside))]
            if client.generation_tokens is None and len(during)
            else np.full(len(beside), float(client.generation_tokens or 1)) * spread[1]
        )
        times = np.concatenate([at, at[beside]])
        order = np.argsort(times, kind="stable")
        at = times[order]
        prompt = np.concatenate([prompt, client.prompt_tokens * spread[0]])[order]
        generation = np.concatenate([generation, own])[order]
    return at, prompt, generation


def hour_of_day(scenario: Scenario, times: Floats) -> Floats:
    """Hours since midnight UTC at these times, 0 up to 24."""
    midnight = scenario.start.replace(hour=0, minute=0, second=0, microsecond=0)
    return ((scenario.start - midnight).total_seconds() + times) / 3600.0 % 24.0


def season_factor(scenario: Scenario, times: Floats) -> Floats:
    """Rate over its mean at these times: a cosine over the day, less at the weekend.

    The mean over a whole week is 1, whenever the scenario begins.
    """
    season = scenario.traffic.season
    monday = scenario.start.replace(hour=0, minute=0, second=0, microsecond=0)
    monday -= timedelta(days=scenario.start.weekday())
    hours = (scenario.start - monday).total_seconds() / 3600.0 + times / 3600.0
    week = np.arange(_WEEK_HOURS, dtype=float)
    mean = float(np.mean(_season(season, week)))
    return _season(season, hours % _WEEK_HOURS) / mean


def _season(season: Season, hours: Floats) -> Floats:
    """Hours since Monday 00:00 → demand, 1 at the mean of a working day."""
    swing = (season.peak_to_trough - 1.0) / (season.peak_to_trough + 1.0)
    day = 1.0 + swing * np.cos((hours - season.peak_hour) / 24.0 * 2.0 * np.pi)
    return np.where(hours >= 120.0, season.weekend_ratio, 1.0) * day


def _in_force(
    times: Floats, usual: float, changes: Sequence[tuple[Change, float | None]]
) -> Floats:
    """A value at these times: the usual one, or that of the last change in force."""
    values = np.full(len(times), float(usual))
    for change, value in changes:
        if value is not None:
            values[is_on(change, times)] = value
    return values
