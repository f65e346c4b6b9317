"""Continuous batching, and continuous batching with back-pressure: vLLM's scheduler on this clock.

Back-pressure as the field describes it: a share of the queue's limit is the threshold over which a
request is turned away (vLLM's own flag: ``--max-num-queued-reqs``, HTTP 503); its client waits and
tries again until its patience ends.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from driftwatch.lab.batchers.clock import (
    CANCELLED,
    FINISHED,
    REJECTED,
    TIMED_OUT,
    Batched,
    Fates,
    Load,
)
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.engine import Engine, simulate
from driftwatch.simulate.requests import NEVER
from driftwatch.simulate.step_time import StepTime


def run_continuous(
    load: Load, step_time: StepTime, configuration: SchedulerConfiguration
) -> Batched:
    """Serve the requests as vLLM does.

    Raises ImpossibleConfiguration: vLLM would refuse the settings; ValueError: clients that give up
    unnoticed in a closed loop, which is not modelled.
    """
    fates, requests = Fates(load), load.requests
    if load.free_given_up or not fates.leavers:
        outcome = simulate(
            requests,
            configuration,
            step_time,
            concurrency=load.concurrency,
            timeout_seconds=load.timeout_seconds,
        )
        return _batched(outcome.requests, outcome.summary)
    if load.concurrency is not None:
        raise ValueError("clients that give up unnoticed are modelled with arrivals only")
    never = np.full(len(requests), NEVER)
    outcome = simulate(replace(requests, cancel_seconds=never), configuration, step_time)
    give_up_seconds = np.array([fates.gives_up(i) for i in range(len(requests))])
    late, kind = pl.Series(give_up_seconds), outcome.requests.schema["status"]
    status = [
        TIMED_OUT if seconds < cancel else CANCELLED
        for seconds, cancel in zip(give_up_seconds, requests.cancel_seconds, strict=True)
    ]
    gave_up = (pl.col("status") == FINISHED) & (pl.col("end_seconds") > late)
    table = outcome.requests.with_columns(
        status=pl.when(gave_up).then(pl.Series(status, dtype=kind)).otherwise(pl.col("status")),
        end_seconds=pl.when(gave_up).then(late).otherwise(pl.col("end_seconds")),
        first_token_seconds=pl.when(pl.col("first_token_seconds") <= late).then(
            pl.col("first_token_seconds")
        ),
    ).with_columns(
        e2e_seconds=pl.col("end_seconds") - pl.col("arrival_seconds"),
        ttft_seconds=pl.col("first_token_seconds") - pl.col("arrival_seconds"),
    )
    return _batched(table, outcome.summary)


@dataclass(frozen=True, slots=True)
class BackPressure:
    """When requests are turned away, and what their clients do then."""

    queue_limit: int  # most requests inside, waiting or running, as vLLM's flag counts them
    reject_share_ratio: float = 0.8  # turned away while at least this share of the limit is inside
    retry_seconds: float = 0.5  # how long a client waits before it tries again

    @property
    def threshold(self) -> int:
        """Turned away while as many are inside: vLLM's max_num_queued_reqs."""
        return max(1, int(self.queue_limit * self.reject_share_ratio))


def run_back_pressure(
    load: Load,
    step_time: StepTime,
    configuration: SchedulerConfiguration,
    pressure: BackPressure,
) -> Batched:
    """Continuous batching that turns requests away while the queue is long.

    A client that is turned away comes back every ``retry_seconds`` until it is admitted or has
    given up (cancellation or time-out, counted from its first try, as is its latency). One whose
    patience ends before its next try would come ends as rejected. Without ``free_given_up`` who was
    admitted and gave up is served to the end, for nobody, and counts as inside until then.

    Raises ImpossibleConfiguration: vLLM would refuse the settings.
    """
    fates, requests = Fates(load), load.requests
    limited = replace(configuration, max_num_queued_reqs=pressure.threshold)
    engine = Engine(limited, step_time)
    patience = np.array([fates.gives_up(i) for i in range(len(requests))])
    tries = [(float(t), i) for i, t in enumerate(requests.arrival_seconds)]
    offered: list[int] = []
    summary: dict[str, float | int] = {}
    now = 0.0
    while True:
        # a refusal within this slice brings its next try after the slice, never into it
        now = max(now, tries[0][0]) + pressure.retry_seconds if tries else np.inf
        coming = []
        while tries and tries[0][0] < now:
            coming.append(heapq.heappop(tries))
        if coming:
            which = np.array([index for _, index in coming], dtype=np.int64)
            times = np.array([seconds for seconds, _ in coming])
            chosen = requests.take(which)
            noticed = patience[which] if load.free_given_up else np.full(len(which), NEVER)
            engine.offer(replace(chosen, arrival_seconds=times, cancel_seconds=noticed))
            offered.extend(which.tolist())
        outcome = engine.advance(now)
        summary = outcome.summary
        for row in outcome.requests.iter_rows(named=True):
            index = offered[row["index"]]
            if row["status"] == REJECTED:
                again = float(row["end_seconds"]) + pressure.retry_seconds
                again = max(again, now) if now < np.inf else again
                if again < patience[index]:
                    heapq.heappush(tries, (again, index))
                else:
                    fates.status[index], fates.end[index] = REJECTED, row["end_seconds"]
                continue
            _book(fates, index, row, float(patience[index]))
        if now == np.inf and not tries:
            break
    return _batched(fates.table(), summary)


def _book(
    fates: Fates, index: int, row: dict[str, float | int | str | None], patience: float
) -> None:
    """What the engine says of a request that it admitted; the client may have gone before."""
    for name, column in (
        ("first_scheduled_seconds", fates.first_scheduled),
        ("first_token_seconds", fates.first_token),
        ("end_seconds", fates.end),
    ):
        value = row[name]
        column[index] = np.nan if value is None else float(value)
    fates.generated[index] = int(row["generated_tokens"] or 0)
    if row["status"] == FINISHED and fates.end[index] > patience:  # unnoticed by the server
        if fates.first_token[index] > patience:
            fates.first_token[index] = np.nan
        fates.leave(index, patience)
    elif row["status"] == FINISHED:
        fates.status[index] = FINISHED
    else:
        fates.leave(index, float(fates.end[index]))


def _batched(table: pl.DataFrame, summary: dict[str, float | int]) -> Batched:
    return Batched(table, None, int(summary["steps"]), float(summary["busy_seconds"]))
