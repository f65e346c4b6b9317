"""Events between schedule calls: arrivals, cancellations, the outputs of a step, scrapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from driftwatch.simulate.kernel.blocks import blocks_of, release, remember
from driftwatch.simulate.kernel.compiling import compiled
from driftwatch.simulate.kernel.decoding import counted_by_steps, delivered, leave_lazy
from driftwatch.simulate.kernel.lists import heap_drop, heap_push, remove, stop_waiting, wait
from driftwatch.simulate.kernel.tables import (
    CLOSING,
    EXPLICIT,
    FINISHED,
    IDENTIFY_BLOCKS,
    LAZY,
    NEVER,
    NO_KIND,
    NONE,
    PREEMPTED,
    REJECTED,
    RUNNING,
    TIMED_OUT,
    WAITING,
)


@compiled
def next_arrival(e: Any, t: Any) -> float:
    """When the next request arrives; NEVER = none."""
    due = NEVER
    if e.next_due < e.concurrency:
        due = t.requests[e.next_due].arrival
    if e.next_released < e.released:
        due = min(due, t.requests[e.next_released].arrival)
    return due


@compiled
def next_cancel(e: Any, t: Any) -> float:
    """When the next client of a request inside gives up; NEVER = none."""
    while e.cancelling > 0:
        status = t.requests[t.cancels[0].id].status
        if status in (WAITING, RUNNING, PREEMPTED):
            return t.cancels[0].first
        heap_drop(t.cancels, e.cancelling)
        e.cancelling -= 1
    return NEVER


@compiled
def end_request(e: Any, t: Any, r: int, time: float) -> None:
    """End a request; a closed loop sends the next one at once, and moves its cancellation too."""
    request = t.requests[r]
    request.kind = NO_KIND
    request.end = time
    e.progress_step = e.step
    if e.released < len(t.requests):
        following = t.requests[e.released]
        following.cancel += time
        following.arrival = time
        e.released += 1


@compiled
def arrive(e: Any, t: Any, r: int) -> None:
    """Let a request arrive: it waits, or the queue limits reject it."""
    request = t.requests[r]
    e.progress_step = e.step
    if request.arrival + e.timeout_seconds < request.cancel:
        request.cancel = request.arrival + e.timeout_seconds
        request.cancel_status = TIMED_OUT
    request.cancel = max(request.cancel, request.arrival)
    if e.live >= e.max_num_queued_reqs:  # counted under one reason, as in vLLM's async_llm.py
        t.counters[0].rejected_reqs += 1
        request.status = REJECTED
    elif e.prefill_prompts >= e.max_num_queued_tokens:
        t.counters[0].rejected_tokens += 1
        request.status = REJECTED
    if request.status == REJECTED:
        end_request(e, t, r, request.arrival)
        return
    e.live += 1
    e.live_tokens += request.target
    e.prefill_prompts += request.prompt
    request.status = WAITING
    wait(e, t, r, np.int64(NONE))
    if request.cancel < NEVER:
        heap_push(t.cancels, e.cancelling, request.cancel, 0.0, r)
        e.cancelling += 1


@compiled
def leave(e: Any, t: Any, r: int, time: float, status: int) -> None:
    """Remove a request, and free its blocks."""
    request = t.requests[r]
    if request.status == RUNNING:
        release(e, t, r, blocks_of(request.computed, e.block_size))
        remove(t.running, r)
        e.run_count -= 1
    else:
        stop_waiting(e, t, r)
    e.live -= 1
    e.live_tokens -= request.target
    if request.first_token == NEVER:
        e.prefill_prompts -= request.prompt
    end_request(e, t, r, time)
    request.status = status


@compiled
def cancel(e: Any, t: Any, r: int, time: float) -> None:
    """Cancel a request: tokens of the steps in flight do not count."""
    request = t.requests[r]
    output = delivered(e, t, r)
    lazy = request.kind == LAZY
    closing = request.kind == CLOSING or request.status == PREEMPTED  # or was until preempted
    if lazy or (closing and request.final_step != NONE):
        for record in range(2):
            step = t.steps[record]
            if (
                (record == e.executing or record == e.pending)
                and request.join_step <= step.index
                and (lazy or request.final_step >= step.index)
            ):
                step.lazy -= 1
    if lazy:
        leave_lazy(e, t, r)
    elif request.kind == EXPLICIT:
        staying = 0
        for i in range(e.explicits):
            if t.explicit[i] != r:
                t.explicit[staying] = t.explicit[i]
                staying += 1
        e.explicits = staying
    request.output = output
    leave(e, t, r, time, np.int64(request.cancel_status))


@compiled
def handle_events(e: Any, t: Any, until: float) -> None:
    """Arrivals and cancellations up to a time (included), in their order."""
    while True:
        arriving = next_arrival(e, t)
        leaving = next_cancel(e, t)
        soonest = min(arriving, leaving)
        if soonest > until or soonest == NEVER:
            return
        if leaving < arriving:
            cancel(e, t, t.cancels[0].id, leaving)
        elif e.next_due < e.concurrency and t.requests[e.next_due].arrival == arriving:
            e.next_due += 1
            arrive(e, t, e.next_due - 1)
        else:
            e.next_released += 1
            arrive(e, t, e.next_released - 1)


@compiled
def pass_time(e: Any, t: Any, until: float) -> None:
    """Scrapes, arrivals and cancellations up to a time (included)."""
    while e.scrapes < len(t.scrape_times):
        time = t.scrape_times[e.scrapes]
        if time > until:
            break
        handle_events(e, t, time)
        t.scraped[e.scrapes] = t.counters[0]
        for i in range(len(t.itl_counts)):
            t.scraped_itl[e.scrapes, i] = t.itl_counts[i]
        for i in range(len(t.iteration_counts)):
            t.scraped_iteration[e.scrapes, i] = t.iteration_counts[i]
        e.scrapes += 1
    handle_events(e, t, until)


@compiled
def place_in(edges: Any, value: float) -> int:
    """Index of the first edge that a value does not exceed."""
    low = 0
    high = len(edges)
    while low < high:
        middle = (low + high) // 2
        if edges[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def observe_itl(t: Any, seconds: float, tokens: int) -> None:
    """Observe the inter-token latency of this many tokens."""
    t.counters[0].itl_seconds_count += tokens
    t.counters[0].itl_seconds_sum += seconds * tokens
    t.itl_counts[place_in(t.itl_edges, seconds)] += tokens


@compiled
def receive(e: Any, t: Any, r: int) -> int:
    """Give an explicit request a token; the prompt tokens to count with its first one."""
    request = t.requests[r]
    booked = 0
    if request.first_token == NEVER:
        request.first_token = e.now
        booked = request.prompt - request.cached
        t.counters[0].prompt_tokens += request.prompt
        t.counters[0].prompt_tokens_computed += booked
        e.prefill_prompts -= request.prompt
    else:
        observe_itl(t, e.now - request.last_token, np.int64(1))
    request.last_token = e.now
    return booked


@compiled
def apply(e: Any, t: Any, record: int) -> None:
    """Apply the outputs of a step: tokens, ends, metrics."""
    step = t.steps[record]
    counters = t.counters[0]
    tokens = step.lazy
    prompts = 0
    if tokens > 0:
        observe_itl(t, e.now - e.last_output, tokens)
    ending = np.int64(0)
    for i in range(step.tokens):
        r = t.tokens[record, i]
        request = t.requests[r]
        if request.status != RUNNING and request.status != PREEMPTED:
            continue
        tokens += 1
        prompts += receive(e, t, r)
        if counted_by_steps(t, r):
            continue  # it has gone on decoding
        request.output += 1
        if request.status == RUNNING and e.async_scheduling:
            request.ahead -= 1
            remember(e, t, r, request.computed - request.ahead)
        if request.prompt + request.output >= request.target:
            t.order[ending] = r
            ending += 1
    for i in range(step.ends):
        r = t.ends[record, i]
        request = t.requests[r]
        if request.status != RUNNING and request.status != PREEMPTED:
            continue
        request.output = request.target - request.prompt
        if request.status == RUNNING and e.async_scheduling:
            remember(e, t, r, np.int64(request.computed))
        t.order[ending] = r
        ending += 1
    finish(e, t, ending)
    e.applied = step.index
    counters.steps_all += 1
    counters.prefill_tokens_total += step.prefill_tokens
    counters.decode_seqs_total += step.decode_seqs
    counters.kv_tokens_read_total += step.kv_tokens_read
    counters.generation_tokens += tokens
    if tokens > 0:
        counters.steps_observed += 1
        counters.iteration_tokens_sum += tokens + prompts
        t.iteration_counts[place_in(t.iteration_edges, float(tokens + prompts))] += 1
    counters.busy_seconds += e.now - step.start_seconds
    e.last_output = e.now
    set_gauges(e, t, e.left_waiting, e.left_deferred)


@compiled
def set_gauges(e: Any, t: Any, waiting: int, deferred: int) -> None:
    """Set the gauges: running, waiting and deferred requests, free blocks."""
    counters = t.counters[0]
    counters.running = e.run_count
    counters.waiting_deferred = deferred
    counters.waiting_capacity = waiting - deferred
    counters.free_blocks = e.free


@compiled
def finish(e: Any, t: Any, ending: int) -> None:
    """Remove requests that got their last token, in the order of the running list.

    The order decides which of their blocks are overwritten first.
    """
    ordered = ending > 1 and e.cache_mode == IDENTIFY_BLOCKS
    for i in range(ending):
        r = t.order[i]
        if ordered and t.requests[r].status == RUNNING:
            t.requests[r].chosen = NONE
        else:
            leave(e, t, r, e.now, np.int64(FINISHED))
    r = t.running[NONE].next if ordered else np.int64(NONE)
    while r != NONE:
        following = t.running[r].next
        if t.requests[r].chosen == NONE:
            t.requests[r].chosen = 0
            leave(e, t, r, e.now, np.int64(FINISHED))
        r = following
