"""Steps without budget or blocks for everybody: request by request, in order, as vLLM does it."""

from __future__ import annotations

from typing import Any

import numpy as np

from driftwatch.simulate.kernel.blocks import blocks_of, grow, release, remember
from driftwatch.simulate.kernel.compiling import compiled
from driftwatch.simulate.kernel.decoding import (
    close,
    commit,
    computed_at,
    counted_by_steps,
    delivered,
    leave_lazy,
    stop_decoding,
)
from driftwatch.simulate.kernel.queues import stop_running, use_adapter, wait_first
from driftwatch.simulate.kernel.tables import (
    CLOSING,
    EXPLICIT,
    LAZY,
    NO_KIND,
    NONE,
    PREEMPTED,
    PREEMPTING_FOR_EVER,
    RUNNING,
    WAITING,
)

WORTH_COUNTING = 1000  # steps without an end, before the tokens inside are counted


@compiled
def preempt(e: Any, t: Any, r: int) -> None:
    """Free a running request whole and put it back to the front of the queue."""
    request = t.requests[r]
    if request.kind == CLOSING and counted_by_steps(t, r):
        request.output = delivered(e, t, r)
    else:
        request.final_step = NONE  # no step in flight holds its last token
    release(e, t, r, blocks_of(request.computed + request.chosen, e.block_size))
    stop_running(e, t, r)
    request.status = PREEMPTED
    request.kind = NO_KIND
    request.computed = 0
    request.ahead = 0
    request.chosen = 0
    request.preemptions += 1
    t.counters[0].preemptions += 1
    wait_first(e, t, r)
    watch_progress(e, t)


@compiled
def watch_progress(e: Any, t: Any) -> None:
    """Notice requests that preempt each other and never end: two of one priority and arrival can.

    A step computes a token at least. Without preemption all end within as many steps as they have
    tokens, so that longer without an arrival or an end is no progress.
    """
    mark = e.ended + e.next_due + e.next_released
    if mark != e.mark:
        e.mark = mark
        e.mark_step = e.step
        e.mark_steps = 0
        return
    steps = e.step - e.mark_step
    if steps < WORTH_COUNTING:
        return
    if e.mark_steps == 0:
        for r in range(len(t.requests)):
            status = t.requests[r].status
            if status in (WAITING, RUNNING, PREEMPTED):
                e.mark_steps += t.requests[r].target
    if steps > e.mark_steps:
        e.stuck = PREEMPTING_FOR_EVER


@compiled
def comes_after(t: Any, r: int, other: int) -> bool:
    """Whether r is preempted before the other: vLLM's max over (priority, arrival)."""
    a, b = t.requests[r], t.requests[other]
    if a.priority != b.priority:
        return a.priority > b.priority
    return a.arrival > b.arrival


@compiled
def victim_of(e: Any, t: Any, count: int) -> int:
    """Place in the running list of the request that is preempted next."""
    victim = count - 1
    if e.by_priority:
        victim = 0
        for i in range(count):
            if comes_after(t, t.order[i], t.order[victim]):
                victim = i
    return victim


@compiled
def list_running(e: Any, t: Any) -> int:
    """Write the running list and its kinds into the scratch tables; how many run."""
    count = np.int64(0)
    r = e.run_head
    while r != NONE:
        t.order[count] = r
        t.kinds[count] = t.requests[r].kind
        count += 1
        t.requests[r].chosen = 0
        r = t.requests[r].run_next
    return count


@compiled
def schedule_one_by_one(e: Any, t: Any, record: int, threshold: int) -> int:
    """Phase 1 in vLLM's own order, with preemption; what is left of the budget.

    Whoever decodes on stays LAZY: of those only who is preempted or left out is written to.
    """
    count = list_running(e, t)
    budget = e.max_tokens
    at = np.int64(0)
    while at < count and budget > 0:
        r = t.order[at]
        request = t.requests[r]
        if t.kinds[at] == LAZY:
            computed = computed_at(e, t, r)
            n = 1
            final = computed + 1 - e.asynchronous  # tokens whose text is there
        else:
            computed = request.computed
            final = request.prompt + request.output
            n = final + request.ahead - computed
            if threshold > 0 and n > threshold:
                n = threshold
            n = min(n, budget, e.model_length - computed - 1)
            if n <= 0 or request.kind == CLOSING:
                at += 1
                continue
        own_blocks = blocks_of(computed, e.block_size)
        wanted = blocks_of(computed + n, e.block_size)
        victim = np.int64(NONE)
        while wanted - own_blocks > e.free and victim != r:
            place = victim_of(e, t, count)
            victim = t.order[place]
            budget += t.requests[victim].chosen
            if place < at:
                at -= 1
            if t.kinds[place] == LAZY:
                stop_decoding(e, t, victim)
            preempt(e, t, victim)
            t.steps[record].preempted += 1
            count -= 1
            for i in range(place, count):
                t.order[i] = t.order[i + 1]
                t.kinds[i] = t.kinds[i + 1]
        if victim == r:
            break
        grow(e, t, r, own_blocks, wanted)
        remember(e, t, r, min(computed + n, final))
        request.chosen = n
        budget -= n
        at += 1
    commit_in_order(e, t, record, count)
    return budget


@compiled
def commit_in_order(e: Any, t: Any, record: int, count: int) -> None:
    """What was chosen for the first ``count`` of the running list is computed in the step."""
    step = t.steps[record]
    staying = 0
    e.explicits = 0
    for i in range(count):
        r = t.order[i]
        request = t.requests[r]
        n = np.int64(request.chosen)
        request.chosen = 0
        if t.kinds[i] != LAZY:
            if n > 0:
                commit(e, t, record, r, n)
        elif n > 0:
            computed = computed_at(e, t, r) + 1
            step.decode += 1
            step.kv += computed
            step.lazy += 1
            if computed >= request.target - 1:
                leave_lazy(e, t, r)
                request.computed = computed
                close(e, t, record, r)
            else:
                staying += 1
        else:
            stop_decoding(e, t, r)
            request.kind = EXPLICIT
        if request.kind == EXPLICIT:
            t.explicit[e.explicits] = r
            e.explicits += 1
        if n > 0:
            use_adapter(e, t, r)
    e.lazy_kv += staying  # the next step reads one token more of each that stays
