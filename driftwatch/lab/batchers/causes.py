"""Where the factor between static and continuous batching comes from, cause by cause."""

from __future__ import annotations

from dataclasses import dataclass

from driftwatch.lab.batchers.comparison import capacity, measure
from driftwatch.lab.batchers.mixes import Mix
from driftwatch.lab.batchers.policies import Settings, without_causes
from driftwatch.simulate.step_time import StepTime

LADDER = 6  # so many variants build on each other; the others stand alone against static


@dataclass(frozen=True, slots=True)
class Variant:
    """Static batching with causes of loss switched off.

    Attributes:
        name: what is switched off.
        compared_with: the variant that the factors are against; empty for static itself.
        capacity_requests_per_second: while there is always more to do.
        capacity_factor: of it.
        e2e_seconds_p99: at the rate asked.
        e2e_seconds_mean: at the rate asked.
        latency_factor: by how much the mean falls.
        keeps_up: at the rate asked.
    """

    name: str
    compared_with: str
    capacity_requests_per_second: float | None
    capacity_factor: float | None
    e2e_seconds_p99: float | None
    e2e_seconds_mean: float | None
    latency_factor: float | None
    keeps_up: bool


def causes(
    settings: Settings, mix: Mix, step_time: StepTime, requests_per_second: float, *, seconds: float
) -> tuple[Variant, ...]:
    """Measure the ladder from static to continuous, then each cause of static alone.

    Args:
        settings: batch_size is the seats of all but the last rung.
        mix: what is served.
        step_time: step-time models.
        requests_per_second: at which latency is measured.
        seconds: of arrivals.

    Raises:
        ValueError: settings or a rate that cannot be.
        ImpossibleConfiguration: vLLM would refuse the settings.
    """
    found: list[Variant] = []
    for place, policy in enumerate(without_causes(settings)):
        before = found[place - 1 if place < LADDER else 0] if found else None
        most = capacity(policy, mix, step_time)
        one = measure(policy, mix, step_time, requests_per_second, seconds=seconds).steady
        mean = one.e2e.mean if one else None
        found.append(
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
    return tuple(found)


def _over(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None
