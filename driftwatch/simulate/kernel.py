"""The engine's loop: schedule, run, apply, in virtual time.

Asynchronous scheduling as vLLM's batch queue of two: step k + 1 is scheduled when step k starts; it
sees the arrivals until then and not the output of step k.
"""

from __future__ import annotations

from typing import Any

from driftwatch.simulate.kernel_layout import (
    ASYNC,
    C0,
    C1,
    C2,
    C3,
    C4,
    CONCURRENCY,
    EMPTY_SCHEDULES,
    EXECUTING,
    FACTOR_AT,
    FULL,
    HINGE,
    NEVER,
    NEXT_DUE,
    NONE,
    NOW,
    PENDING,
    PER_STEP,
    RANDOM_1,
    RANDOM_2,
    ROWS,
    RUN_COUNT,
    S_DECODE,
    S_FREE,
    S_KV,
    S_PREEMPTED,
    S_PREFILL,
    S_RUNNING,
    S_WAITING,
    STALL_AT,
    STEP_END,
    STEP_START,
    STUCK,
    WAIT_COUNT,
)
from driftwatch.simulate.kernel_outputs import (
    apply,
    happen,
    next_arrival,
    next_cancel,
    pass_time,
)
from driftwatch.simulate.kernel_schedule import schedule


def padded(t: Any, decode_seqs: int) -> int:
    """Decoding requests as a CUDA graph runs them: up to the next captured size."""
    low = 0
    high = len(t.captures)
    while low < high:
        middle = (low + high) // 2
        if t.captures[middle] < decode_seqs:
            low = middle + 1
        else:
            high = middle
    if low < len(t.captures):
        return int(t.captures[low])
    return decode_seqs


def draw(t: Any) -> int:
    """Next number of L'Ecuyer's combined generator (CACM 31(6), 1988), below 2147483562."""
    numbers = t.numbers
    numbers[RANDOM_1] = numbers[RANDOM_1] * 40014 % 2147483563
    numbers[RANDOM_2] = numbers[RANDOM_2] * 40692 % 2147483399
    drawn = numbers[RANDOM_1] - numbers[RANDOM_2]
    if drawn < 1:
        drawn += 2147483562
    return int(drawn - 1)


def disturbed(t: Any, seconds: float) -> float:
    """A step's time with the wander factor of its start, jitter, and the stalls that hit it."""
    numbers = t.numbers
    start = t.clocks[NOW]
    while numbers[FACTOR_AT] < len(t.factor_times) and t.factor_times[numbers[FACTOR_AT]] <= start:
        numbers[FACTOR_AT] += 1
    if numbers[FACTOR_AT] > 0:
        seconds *= t.factors[numbers[FACTOR_AT] - 1]
    if len(t.jitter) > 0:
        seconds *= t.jitter[draw(t) % len(t.jitter)]
    while (
        numbers[STALL_AT] < len(t.stall_times)
        and t.stall_times[numbers[STALL_AT]] < start + seconds
    ):
        seconds += t.stall_lengths[numbers[STALL_AT]]
        numbers[STALL_AT] += 1
    return seconds


def start_step(t: Any, record: int) -> None:
    """A scheduled step starts now."""
    step = t.records[record]
    rates = t.rates
    decoding = step[S_DECODE]
    if step[S_PREFILL] == 0 and len(t.captures) > 0:
        decoding = padded(t, decoding)
    seconds = (
        rates[C0]
        + rates[C1] * max(step[S_PREFILL] - t.settings[HINGE], 0)
        + rates[C2] * decoding
        + rates[C3] * step[S_KV]
        + rates[C4] * t.pairs[record]
    )
    t.numbers[EXECUTING] = record
    t.clocks[STEP_START] = t.clocks[NOW]
    t.clocks[STEP_END] = t.clocks[NOW] + disturbed(t, seconds)


def write_row(t: Any, record: int) -> None:
    """One row of the per-step table: what the schedule call left behind."""
    step = t.records[record]
    at = t.numbers[ROWS]
    t.row_starts[at] = t.clocks[STEP_START]
    t.row_ends[at] = t.clocks[STEP_END]
    row = t.row_numbers[at]
    row[0] = step[S_PREFILL]
    row[1] = step[S_DECODE]
    row[2] = step[S_KV]
    row[3] = step[S_RUNNING]
    row[4] = step[S_WAITING]
    row[5] = step[S_PREEMPTED]
    row[6] = step[S_FREE]
    t.numbers[ROWS] += 1


def complete_step(t: Any) -> None:
    """The step that runs ends: what happened meanwhile, then its outputs."""
    record = t.numbers[EXECUTING]
    end = t.clocks[STEP_END]
    pass_time(t, end, False)
    t.clocks[NOW] = end
    if t.settings[PER_STEP]:
        write_row(t, record)
    apply(t, record)
    t.numbers[EXECUTING] = NONE


def advance(t: Any, until: float) -> None:
    """Run until a time (what ends at it included), until nothing is left, or until a table is full.

    ``numbers[FULL]``: read the per-step table, reset ``numbers[ROWS]`` and call again.
    ``numbers[STUCK]``: requests wait that can never be admitted.
    """
    numbers = t.numbers
    clocks = t.clocks
    numbers[FULL] = 0
    while True:
        completed = False
        if numbers[EXECUTING] != NONE:
            if clocks[STEP_END] > until or clocks[STEP_END] == NEVER:
                pass_time(t, until, True)
                return
            if t.settings[PER_STEP] and numbers[ROWS] >= len(t.row_starts):
                numbers[FULL] = 1
                return
            complete_step(t)
            completed = True
        happen(t, clocks[NOW], True)
        got = False
        record = 1 if numbers[PENDING] == 0 else 0
        if numbers[RUN_COUNT] + numbers[WAIT_COUNT] > 0:
            got = schedule(t, record)
            if not got:
                numbers[EMPTY_SCHEDULES] += 1
        elif completed and t.settings[ASYNC] and numbers[PENDING] == NONE:
            if numbers[NEXT_DUE] < t.settings[CONCURRENCY]:
                numbers[EMPTY_SCHEDULES] += 1  # vLLM asks once more when its pipeline runs dry
        if numbers[PENDING] != NONE:
            start_step(t, numbers[PENDING])
            numbers[PENDING] = record if got else NONE
        elif got and t.settings[ASYNC]:
            numbers[PENDING] = record
        elif got:
            start_step(t, record)
        else:
            following = min(next_arrival(t), next_cancel(t))
            if following > until or following == NEVER:
                if following == NEVER and numbers[WAIT_COUNT] > 0:
                    numbers[STUCK] = 1
                pass_time(t, until, True)
                return
            pass_time(t, following, False)
            clocks[NOW] = following
