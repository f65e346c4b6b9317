"""The worlds an answer must hold in: settings that may be today's, each with the laws that fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from driftwatch.recommend.calibration.fitted import Calibration, Fit
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.step_time import StepTime

KNOBS = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_num_active_seqs",
    "long_prefill_token_threshold",
    "max_num_queued_tokens",
)


@dataclass(frozen=True, slots=True)
class World:
    """One way the server may be.

    Attributes:
        configuration: today's settings.
        law: of its steps.
        variant: the law's structure.
        fit: where the law comes from; None where it is given.
        whole_hits: prefix hits are taken as whole prompts of some requests, not as an equal part of
            each: which of both it is no metric says.
        is_end: its law is an end of the best fit's 80 % interval, and not a fit of its own: what
            is possible, not what is likely.
    """

    configuration: SchedulerConfiguration
    law: StepTime
    variant: str
    fit: Fit | None = None
    whole_hits: bool = False
    is_end: bool = False

    @property
    def key(self) -> tuple[SchedulerConfiguration, StepTime, bool, float]:
        """All that a replay depends on."""
        return self.configuration, self.law, self.whole_hits, self.ttft_overhead_seconds

    @property
    def ttft_overhead_seconds(self) -> float:
        """What passes outside the steps between a request's arrival and its first token."""
        return 0.0 if self.fit is None else self.fit.ttft_overhead_seconds


def worlds_of(calibrated: Iterable[tuple[SchedulerConfiguration, Calibration]]) -> list[World]:
    """Every settings with every law that was fitted under them, the best settings first."""
    ordered = sorted(calibrated, key=lambda one: one[1].best.loss)
    return [
        World(configuration, fit.law, fit.variant, fit)
        for configuration, calibration in ordered
        for fit in calibration.fits
    ]


def between(worlds: Sequence[World]) -> list[World]:
    """The worlds, and the slower and the faster law of the best: 80 % lie between those two."""
    best = worlds[0]
    if best.fit is None or best.fit.slower is None or best.fit.faster is None:
        return list(worlds)
    laws = {"slower": best.fit.slower, "faster": best.fit.faster}
    more = [
        replace(best, law=law, variant=f"{best.variant}, {name}", is_end=True)
        for name, law in laws.items()
    ]
    return [*worlds, *more]


def with_knobs(
    configuration: SchedulerConfiguration,
    knobs: Mapping[str, float],
    num_gpu_blocks: int | None,
) -> SchedulerConfiguration:
    """Settings with some knobs turned, and the KV blocks that are left then."""
    turned: dict[str, Any] = {name: round(value) for name, value in knobs.items() if name in KNOBS}
    return replace(configuration, **turned, num_gpu_blocks=num_gpu_blocks)


def setting_of(configuration: SchedulerConfiguration, knob: str) -> float | None:
    """What a knob is today; None where it is off."""
    value = getattr(configuration, knob)
    return None if value is None else float(value)
