"""The sweep: which settings would serve the observed traffic better, in every world.

Every world replays the same requests (common random numbers). A first pass looks at one knob at a
time with the best law on a bounded number of requests; what is best there, and pairs of it, are
replayed whole in every world and at a little more and less demand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from driftwatch.errors import ImpossibleConfiguration, NoVerdict
from driftwatch.recommend.kv_blocks import BlockCount
from driftwatch.recommend.replaying import Judged, Measured, replayed
from driftwatch.recommend.sweep_candidates import Knobs, moved, pairs, second_line, single_knobs
from driftwatch.recommend.worlds import World, with_knobs
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import Requests

SCREENED_REQUESTS = 5000
TIES = 0.02  # of the share in target: below it capacity and the smaller move decide
DEMANDS = (0.95, 1.05)  # of the observed rate: a gain that a few percent of demand undo is none
_FINALISTS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """What every replay of a sweep shares.

    Attributes:
        worlds: the best first.
        requests: of the whole window.
        judged: which of them count, and by what.
        blocks: KV blocks with other knobs.
        budget_known: max_num_batched_tokens is read and not assumed.
        objective: what is better.
        whole_hits: the same requests with prefix hits as whole prompts, for the worlds that ask for
            them; None where none does.
    """

    worlds: Sequence[World]
    requests: Requests
    judged: Judged
    blocks: BlockCount
    budget_known: bool
    objective: Literal["throughput", "latency"] = "throughput"
    whole_hits: Requests | None = None
    memory: dict[tuple[object, ...], Measured | None] = field(default_factory=dict)

    def measured(
        self, world: World, knobs: Knobs, *, scraped: bool = False, demand: float = 1.0
    ) -> Measured | None:
        """A replay of the whole window; None where vLLM or the requests do not fit the settings.

        Args:
            world: settings of today and law.
            knobs: what is turned.
            scraped: with ITL, running and KV.
            demand: times the observed rate.
        """
        key = (id(world), tuple(sorted(knobs.items())), demand)
        if key not in self.memory or (scraped and _unscraped(self.memory[key])):
            requests, judged = self.requests_of(world), self.judged
            if demand != 1.0:
                requests = replace(requests, arrival_seconds=requests.arrival_seconds / demand)
                judged = replace(
                    judged,
                    since_seconds=judged.since_seconds / demand,
                    until_seconds=judged.until_seconds / demand,
                )
            self.memory[key] = self._replayed(world, knobs, requests, judged, scraped)
        return self.memory[key]

    def requests_of(self, world: World) -> Requests:
        """The window's requests as a world has them."""
        if world.whole_hits and self.whole_hits is not None:
            return self.whole_hits
        return self.requests

    def screened(self, knobs: Knobs) -> Measured | None:
        """A replay of the first requests where they are many, in the first world alone."""
        requests, judged = self.screening()
        return self._replayed(self.worlds[0], knobs, requests, judged, False)

    def screening(self) -> tuple[Requests, Judged]:
        """The first requests, and the same share of them to warm up."""
        if len(self.requests) <= SCREENED_REQUESTS:
            return self.requests, self.judged
        until = float(self.requests.arrival_seconds[SCREENED_REQUESTS])
        part = until / self.judged.until_seconds
        return self.requests.take(slice(SCREENED_REQUESTS)), replace(
            self.judged, since_seconds=part * self.judged.since_seconds, until_seconds=until
        )

    def _replayed(
        self, world: World, knobs: Knobs, requests: Requests, judged: Judged, scraped: bool
    ) -> Measured | None:
        blocks = self.blocks.after(world.configuration, knobs)
        judged = replace(judged, ttft_overhead_seconds=world.ttft_overhead_seconds)
        try:
            configuration = with_knobs(world.configuration, knobs, blocks)
            return replayed(requests, configuration, world.law, judged, scraped=scraped)
        except (ImpossibleConfiguration, NoVerdict):
            return None


def _unscraped(found: Measured | None) -> bool:
    return found is not None and found.generation_tokens_per_second is None


@dataclass(frozen=True, slots=True)
class Gain:
    """What some knobs bring over today, over the worlds.

    Attributes:
        knobs: what is turned.
        mean: of the share in target.
        least: of the worst world.
        share: share in target, mean.
        share_low: of the worst world.
        latency_ratio: mean end-to-end time over today's, of the worst world.
    """

    knobs: Knobs
    mean: float
    least: float
    share: float
    share_low: float
    latency_ratio: float


def sweep(ground: Ground) -> list[Gain]:
    """The finalists, best first; empty where nothing is better than today by any hint."""
    return ranked(ground, finalists(ground))


