"""The engine's loop: schedule, run, apply, in virtual time.

Asynchronous scheduling as vLLM's batch queue of two: step k + 1 is scheduled when step k starts; it
sees the arrivals until then and not the output of step k.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from driftwatch.simulate.kernel.compiling import borrow, cached, compiled
from driftwatch.simulate.kernel.outputs import (
    apply,
    gauge,
    happen,
    next_arrival,
    next_cancel,
    pass_time,
)
from driftwatch.simulate.kernel.schedule import schedule
from driftwatch.simulate.kernel.steps import decode_on, start_step, write_row
from driftwatch.simulate.kernel.tables import NEVER, NOBODY_ADMITTED, NONE


@compiled
def complete_step(e: Any, t: Any) -> None:
    """The step that runs ends: what happened meanwhile, then its outputs."""
    record = e.executing
    pass_time(e, t, np.nextafter(e.step_end, -NEVER))  # what comes at its end, comes after it
    e.now = e.step_end
    if e.per_step:
        write_row(e, t, record)
    apply(e, t, record)
    e.executing = NONE


@compiled
def next_event(e: Any, t: Any) -> float:
    """The soonest arrival, cancellation or scrape; NEVER."""
    soonest = min(next_arrival(e, t), next_cancel(e, t))
    if e.scrapes < len(t.scrape_times):
        soonest = min(soonest, t.scrape_times[e.scrapes])
    return soonest


@cached
def advance(tables: Any, until: float) -> None:
    """Run until a time (what ends at it included), until nothing is left, or until a table is full.

    ``full``: read ``rows``, set the engine's ``rows`` to 0 and call again.
    ``stuck``: requests wait that can never be admitted, or preempt each other for ever.
    """
    t = borrow(tables)
    e = t.engine[0]
    e.full = 0
    e.settled = 0
    while True:
        completed = False
        if e.executing != NONE:
            if e.settled:
                event = next_event(e, t)
                if e.step_end < event:
                    decode_on(e, t, until, event)
            if e.step_end > until or e.step_end == NEVER:
                pass_time(e, t, until)
                return
            if e.per_step and e.rows >= len(t.rows):
                e.full = 1
                return
            complete_step(e, t)
            completed = True
        happen(e, t, e.now)
        scheduled = False
        e.settled = 0
        record = 1 if e.pending == 0 else 0
        if e.run_count + e.wait_count > 0:
            scheduled = schedule(e, t, record)
            if not scheduled:
                t.counters[0].empty_schedules += 1
            if e.stuck:
                return
        elif completed and e.asynchronous and e.pending == NONE and e.next_due < e.concurrency:
            # vLLM asks once more when its pipeline runs dry
            t.counters[0].empty_schedules += 1
        if e.pending != NONE:
            start_step(e, t, e.pending)
            e.pending = record if scheduled else NONE
        elif scheduled and e.asynchronous:
            e.pending = record
        elif scheduled:
            start_step(e, t, record)
        else:
            # vLLM steps once more for who gave up during the last step, and publishes its gauges
            gauge(e, t, e.wait_count, e.deferred_count)
            following = min(next_arrival(e, t), next_cancel(e, t))
            if following > until or following == NEVER:
                if following == NEVER and e.wait_count > 0:
                    e.stuck = NOBODY_ADMITTED
                pass_time(e, t, until)
                return
            pass_time(e, t, np.nextafter(following, -NEVER))
            e.now = following
