"""How the tests of the batchers call them, and what they serve."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from driftwatch.lab.batchers import cohort, continuous, split
from driftwatch.lab.batchers.clock import Batched, Load
from driftwatch.lab.batchers.cohort import CohortPolicy
from driftwatch.lab.batchers.continuous import BackPressure
from driftwatch.lab.batchers.split import SplitPolicy
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime
from driftwatch.simulate.workload import read_requests

STEP_TIME = StepTime(0.008, 4e-5, 3e-5, 2e-8, hinge_tokens=16, c4_seconds_per_prefill_pair=1e-9)
STATIC = CohortPolicy(8)
SPLIT = SplitPolicy(0.5, 16, 512)


def run_cohorts(
    requests: Requests, step_time: StepTime, policy: CohortPolicy, **load: object
) -> Batched:
    return cohort.run_cohorts(Load(requests, **load), step_time, policy)  # type: ignore[arg-type]


def run_split(
    requests: Requests, step_time: StepTime, policy: SplitPolicy, **load: object
) -> Batched:
    return split.run_split(Load(requests, **load), step_time, policy)  # type: ignore[arg-type]


def run_continuous(
    requests: Requests, step_time: StepTime, seats: SchedulerConfiguration, **load: object
) -> Batched:
    return continuous.run_continuous(Load(requests, **load), step_time, seats)  # type: ignore[arg-type]


def run_back_pressure(
    requests: Requests,
    step_time: StepTime,
    seats: SchedulerConfiguration,
    pressure: BackPressure,
    **load: object,
) -> Batched:
    offered = Load(requests, **load)  # type: ignore[arg-type]
    return continuous.run_back_pressure(offered, step_time, seats, pressure)


def azure(shared_data: Path, count: int) -> Requests:
    return read_requests(shared_data / "traces/azure_2023_conv.csv.gz", limit=count)


def column(batched: Batched, name: str) -> np.ndarray:
    return batched.requests[name].fill_null(np.nan).to_numpy()
