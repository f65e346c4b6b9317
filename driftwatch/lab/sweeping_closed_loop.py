"""One level of a sweep in the simulator: a fixed number of users, each asking when answered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from driftwatch.lab.sweeping import Level, Sent, measure
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import simulate
from driftwatch.simulate.requests import NEVER, Requests
from driftwatch.simulate.step_time import StepTime

FINISHED = "finished"


def simulated_level(
    requests: Requests,
    configuration: SchedulerConfiguration,
    step_time: StepTime,
    concurrency: int,
    *,
    count: int,
    warm_up: int,
    timeout_seconds: float | None = None,
) -> Level:
    """Send ``count`` requests, ``concurrency`` at a time; what their steady part gave.

    Args:
        requests: whose lengths are sent, over again from the first where there are fewer; their
            arrivals and cancellations are of no account.
        configuration: of the scheduler.
        step_time: the step-time model.
        concurrency: users.
        count: requests sent in all.
        warm_up: how many ends are left out at the start.
        timeout_seconds: a user gives up after so long.

    Raises:
        ImpossibleConfiguration: vLLM would refuse the settings, or a request never fits.
    """
    chosen = replace(
        requests.take(np.arange(count, dtype=np.int64) % len(requests)),
        arrival_seconds=np.zeros(count),
        cancel_seconds=np.full(count, NEVER),
    )
    outcome = simulate(
        chosen,
        configuration,
        step_time,
        concurrency=concurrency,
        timeout_seconds=timeout_seconds,
    )
    table = outcome.requests
    statuses = table["status"].to_list()
    sent = Sent(
        start_seconds=table["arrival_seconds"].to_numpy(),
        first_token_seconds=table["first_token_seconds"].fill_null(float("nan")).to_numpy(),
        end_seconds=table["end_seconds"].fill_null(float("inf")).to_numpy(),
        prompt_tokens=table["prompt_tokens"].cast(float).to_numpy(),
        generation_tokens=table["generated_tokens"].cast(float).to_numpy(),
        failures=tuple("" if status == FINISHED else status for status in statuses),
    )
    level = measure(concurrency, sent, warm_up=warm_up)
    busy = {"client_busy_ratio": "simulated: no client is at work"}
    return replace(level, reasons={**(level.reasons or {}), **busy})
