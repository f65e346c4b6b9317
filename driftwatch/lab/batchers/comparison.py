"""Policies over loads: what each measures, where its knee is, and which fits when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from driftwatch.lab.batchers.clock import NOT_DEFINED, Batched
from driftwatch.lab.batchers.mixes import Mix
from driftwatch.lab.batchers.policies import (
    BACK_PRESSURE,
    CONTINUOUS,
    NO_CLOSED_LOOP,
    Policy,
    Settings,
    without_causes,
)
from driftwatch.lab.batchers.steady import Steady, alone_seconds, saturated_rate, steady
from driftwatch.simulate.step_time import StepTime

ROUNDS = 20  # requests of each client, at least
NEAR = 0.05  # closer than this, two p99 are the same


@dataclass(frozen=True, slots=True)
class Point:
    """One policy under one load: requests a second for ``seconds``, or, closed, so many clients.

    At least ``at_least`` requests are sent; ``limit_seconds``: end-to-end time that counts as good.
    """

    policy: str  # its name
    load: float  # requests per second, or clients in the closed loop
    steady: Steady | None  # the figures; None with a reason
    batch_efficiency_ratio: float | None  # Σ generated / Σ (batch × longest); None with the reason
    prompt_padding_waste_ratio: float | None  # of the prompt tokens computed; None with the reason
    mean_batch_size: float | None  # requests a batch; None with the reason
    reason: str = ""  # why figures are missing
    batch_reason: str = ""  # why those of batches are


@dataclass(frozen=True, slots=True)
class Knee:
    """Where a policy stops being in target."""

    policy: str  # its name
    # the largest load tried at which it keeps up and its p99 is within the limit; None where there
    # is none
    holds_at: float | None
    fails_at: float | None  # the next load tried above it; None where it held to the end
    reason: str  # what fails there, or everywhere


def measure(
    policy: Policy,
    mix: Mix,
    step_time: StepTime,
    load: float,
    *,
    closed: bool = False,
    seconds: float = 120.0,
    at_least: int = 2000,
    limit_seconds: float | None = None,
) -> Point:
    """One policy under one load.

    Raises ValueError: a load or settings that cannot be; ImpossibleConfiguration: vLLM would refuse
    the settings.
    """
    if closed:
        if policy.name == BACK_PRESSURE:
            return Point(policy.name, load, None, None, None, None, NO_CLOSED_LOOP, NO_CLOSED_LOOP)
        clients = int(load)
        requests = mix.at_once(max(at_least, ROUNDS * clients))
        batched = policy.serve(requests, step_time, concurrency=clients)
    else:
        requests = mix.at_rate(load, max(at_least, round(load * seconds)))
        batched = policy.serve(requests, step_time)
    return point(policy, load, batched, limit_seconds)


def point(policy: Policy, load: float, batched: Batched, limit_seconds: float | None) -> Point:
    """The figures of a run."""
    figures = steady(batched, batch_size=policy.leaves_together, limit_seconds=limit_seconds)
    sizes = None if batched.batches is None else batched.batches["size"].to_numpy()
    return Point(
        policy.name,
        load,
        figures,
        batched.batch_efficiency_ratio,
        batched.prompt_padding_waste_ratio,
        None if sizes is None or not len(sizes) else float(np.mean(sizes)),
        reason="" if figures else "all requests arrive at one time: nothing is steady",
        batch_reason=NOT_DEFINED if batched.batches is None else "",
    )


def capacity(policy: Policy, mix: Mix, step_time: StepTime) -> float | None:
    """Requests per second while there is always more to do; back-pressure has its scheduler's.

    All requests wait from the start, ten times as many as there are seats (2,000 to 50,000), so
    that seats are filled again and again.
    """
    seats = max(policy.settings.configuration.max_num_seqs, policy.settings.batch_size)
    count = min(max(2000, 10 * seats), 50_000)
    alike = policy
    if policy.name == BACK_PRESSURE:
        alike = replace(policy, name=CONTINUOUS)
    patient = replace(alike, settings=replace(alike.settings, timeout_seconds=None))
    requests = replace(mix, cancel_ratio=0.0).at_once(count)
    return saturated_rate(patient.serve(requests, step_time))


def alone_p99_seconds(mix: Mix, step_time: StepTime) -> float:
    """p99 of the end-to-end time of the mix's requests, each alone on an empty server."""
    return float(np.quantile(alone_seconds(mix.at_once(len(mix.prompt_tokens)), step_time), 0.99))


def ladder(top_requests_per_second: float) -> tuple[float, ...]:
    """Eight rates up to a little above the capacity given, two digits each."""
    shares = (0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.05)
    return tuple(dict.fromkeys(float(f"{top_requests_per_second * s:.2g}") for s in shares))


