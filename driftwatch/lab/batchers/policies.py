"""The policies that are compared, each with its settings, behind one call."""

from __future__ import annotations

from dataclasses import dataclass, replace

from driftwatch.lab.batchers.clock import Batched, Load
from driftwatch.lab.batchers.cohort import FOREVER, CohortPolicy, run_cohorts
from driftwatch.lab.batchers.split import SplitPolicy, run_split
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime

STATIC, DYNAMIC, CONTINUOUS = "static", "dynamic", "continuous"
HYBRID, BACK_PRESSURE = "hybrid", "back-pressure"
NAMES = (STATIC, DYNAMIC, CONTINUOUS, HYBRID, BACK_PRESSURE)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of all policies."""

    # of continuous batching; the hybrid takes its caps from it
    configuration: SchedulerConfiguration
    batch_size: int = 32  # of static and dynamic batching
    max_wait_seconds: float = 0.05  # of dynamic batching
    # prompt buckets of static and dynamic batching; empty = none
    bucket_tokens: tuple[int, ...] = ()
    prefill_share_ratio: float = 0.8  # of the hybrid
    queue_limit: int = 256  # of back-pressure, requests
    reject_share_ratio: float = 0.8  # of back-pressure
    retry_seconds: float = 0.5  # of a client that was turned away
    timeout_seconds: float | None = None  # after which every client gives up; None = never
    free_given_up: bool = True  # whether the server notices


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy."""

    name: str  # one of `NAMES`
    settings: Settings  # of all policies
    cohort: CohortPolicy | None = None  # how batches form, where they run to the longest member
    label: str = ""  # what a variant is called

    @property
    def leaves_together(self) -> int:
        """Requests that may leave at one time."""
        return self.cohort.size if self.cohort and self.cohort.hold else 1

    def serve(
        self, requests: Requests, step_time: StepTime, *, concurrency: int | None = None
    ) -> Batched:
        """Run it.

        Raises ValueError: settings that cannot be, or a load that the policy is not defined for;
        ImpossibleConfiguration: vLLM would refuse the settings.
        """
        settings, configuration = self.settings, self.settings.configuration
        load = Load(requests, concurrency, settings.timeout_seconds, settings.free_given_up)
        if self.cohort is not None:
            return run_cohorts(load, step_time, self.cohort)
        if self.name == HYBRID:
            seats = configuration.max_num_active_seqs or configuration.max_num_seqs
            budget = configuration.max_num_batched_tokens
            policy = SplitPolicy(settings.prefill_share_ratio, seats, budget)
            return run_split(load, step_time, policy)
        # the engine compiles on import: the classic batchers do without it
        from driftwatch.lab.batchers.continuous import (
            BackPressure,
            run_back_pressure,
            run_continuous,
        )

        if self.name != BACK_PRESSURE:
            return run_continuous(load, step_time, configuration)
        if concurrency is not None:
            raise ValueError(NO_CLOSED_LOOP)
        pressure = BackPressure(
            settings.queue_limit, settings.reject_share_ratio, settings.retry_seconds
        )
        return run_back_pressure(load, step_time, configuration, pressure)


NO_CLOSED_LOOP = "back-pressure turns away open-loop arrivals; closed-loop clients wait already"


def policy_named(name: str, settings: Settings) -> Policy:
    """A policy by its name.

    Raises ValueError: no such policy.
    """
    if name not in NAMES:
        raise ValueError(f"no policy {name!r}: one of {', '.join(NAMES)}")
    wait = {STATIC: FOREVER, DYNAMIC: settings.max_wait_seconds}.get(name)
    if wait is None:
        return Policy(name, settings)
    cohort = CohortPolicy(settings.batch_size, wait, bucket_tokens=settings.bucket_tokens)
    return Policy(name, settings, cohort)


def without_causes(settings: Settings) -> tuple[Policy, ...]:
    """From static to continuous batching, one cause of loss after the other switched off.

    First cumulative (the ladder), then each of the static batch's own causes alone.
    """
    size, buckets = settings.batch_size, settings.bucket_tokens
    seats = settings.configuration.max_num_seqs

    def batch(label: str, cohort: CohortPolicy) -> Policy:
        return Policy(STATIC, settings, cohort, label)

    return (
        batch("static", CohortPolicy(size, bucket_tokens=buckets)),
        batch("+ no wait to fill", CohortPolicy(size, 0.0, bucket_tokens=buckets)),
        batch("+ no padding", CohortPolicy(size, 0.0, pad=False)),
        batch("+ replies not held", CohortPolicy(size, 0.0, pad=False, hold=False)),
        Policy(CONTINUOUS, _with_seats(settings, size), label=f"+ join any step, {size} seats"),
        Policy(CONTINUOUS, settings, label=f"+ {seats} seats"),
        batch("only: no wait to fill", CohortPolicy(size, 0.0, bucket_tokens=buckets)),
        batch("only: no padding", CohortPolicy(size, pad=False)),
        batch("only: replies not held", CohortPolicy(size, hold=False, bucket_tokens=buckets)),
    )


def _with_seats(settings: Settings, seats: int) -> Settings:
    budget = max(settings.configuration.max_num_batched_tokens, seats)
    configuration = replace(
        settings.configuration,
        max_num_seqs=seats,
        max_num_batched_tokens=budget,
        max_num_active_seqs=None,
    )
    return replace(settings, configuration=configuration)
