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
    CONCURRENCY,
    DEFERRED_COUNT,
    EMPTY_SCHEDULES,
    EXECUTING,
    FULL,
    HINGE,
    NEVER,
    NEXT_DUE,
    NONE,
    NOW,
    PAIRS,
    PENDING,
    PER_STEP,
    RECORDS,
    ROW_COUNT,
    ROWS,
    RUN_COUNT,
    S_DECODE,
    S_KV,
    S_PREFILL,
    SCRAPE_COUNT,
    SCRAPE_TIMES,
    SCRAPES,
    SETTLED,
    STEP_END,
    STEP_NUMBERS,
    STEP_START,
    STUCK,
    WAIT_COUNT,
)
from driftwatch.simulate.kernel_outputs import (
    apply,
    gauge,
    happen,
    next_arrival,
    next_cancel,
    pass_time,
)
from driftwatch.simulate.kernel_schedule import schedule
from driftwatch.simulate.kernel_steady import decode_on, disturbed, padded, write_row


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
    f[STEP_END] = f[NOW] + disturbed(m, f, f[NOW], seconds)


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


def next_event(m: Any, f: Any) -> float:
    """The soonest arrival, cancellation or scrape; NEVER."""
    soonest = min(next_arrival(m, f), next_cancel(m, f))
    if m[SCRAPES] < m[SCRAPE_COUNT]:
        soonest = min(soonest, f[m[SCRAPE_TIMES] + m[SCRAPES]])
    return float(soonest)


def advance(m: Any, f: Any, until: float) -> None:
    """Run until a time (what ends at it included), until nothing is left, or until a table is full.

    ``m[FULL]``: read the per-step table, reset ``m[ROWS]`` and call again.
    ``m[STUCK]``: requests wait that can never be admitted, or preempt each other for ever.
    """
    m[FULL] = 0
    m[SETTLED] = 0
    while True:
        completed = False
        if m[EXECUTING] != NONE:
            if m[SETTLED]:
                event = next_event(m, f)
                if f[STEP_END] < event:
                    decode_on(m, f, until, event)
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
        m[SETTLED] = 0
        record = 1 if m[PENDING] == 0 else 0
        if m[RUN_COUNT] + m[WAIT_COUNT] > 0:
            got = schedule(m, f, record)
            if not got:
                m[EMPTY_SCHEDULES] += 1
            if m[STUCK]:
                return
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
            # who gave up during the last step: vLLM steps once more for them, and tells its gauges
            gauge(m, m[WAIT_COUNT], m[DEFERRED_COUNT])
            following = min(next_arrival(m, f), next_cancel(m, f))
            if following > until or following == NEVER:
                if following == NEVER and m[WAIT_COUNT] > 0:
                    m[STUCK] = 1
                pass_time(m, f, until, True)
                return
            pass_time(m, f, following, False)
            f[NOW] = following