def knee(points: Sequence[Point], limit_seconds: float) -> Knee:
    """The largest load at which a policy keeps up with p99 within the limit.

    Loads are tried from the lowest up; the first one that fails above one that holds ends it.
    """
    name, holds, reason = points[0].policy, None, ""
    for one in sorted(points, key=lambda p: p.load):
        wrong = failure(one, limit_seconds)
        if not wrong:
            holds = one.load
        elif holds is not None:
            return Knee(name, holds, one.load, wrong)
        else:
            reason = reason or wrong
    return Knee(name, holds, None, "" if holds is not None else reason)


def failure(one: Point, limit_seconds: float) -> str:
    """Why a point is out of target; empty where it is within."""
    if one.steady is None:
        return one.reason
    if not one.steady.keeps_up:
        return "does not keep up"
    p99 = one.steady.e2e.p99
    if p99 is None:
        return f"p99 unknown: {one.steady.e2e.reason}"
    if p99 > limit_seconds:
        return "p99 above the limit"
    return ""


@dataclass(frozen=True, slots=True)
class Fit:
    """Loads over which the same policies are best."""

    lowest: float  # first load
    highest: float  # last load
    # policies whose p99 is the lowest of those that keep up, or within 5 % of it; empty where none
    # keeps up
    best: tuple[str, ...]
    p99_seconds: tuple[float, float] | None  # the best's, at the lowest and the highest load
    # the others that keep up → their p99 over the best's, at the highest load
    behind: tuple[tuple[str, float], ...]
    fail: tuple[str, ...]  # those that do not keep up


def fits(points: Sequence[Point]) -> tuple[Fit, ...]:
    """Which policy has the lowest p99 at each load, neighbours of one answer put together."""
    fits: list[Fit] = []
    for one in _by_load(points):
        last = fits[-1] if fits else None
        if last and (last.best, last.fail) == (one.best, one.fail):
            ends = last.p99_seconds and one.p99_seconds
            p99 = (last.p99_seconds[0], one.p99_seconds[1]) if ends else None  # type: ignore[index]
            fits[-1] = Fit(last.lowest, one.highest, one.best, p99, one.behind, one.fail)
        else:
            fits.append(one)
    return tuple(fits)


def _by_load(points: Sequence[Point]) -> Iterator[Fit]:
    for load in sorted({p.load for p in points}):
        here = [p for p in points if p.load == load and p.steady is not None]
        p99_by_policy = {
            p.policy: p.steady.e2e.p99
            for p in here
            if p.steady and p.steady.keeps_up and p.steady.e2e.p99 is not None
        }
        fail = tuple(p.policy for p in here if p.steady and not p.steady.keeps_up)
        if not p99_by_policy:
            yield Fit(load, load, (), None, (), fail)
            continue
        lowest = min(p99_by_policy.values())
        best = tuple(name for name, p99 in p99_by_policy.items() if p99 <= lowest * (1 + NEAR))
        behind = tuple((n, p99 / lowest) for n, p99 in p99_by_policy.items() if n not in best)
        yield Fit(load, load, best, (lowest, lowest), behind, fail)


LADDER = 6  # so many variants build on each other; the others stand alone against static


@dataclass(frozen=True, slots=True)
class Variant:
    """Static batching with causes of loss switched off."""

    name: str  # what is switched off
    compared_with: str  # the variant that the factors are against; empty for static itself
    capacity_requests_per_second: float | None  # while there is always more to do
    capacity_factor: float | None  # of it
    e2e_seconds_p99: float | None  # at the rate asked
    e2e_seconds_mean: float | None  # at the rate asked
    latency_factor: float | None  # by how much the mean falls
    keeps_up: bool  # at the rate asked


def causes(
    settings: Settings, mix: Mix, step_time: StepTime, requests_per_second: float, *, seconds: float
) -> tuple[Variant, ...]:
    """Measure the ladder from static to continuous, then each cause of static alone.

    Raises ValueError: settings or a rate that cannot be; ImpossibleConfiguration: vLLM would refuse
    the settings.
    """
    variants: list[Variant] = []
    for place, policy in enumerate(without_causes(settings)):
        before = variants[place - 1 if place < LADDER else 0] if variants else None
        most = capacity(policy, mix, step_time)
        one = measure(policy, mix, step_time, requests_per_second, seconds=seconds).steady
        mean = one.e2e.mean if one else None
        variants.append(
            Variant(
                name=policy.label or policy.name,
                compared_with=before.name if before else "",
                capacity_requests_per_second=most,
                capacity_factor=_over(
                    most, before.capacity_requests_per_second if before else None
                ),
                e2e_seconds_p99=one.e2e.p99 if one else None,
                e2e_seconds_mean=mean,
                latency_factor=_over(before.e2e_seconds_mean if before else None, mean),
                keeps_up=bool(one and one.keeps_up),
            )
        )
    return tuple(variants)


def _over(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None