def finalists(ground: Ground) -> list[Knobs]:
    """What the first pass leaves: the best of each knob, then pairs of them."""
    today = ground.worlds[0].configuration
    base = ground.screened({})
    if base is None:
        return []
    peak = _open_peak(ground)
    looked = {_key(k): (k, ground.screened(k)) for k in _singles(ground, peak)}
    singles = _best(ground, base, [*looked.values()])
    chosen = _nearest(today, singles)
    by_knob = {name: [k for k in chosen if set(k) == {name}] for k in chosen for name in k}
    if len(by_knob) > 1:
        names = sorted(by_knob)
        both = pairs(by_knob[names[0]][:2], by_knob[names[1]][:2])
        tried = [(k, ground.screened(k)) for k in both]
        top = singles[0][1] if singles else base
        better = [
            (k, m)
            for k, m in tried
            if m is not None and _score(ground, m) > _score(ground, top) + TIES
        ]
        chosen += _nearest(today, _best(ground, base, better))[:1]
    return chosen


def _singles(ground: Ground, peak: int | None) -> list[Knobs]:
    today = ground.worlds[0].configuration
    longest = int(ground.requests.prompt_tokens.max())
    return [
        *single_knobs(today, budget_known=ground.budget_known, peak=peak),
        *second_line(today, longest),
    ]


def _open_peak(ground: Ground) -> int | None:
    """Most requests that hold a place where max_num_seqs is as large as it may be."""
    today = ground.worlds[0].configuration
    ceiling = min(1024, today.max_num_batched_tokens) if ground.budget_known else 1024
    found = ground.screened({"max_num_seqs": float(max(ceiling, today.max_num_seqs))})
    return None if found is None else found.peak_running_requests


def _key(knobs: Knobs) -> tuple[tuple[str, float], ...]:
    return tuple(sorted(knobs.items()))


def _score(ground: Ground, found: Measured) -> float:
    """What is compared: the share in target; latency first: the mean time, as a share of it."""
    return found.in_target_ratio


def _best(
    ground: Ground, base: Measured, looked: Sequence[tuple[Knobs, Measured | None]]
) -> list[tuple[Knobs, Measured]]:
    """Those not worse than today, the best first; a shorter mean time breaks equal shares."""
    known = [(k, m) for k, m in looked if m is not None]
    kept = [(k, m) for k, m in known if _score(ground, m) >= _score(ground, base) - TIES]

    def order(one: tuple[Knobs, Measured]) -> tuple[float, float]:
        measured = one[1]
        latency = measured.e2e_seconds if measured.e2e_seconds is not None else float("inf")
        shared = round(_score(ground, measured) / TIES)
        return (0.0, latency) if ground.objective == "latency" else (-shared, latency)

    return sorted(kept, key=order)


def _nearest(
    today: SchedulerConfiguration, singles: list[tuple[Knobs, Measured]], most: int = _FINALISTS
) -> list[Knobs]:
    """Of each knob the best and the nearest that is within the ties of it."""
    chosen: list[Knobs] = []
    for name in dict.fromkeys(n for k, _ in singles for n in k):
        own = [(k, m) for k, m in singles if name in k]
        top = max(m.in_target_ratio for _, m in own)
        tied = [k for k, m in own if m.in_target_ratio >= top - TIES]
        chosen += [own[0][0], min(tied, key=lambda k: moved(today, k))]
    unique = {_key(k): k for k in chosen}
    return list(unique.values())[: most + 2]


def ranked(ground: Ground, wanted: Sequence[Knobs]) -> list[Gain]:
    """Gains of some settings in every world, best first; ties go to the smallest move."""
    today = ground.worlds[0].configuration
    found = [gain for knobs in wanted if (gain := gain_of(ground, knobs)) is not None]
    if not found:
        return []
    found.sort(key=lambda gain: -gain.mean)
    top = found[0].mean
    tied = [gain for gain in found if gain.mean >= top - TIES]
    rest = [gain for gain in found if gain.mean < top - TIES]
    if ground.objective == "latency":
        tied.sort(key=lambda gain: gain.latency_ratio)
        return [*tied, *rest]
    return [*sorted(tied, key=lambda gain: moved(today, gain.knobs)), *rest]


def gain_of(ground: Ground, knobs: Knobs, demand: float = 1.0) -> Gain | None:
    """What some knobs bring at so many times the observed demand; None = not to be said."""
    gains, shares, ratios = [], [], []
    for world in ground.worlds:
        before = ground.measured(world, {}, demand=demand)
        after = ground.measured(world, knobs, demand=demand)
        if before is None or after is None:
            return None
        gains.append(after.in_target_ratio - before.in_target_ratio)
        shares.append(after.in_target_ratio)
        ratios.append(_ratio(after.e2e_seconds, before.e2e_seconds))
    return Gain(
        knobs,
        sum(gains) / len(gains),
        min(gains),
        sum(shares) / len(shares),
        min(shares),
        max(ratios),
    )


def off_demand(ground: Ground, gain: Gain) -> list[Gain]:
    """The same change at a little less and more demand; empty where it cannot be said there."""
    found = [gain_of(ground, gain.knobs, demand) for demand in DEMANDS]
    return [one for one in found if one is not None] if None not in found else []


def _ratio(after: float | None, before: float | None) -> float:
    return 1.0 if after is None or not before else after / before
