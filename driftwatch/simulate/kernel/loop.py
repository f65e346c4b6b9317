"""The engine's loop: schedule, run, apply, in virtual time.

Asynchronous scheduling is vLLM's batch queue of two: step k + 1 is scheduled when step k starts. It
sees the arrivals until then, but not the output of step k.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from driftwatch.simulate.kernel.compiling import borrow, cached, compiled
from driftwatch.simulate.kernel.events import (
    apply,
    handle_events,
    next_arrival,
    next_cancel,
    pass_time,
    place_in,
    set_gauges,
)
from driftwatch.simulate.kernel.schedule import only_decodes, schedule
from driftwatch.simulate.kernel.tables import IDENTIFY_BLOCKS, NEVER, NOBODY_ADMITTED, NONE


@compiled
def padded(t: Any, decode_seqs: int) -> int:
    """Decoding requests padded to the next captured size of a CUDA graph."""
    at = place_in(t.captures, float(decode_seqs))
    return t.captures[at] if at < len(t.captures) else decode_seqs


@compiled
def draw(e: Any) -> int:
    """Next number of L'Ecuyer's combined generator (CACM 31(6), 1988), below 2147483562."""
    e.random_1 = e.random_1 * 40014 % 2147483563
    e.random_2 = e.random_2 * 40692 % 2147483399
    number = e.random_1 - e.random_2
    if number < 1:
        number += 2147483562
    return number - 1


@compiled
def disturbed(e: Any, t: Any, start: float, seconds: float) -> float:
    """A step's time with the wander factor at its start, jitter, and its stalls."""
    while e.factor_at < len(t.factors) and t.factors[e.factor_at].seconds <= start:
        e.factor_at += 1
    if e.factor_at > 0:
        seconds *= t.factors[e.factor_at - 1].value
    if len(t.jitter) > 0:
        seconds *= t.jitter[draw(e) % len(t.jitter)]
    while e.stall_at < len(t.stalls) and t.stalls[e.stall_at].seconds < start + seconds:
        seconds += t.stalls[e.stall_at].value
        e.stall_at += 1
    return seconds


@compiled
def start_step(e: Any, t: Any, record: int) -> None:
    """Start a scheduled step now."""
    step = t.steps[record]
    decoding = padded(t, step.decode_seqs) if step.prefill_tokens == 0 else step.decode_seqs
    seconds = (
        e.c0_seconds
        + e.c1_seconds_per_prefill_token * max(step.prefill_tokens - e.hinge_tokens, 0)
        + e.c2_seconds_per_decode_seq * decoding
        + e.c3_seconds_per_kv_token * step.kv_tokens_read
        + e.c4_seconds_per_prefill_pair * step.pairs
    )
    e.executing = record
    step.start_seconds = e.now
    e.step_end = e.now + disturbed(e, t, e.now, seconds)


@compiled
def write_row(e: Any, t: Any, record: int, end: float) -> None:
    """Write one row of the per-step table."""
    t.steps[record].end_seconds = end
    t.rows[e.rows] = t.steps[record]
    e.rows += 1


