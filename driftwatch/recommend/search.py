"""Which settings are worth a restart: a sweep in a few draws, the best of it in all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from driftwatch.arrays import Floats
from driftwatch.knobs import KNOBS
from driftwatch.recommend.advice import Candidate
from driftwatch.recommend.forecast import IMPOSSIBLE, Outlook
from driftwatch.recommend.server import BUDGETS, Knobs, Settings
from driftwatch.simulate.configuration import SchedulerConfiguration

MEAN_GAIN = 0.04  # of the requests: less is not worth a restart
HARM = 0.02  # a loss of so much …
HARM_CHANCE = 0.10  # … may be so likely
LEAST_SHARE = 0.30  # in target afterwards: below it the answer is capacity
TIES = 0.02  # of the requests: shares that differ by less are the same
_SAME = 1.1  # times: capacities and prices that differ by less are the same
MARGIN = 0.7  # of the capacity: below it nothing is scarce
KV_FULL = 0.95  # of the KV cache, at its peak: from there on requests are preempted
_PAIRED = 2  # of each kind of knob, the best ones are tried together
# Times today's value: no batch, and no step, has been larger.
MOST_TIMES = {"max_num_seqs": 8.0, "max_num_batched_tokens": 4.0}
_STEPS = (0.125, 0.25, 0.5, 2.0, 4.0, 8.0)  # times today's value
_LOOK = 6  # draws after which settings that bring nothing are given up
_NOTHING = 0.01  # of the requests
# The true gain lay between these quantiles of the draws in 80 % of the cases of bench/recommend.py
# (seeds 5 and 6). The draws vary demand by a fifth more often than demand really does.
_INSIDE = (0.2, 0.8)
# vLLM 0.32 config/vllm.py _set_cudagraph_sizes: 1, 2, 4, 8 to 248 in steps of 8, from 256 in steps
# of 16; a batch is padded up to the next one.
_SMALL_SIZES = (1, 2, 4)


def capture_size_at_least(requests: float) -> int:
    """The smallest CUDA-graph capture size that holds ``requests``.

    >>> capture_size_at_least(38.5), capture_size_at_least(249), capture_size_at_least(3)
    (40, 256, 4)
    """
    for size in _SMALL_SIZES:
        if requests <= size:
            return size
    step = 8 if requests <= 248 else 16
    return math.ceil(requests / step) * step


def sequence_counts(today: int) -> list[int]:
    """Values of max_num_seqs besides today's, each a CUDA-graph capture size, rising.

    >>> sequence_counts(8), sequence_counts(256)
    ([1, 2, 4, 16, 32, 64], [32, 64, 128, 512, 1024])
    """
    most = max(KNOBS["max_num_seqs"].values[-1], today)
    sizes = {capture_size_at_least(today * step) for step in _STEPS}
    return sorted(size for size in sizes - {today} if size <= most)


def token_budgets(today: int) -> list[int]:
    """Values of max_num_batched_tokens besides today's, rising.

    >>> token_budgets(1024), token_budgets(8192)
    ([512, 2048, 4096], [1024, 2048, 4096, 16384])
    """
    least, most = min(BUDGETS[0], today), max(BUDGETS[-1], today)
    values = {
        round(today * step) for step in _STEPS if step <= MOST_TIMES["max_num_batched_tokens"]
    }
    return sorted(value for value in values - {today} if least <= value <= most)


def single_knobs(today: SchedulerConfiguration, *, budget_known: bool) -> list[Knobs]:
    """One knob at a time, what vLLM would take."""
    values: dict[str, list[int]] = {"max_num_seqs": sequence_counts(today.max_num_seqs)}
    if budget_known:
        values["max_num_batched_tokens"] = token_budgets(today.max_num_batched_tokens)
    values["long_prefill_token_threshold"] = [
        value
        for value in KNOBS["long_prefill_token_threshold"].values[:2]
        if value < today.max_num_batched_tokens and value != today.long_prefill_token_threshold
    ]
    if today.max_num_active_seqs is not None:
        counts = sequence_counts(today.max_num_active_seqs)
        values["max_num_active_seqs"] = [v for v in counts if v <= today.max_num_seqs]
    every: list[Knobs] = [{name: float(v)} for name, of in values.items() for v in of]
    return [knobs for knobs in every if not refusal(today, knobs)]


def refusal(today: SchedulerConfiguration, knobs: Knobs) -> str | None:
    """Why vLLM would not start with them."""
    values = {name: round(value) for name, value in knobs.items()}
    return "; ".join(replace(today, **values).problems()) or None  # type: ignore[arg-type]


def distance(today: SchedulerConfiguration, knobs: Knobs) -> tuple[int, float]:
    """How far from today: knobs, then doublings; off (None or 0) to on is one doubling."""
    doublings = 0.0
    for name, value in knobs.items():
        now = getattr(today, name) or 0
        doublings += abs(math.log2(value / now)) if now and value else 1.0
    return len(knobs), doublings


@dataclass(frozen=True, slots=True, eq=False)
class Gain:
    """What some knobs bring over today, draw by draw, as shares of the requests."""

    knobs: Knobs
    gains: Floats
    shares: Floats  # in target then
    peak: float  # mean gain over the draws with the highest demand

    @property
    def mean(self) -> float:
        """Over the draws."""
        return float(self.gains.mean())

    @property
    def range(self) -> tuple[float, float]:
        """An 80 % interval; the mean of skewed gains may be an end of it."""
        low, high = np.quantile(self.gains, _INSIDE)
        return min(float(low), self.mean), max(float(high), self.mean)

    @property
    def chance_of_harm(self) -> float:
        """Share of the draws that lose :data:`HARM` or more."""
        return float((self.gains <= -HARM).mean())

    @property
    def is_safe(self) -> bool:
        """It is unlikely to lose."""
        return self.chance_of_harm <= HARM_CHANCE and float(self.shares.min()) > IMPOSSIBLE

    @property
    def serves(self) -> bool:
        """It leaves enough in target to speak of, and is unlikely to lose."""
        return float(self.shares.mean()) >= LEAST_SHARE and self.is_safe

    @property
    def is_worth_it(self) -> bool:
        """It brings enough, and serves."""
        return self.mean >= MEAN_GAIN and self.serves


def gain_of(outlook: Outlook, knobs: Knobs) -> Gain:
    """In every draw; in the first of them where these bring nothing."""
    some = range(min(_LOOK, len(outlook.draws)))
    if outlook.gains(knobs, some).mean() >= _NOTHING:
        some = range(len(outlook.draws))
    gains, demand = outlook.gains(knobs, some), [outlook.draws[number].demand for number in some]
    peak = float(gains[np.equal(demand, max(demand))].mean())
    return Gain(knobs, gains, outlook.shares(knobs, some), peak)


def finalists(sweep: Outlook, outlook: Outlook, settings: Settings, most: int) -> list[Gain]:
    """The best settings of a sweep, in every draw; best first.

    ``sweep``: a few short draws; ``settings``: today's.
    """
    today = settings.configurations
    single = single_knobs(today[0], budget_known=settings.budget_known)
    single = [knobs for knobs in single if not any(refusal(one, knobs) for one in today)]
    rough = _ranked(sweep, single, today[0])
    seqs = [one for one in rough if "max_num_seqs" in one][:_PAIRED]
    others = [one for one in rough if "max_num_seqs" not in one][:_PAIRED]
    both = [{**one, **other} for one, other in product(seqs, others)]
    both = [knobs for knobs in both if not any(refusal(one, knobs) for one in today)]
    both = [knobs for knobs in both if _adds(sweep, knobs)]
    best = _ranked(sweep, [*single, *both], today[0])[:most]
    gains = [gain_of(outlook, knobs) for knobs in best]
    return sorted(gains, key=lambda gain: -gain.mean)


def _adds(sweep: Outlook, knobs: Knobs) -> bool:
    """Whether a pair brings more than each of its knobs alone, which would take its place."""
    alone = max(float(sweep.gains({name: value}).mean()) for name, value in knobs.items())
    return float(sweep.gains(knobs).mean()) > alone


def _ranked(
    sweep: Outlook, settings: Sequence[Knobs], today: SchedulerConfiguration
) -> list[Knobs]:
    """Best first. Without a gain one knob comes before two and the larger value first: only
    larger ones may serve more.
    """

    def place(number: int) -> tuple[float, float, float]:
        mean, knobs = float(sweep.gains(settings[number]).mean()), settings[number]
        if mean:
            return -mean, 0.0, number
        times = [knobs[name] / getattr(today, name) for name in MOST_TIMES if name in knobs]
        return 0.0, len(knobs), -math.prod(times)

    return [settings[number] for number in sorted(range(len(settings)), key=place)]


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """Settings that may be advised: their gain, and their row with capacity and price."""

    gain: Gain
    row: Candidate

    def beats(self, other: Option, most: float) -> bool:
        """More capacity, by a tenth, at a time between tokens that is the same to a tenth, where
        the other one is short of capacity at the rate ``most``.
        """
        capacity, price = self.row.capacity_requests_per_second, self.row.itl_p99_seconds
        served = other.row.capacity_requests_per_second or 0.0
        at_most = _SAME * (other.row.itl_p99_seconds or math.inf)
        more = MARGIN * served < most and (capacity or 0.0) > _SAME * served
        return more and (price or math.inf) <= at_most


def both_overloaded(one: Candidate, best: Candidate, offered: float) -> bool:
    """Whether neither keeps up with ``offered``, and it serves as much as the best one.

    The share in target of a server that does not keep up says only how long its queue takes to
    grow: both need as many replicas beside them.
    """
    limit, most = one.capacity_requests_per_second, best.capacity_requests_per_second
    return bool(limit and most and most < offered and limit * _SAME >= most)


def chosen(options: Sequence[Option], today: SchedulerConfiguration, most: float) -> Option | None:
    """The option that is advised, by its gain; None = none is worth a restart.

    Of those within :data:`TIES` of the best mean gain, and then of the best gain at the highest
    demand, it is the :func:`nearest`: one restart is enough for the load that may come. ``most``:
    the highest rate that is simulated.
    """
    left = [one for one in options if one.gain.is_worth_it]
    best = max((one.gain.mean for one in left), default=0.0)
    left = [one for one in left if one.gain.mean >= best - TIES]
    peak = max((one.gain.peak for one in left), default=0.0)
    return nearest([one for one in left if one.gain.peak >= peak - TIES], today, most)


def nearest(options: Sequence[Option], today: SchedulerConfiguration, most: float) -> Option | None:
    """The smallest move among the options that no other one beats; None = there is no option."""
    left = [one for one in options if not any(other.beats(one, most) for other in options)]
    return min(left or options, key=lambda one: distance(today, one.gain.knobs), default=None)
