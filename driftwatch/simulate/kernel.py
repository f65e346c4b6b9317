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
    CAPTURE_COUNT,
    CAPTURES,
    CONCURRENCY,
    EMPTY_SCHEDULES,
    EXECUTING,
    FACTOR_AT,
    FACTOR_COUNT,
    FACTOR_TIMES,
    FACTORS,
    FULL,
    HINGE,
    JITTER,
    JITTER_COUNT,
    NEVER,
    NEXT_DUE,
    NONE,
    NOW,
    PAIRS,
    PENDING,
    PER_STEP,
    RANDOM_1,
    RANDOM_2,
    RECORDS,
    ROW_COUNT,
    ROW_ENDS,
    ROW_NUMBERS,
    ROW_STARTS,
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
    STALL_COUNT,
    STALL_LENGTHS,
    STALL_TIMES,
    STEP_END,
    STEP_NUMBERS,
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


def padded(m: Any, f: Any, decode_seqs: int) -> int:
    """Decoding requests as a CUDA graph runs them: up to the next captured size."""
    low = 0
    high = m[CAPTURE_COUNT]
    while low < high:
        middle = (low + high) // 2
        if m[m[CAPTURES] + middle] < decode_seqs:
            low = middle + 1
        else:
            high = middle
    if low < m[CAPTURE_COUNT]:
        return int(m[m[CAPTURES] + low])
    return decode_seqs


def draw(m: Any, f: Any) -> int:
    """Next number of L'Ecuyer's combined generator (CACM 31(6), 1988), below 2147483562."""
    m[RANDOM_1] = m[RANDOM_1] * 40014 % 2147483563
    m[RANDOM_2] = m[RANDOM_2] * 40692 % 2147483399
    drawn = m[RANDOM_1] - m[RANDOM_2]
    if drawn < 1:
        drawn += 2147483562
    return int(drawn - 1)


def disturbed(m: Any, f: Any, seconds: float) -> float:
    """A step's time with the wander factor of its start, jitter, and the stalls that hit it."""
    start = f[NOW]
    while m[FACTOR_AT] < m[FACTOR_COUNT] and f[m[FACTOR_TIMES] + m[FACTOR_AT]] <= start:
        m[FACTOR_AT] += 1
    if m[FACTOR_AT] > 0:
        seconds *= f[m[FACTORS] + m[FACTOR_AT] - 1]
    if m[JITTER_COUNT] > 0:
        seconds *= f[m[JITTER] + draw(m, f) % m[JITTER_COUNT]]
    while m[STALL_AT] < m[STALL_COUNT] and f[m[STALL_TIMES] + m[STALL_AT]] < start + seconds:
        seconds += f[m[STALL_LENGTHS] + m[STALL_AT]]
        m[STALL_AT] += 1
    return seconds


def start_step(m: Any, f: Any, record: int) -> None:
    """A scheduled step starts now."""
    step = RECORDS + record * STEP_NUMBERS
    decoding = m[step + S_DECODE]
    if m[step + S_PREFILL] == 0 and m[CAPTURE_COUNT] > 0:
        decoding = padded(m, f, decoding)
    seconds = (
        f[C0]
        + f[C1] * max(m[step + S_PREFILL] - m[HINGE], 0)
        + f[C2] * decoding
        + f[C3] * m[step + S_KV]
        + f[C4] * f[PAIRS + record]
    )
    m[EXECUTING] = record
    f[STEP_START] = f[NOW]
    f[STEP_END] = f[NOW] + disturbed(m, f, seconds)


def write_row(m: Any, f: Any, record: int) -> None:
    """One row of the per-step table: what the schedule call left behind."""
    step = RECORDS + record * STEP_NUMBERS
    at = m[ROWS]
    f[m[ROW_STARTS] + at] = f[STEP_START]
    f[m[ROW_ENDS] + at] = f[STEP_END]
    row = m[ROW_NUMBERS] + 7 * at
    m[row] = m[step + S_PREFILL]
    m[row + 1] = m[step + S_DECODE]
    m[row + 2] = m[step + S_KV]
    m[row + 3] = m[step + S_RUNNING]
    m[row + 4] = m[step + S_WAITING]
    m[row + 5] = m[step + S_PREEMPTED]
    m[row + 6] = m[step + S_FREE]
    m[ROWS] += 1


def complete_step(m: Any, f: Any) -> None:
    """The step that runs ends: what happened meanwhile, then its outputs."""
    record = m[EXECUTING]
    end = f[STEP_END]
    pass_time(m, f, end, False)
    f[NOW] = end
    if m[PER_STEP]:
        write_row(m, f, record)
    apply(m, f, record)
    m[EXECUTING] = NONE


def advance(m: Any, f: Any, until: float) -> None:
    """Run until a time (what ends at it included), until nothing is left, or until a table is full.

    ``m[FULL]``: read the per-step table, reset ``m[ROWS]`` and call again.
    ``m[STUCK]``: requests wait that can never be admitted.
    """
    m[FULL] = 0
    while True:
        completed = False
        if m[EXECUTING] != NONE:
            if f[STEP_END] > until or f[STEP_END] == NEVER:
                pass_time(m, f, until, True)
                return
            if m[PER_STEP] and m[ROWS] >= m[ROW_COUNT]:
                m[FULL] = 1
                return
            complete_step(m, f)
            completed = True
        happen(m, f, f[NOW], True)
        got = False
        record = 1 if m[PENDING] == 0 else 0
        if m[RUN_COUNT] + m[WAIT_COUNT] > 0:
            got = schedule(m, f, record)
            if not got:
                m[EMPTY_SCHEDULES] += 1
        elif completed and m[ASYNC] and m[PENDING] == NONE and m[NEXT_DUE] < m[CONCURRENCY]:
            m[EMPTY_SCHEDULES] += 1  # vLLM asks once more when its pipeline runs dry
        if m[PENDING] != NONE:
            start_step(m, f, m[PENDING])
            m[PENDING] = record if got else NONE
        elif got and m[ASYNC]:
            m[PENDING] = record
        elif got:
            start_step(m, f, record)
        else:
            following = min(next_arrival(m, f), next_cancel(m, f))
            if following > until or following == NEVER:
                if following == NEVER and m[WAIT_COUNT] > 0:
                    m[STUCK] = 1
                pass_time(m, f, until, True)
                return
            pass_time(m, f, following, False)
            f[NOW] = following