@compiled
def decode_on(e: Any, t: Any, until: float, event: float) -> None:
    """Apply the running step, schedule and start the next, while all steps only decode.

    It does what ``schedule`` and ``apply`` do, in the same order of floating-point operations, with
    local names: a long run is mostly such steps. Called where no request can be admitted
    (``settled``); ``event`` is the soonest arrival, cancellation or scrape. Stops before the step
    that reaches it or ``until``, and before a step that brings a last token or lacks blocks.
    """
    record = e.executing
    ahead = e.async_scheduling
    if not only_decodes(e, t, record) or (ahead and e.pending == NONE):
        return
    counters = t.counters[0]
    identify = e.cache_mode == IDENTIFY_BLOCKS
    counts = t.class_counts
    index = e.step
    filling = (-index) % e.block_size
    seqs = e.lazy_seqs
    last = t.finishes[0].first if e.finishing > 0 else NEVER
    undisturbed = len(t.factors) + len(t.jitter) + len(t.stalls) == 0
    alone = e.c0_seconds + e.c2_seconds_per_decode_seq * padded(t, seqs)
    start = t.steps[record].start_seconds
    end = e.step_end
    below = NEVER  # lower edge of the last interval's bucket
    above = NEVER  # its upper edge
    bucket = 0
    free = e.free
    while end < event and end <= until and last > index:
        fills = counts[filling]
        if fills > e.free or (e.per_step and e.rows >= len(t.rows)):
            break
        if identify and (
            fills > 0 or (not ahead and counts[(filling + e.block_size - 1) % e.block_size] > 0)
        ):
            break
        step = t.steps[record]
        if e.per_step:
            step.start_seconds = start
            write_row(e, t, record, end)
        interval = end - e.last_output
        if not below < interval <= above:
            bucket = place_in(t.itl_edges, interval)
            below = t.itl_edges[bucket - 1] if bucket > 0 else -NEVER
            above = t.itl_edges[bucket] if bucket < len(t.itl_edges) else NEVER
        t.itl_counts[bucket] += seqs
        counters.itl_seconds_sum += interval * seqs
        counters.busy_seconds += end - start
        counters.kv_tokens_read_total += step.kv_tokens_read
        e.last_output = end
        free = e.free
        e.free -= fills
        step.index = index
        step.kv_tokens_read = e.lazy_kv
        step.running = e.run_count
        step.waiting = e.wait_count
        step.preempted = 0
        step.free_blocks = e.free
        e.lazy_kv += seqs
        index += 1
        filling = filling - 1 if filling > 0 else e.block_size - 1
        if ahead:
            record = 1 - record
        seconds = alone + e.c3_seconds_per_kv_token * t.steps[record].kv_tokens_read
        start = end
        end = start + (seconds if undisturbed else disturbed(e, t, start, seconds))
    if index == e.step:
        return
    e.executing = record
    if ahead:
        e.pending = 1 - record
    e.now = start
    t.steps[record].start_seconds = start
    e.step_end = end
    book_decodes(e, t, index - e.step)
    counters.free_blocks = free


@compiled
def book_decodes(e: Any, t: Any, steps: int) -> None:
    """Update gauges and counts after this many steps of ``decode_on``."""
    counters = t.counters[0]
    tokens = e.lazy_seqs * steps
    e.step += steps
    e.applied += steps
    set_gauges(e, t, e.wait_count, e.deferred_count)
    counters.itl_seconds_count += tokens
    counters.steps_all += steps
    counters.steps_observed += steps
    counters.decode_seqs_total += tokens
    counters.generation_tokens += tokens
    counters.iteration_tokens_sum += tokens
    t.iteration_counts[place_in(t.iteration_edges, float(e.lazy_seqs))] += steps


@compiled
def complete_step(e: Any, t: Any) -> None:
    """End the running step: first the events meanwhile, then its outputs."""
    record = e.executing
    pass_time(e, t, np.nextafter(e.step_end, -NEVER))  # events at its end come after it
    e.now = e.step_end
    if e.per_step:
        write_row(e, t, record, e.step_end)
    apply(e, t, record)
    e.executing = NONE


@compiled
def next_event(e: Any, t: Any) -> float:
    """The soonest arrival, cancellation or scrape; NEVER = none."""
    soonest = min(next_arrival(e, t), next_cancel(e, t))
    if e.scrapes < len(t.scrape_times):
        soonest = min(soonest, t.scrape_times[e.scrapes])
    return soonest


@cached
def advance(tables: Any, until: float) -> None:
    """Run until a time (with steps that end at it), until no request is left, or a table is full.

    ``full``: read ``rows``, set the engine's ``rows`` to 0 and call again.
    ``stuck``: waiting requests can never be admitted, or requests preempt each other for ever.
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
        handle_events(e, t, e.now)
        scheduled = False
        e.settled = 0
        record = 1 if e.pending == 0 else 0
        if e.run_count + e.wait_count > 0:
            scheduled = schedule(e, t, record)
            if not scheduled:
                t.counters[0].empty_schedules += 1
            if e.stuck:
                return
        elif completed and e.async_scheduling and e.pending == NONE and e.next_due < e.concurrency:
            # vLLM schedules once more when its pipeline runs dry
            t.counters[0].empty_schedules += 1
        if e.pending != NONE:
            start_step(e, t, e.pending)
            e.pending = record if scheduled else NONE
        elif scheduled and e.async_scheduling:
            e.pending = record
        elif scheduled:
            start_step(e, t, record)
        else:
            # vLLM steps once more for clients that gave up in the last step, and sets its gauges
            set_gauges(e, t, e.wait_count, e.deferred_count)
            following = min(next_arrival(e, t), next_cancel(e, t))
            if following > until or following == NEVER:
                if following == NEVER and e.wait_count > 0:
                    e.stuck = NOBODY_ADMITTED
                pass_time(e, t, until)
                return
            pass_time(e, t, np.nextafter(following, -NEVER))
            e.now = following
