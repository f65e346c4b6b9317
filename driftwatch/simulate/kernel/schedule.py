"""One schedule call of vLLM's V1 scheduler (``v1/core/sched/scheduler.py``).

A step with enough budget and blocks for all requests touches only the EXPLICIT ones (see
``decoding``). Any other step goes request by request, in order, as in vLLM.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from driftwatch.simulate.kernel.blocks import (
    blocks_of,
    grow,
    look_up,
    release,
    remember,
    take_hits,
)
from driftwatch.simulate.kernel.compiling import compiled
from driftwatch.simulate.kernel.decoding import (
    advance_lazy,
    close,
    commit,
    computed_at,
    counted_by_steps,
    delivered,
    stop_decoding,
)
from driftwatch.simulate.kernel.lists import (
    drop_first,
    first_waiting,
    insert,
    over_loras,
    remove,
    set_deferred,
    stop_waiting,
    use_adapter,
    wait,
)
from driftwatch.simulate.kernel.tables import (
    CLOSING,
    ENDLESS,
    EXPLICIT,
    IDENTIFY_BLOCKS,
    LAZY,
    NEVER,
    NO_KIND,
    NONE,
    PREEMPTED,
    PREEMPTING_FOR_EVER,
    RUNNING,
)

# Steps without an arrival or an end, beyond one for each token of the requests inside, after which
# the engine counts as stuck.
PATIENCE_STEPS = 1000


@compiled
def choose_tokens(e: Any, t: Any, threshold: int) -> int:
    """Choose tokens for each explicit request, after the LAZY ones; the budget left, or -1.

    -1: the budget is too small, and requests other than the last explicit ones may get less.
    """
    budget = e.max_num_batched_tokens - e.lazy_seqs
    wanted = 0
    for i in range(e.explicits):
        request = t.requests[t.explicit[i]]
        n = request.prompt + request.output + request.ahead - request.computed
        if threshold > 0 and n > threshold:
            n = threshold
        request.chosen = n
        wanted += n
    if wanted > budget:
        at = t.running[NONE].previous
        last = e.explicits
        while last > 0 and at == t.explicit[last - 1]:
            at = t.running[at].previous
            last -= 1
        before = 0
        for i in range(last):
            before += t.requests[t.explicit[i]].chosen
        if before > budget:
            return -1
    for i in range(e.explicits):
        request = t.requests[t.explicit[i]]
        request.chosen = min(request.chosen, budget)
        budget -= request.chosen
    return budget


@compiled
def schedule_together(e: Any, t: Any, record: int, threshold: int) -> int:
    """Phase 1 with enough budget and blocks for all; the budget left, -1 = there may be too few."""
    if e.max_loras < ENDLESS:
        return -1
    budget = choose_tokens(e, t, threshold)
    if budget < 0:
        return -1
    need = t.class_counts[(-e.step) % e.block_size]
    for i in range(e.explicits):
        request = t.requests[t.explicit[i]]
        computed = request.computed
        need += blocks_of(computed + request.chosen, e.block_size)
        need -= blocks_of(computed, e.block_size)
    if need > e.free:
        return -1
    advance_lazy(e, t, record)
    staying = 0
    for i in range(e.explicits):
        r = t.explicit[i]
        request = t.requests[r]
        n = np.int64(request.chosen)
        request.chosen = 0
        if n > 0:
            computed = request.computed
            own_blocks = blocks_of(computed, e.block_size)
            grow(e, t, r, own_blocks, blocks_of(computed + n, e.block_size))
            remember(e, t, r, min(computed + n, request.prompt + request.output))
            commit(e, t, record, r, n)
        if request.kind == EXPLICIT:
            t.explicit[staying] = r
            staying += 1
    e.explicits = staying
    return budget


@compiled
def preempt(e: Any, t: Any, r: int) -> None:
    """Free a running request whole and put it back to the front of the queue.

    Two requests of one priority and arrival can preempt each other for ever. A step computes at
    least one token: without preemption all end within as many steps as they have tokens.
    """
    request = t.requests[r]
    if request.kind == CLOSING and counted_by_steps(t, r):
        request.output = delivered(e, t, r)
    else:
        request.final_step = NONE  # no step in flight holds its last token
    release(e, t, r, blocks_of(request.computed + request.chosen, e.block_size))
    remove(t.running, r)
    e.run_count -= 1
    request.status = PREEMPTED
    request.kind = NO_KIND
    request.computed = 0
    request.ahead = 0
    request.chosen = 0
    request.preemptions += 1
    t.counters[0].preemptions += 1
    wait(e, t, r, t.waiting[NONE].next)
    if e.step - e.progress_step > e.live_tokens + PATIENCE_STEPS:
        e.stuck = PREEMPTING_FOR_EVER


@compiled
def victim_of(e: Any, t: Any, count: int) -> int:
    """Place in the running list of the next request to preempt.

    The last or, by the priority policy, vLLM's max over (priority, arrival).
    """
    if not e.by_priority:
        return count - 1
    victim = 0
    for i in range(1, count):
        a, b = t.requests[t.order[i]], t.requests[t.order[victim]]
        if a.priority > b.priority or (a.priority == b.priority and a.arrival > b.arrival):
            victim = i
    return victim


@compiled
def list_running(e: Any, t: Any) -> int:
    """Write the running list and its kinds into the scratch tables; the number of requests."""
    count = np.int64(0)
    r = t.running[NONE].next
    while r != NONE:
        t.order[count] = r
        t.kinds[count] = t.requests[r].kind
        count += 1
        t.requests[r].chosen = 0
        r = t.running[r].next
    return count


@compiled
def schedule_one_by_one(e: Any, t: Any, record: int, threshold: int) -> int:
    """Phase 1 in vLLM's own order, with preemption; the budget left.

    Requests that go on decoding stay LAZY; only preempted and left-out ones are written.
    """
    count = list_running(e, t)
    budget = e.max_num_batched_tokens
    at = np.int64(0)
    while at < count and budget > 0:
        r = t.order[at]
        request = t.requests[r]
        if t.kinds[at] == LAZY:
            computed = computed_at(e, t, r)
            n = 1
            final = computed + 1 - e.async_scheduling  # tokens whose text is there
        else:
            computed = request.computed
            final = request.prompt + request.output
            n = final + request.ahead - computed
            if threshold > 0 and n > threshold:
                n = threshold
            n = min(n, budget, e.max_model_len - computed - 1)
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
    """Let the step compute the chosen tokens of the first ``count`` of the running list."""
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
            step.decode_seqs += 1
            step.kv_tokens_read += computed
            step.lazy += 1
            if computed >= request.target - 1:
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
    e.lazy_kv += staying  # the next step reads one token more of each remaining request


@compiled
def admit(e: Any, t: Any, record: int, budget: int, threshold: int) -> None:
    """Phase 2: admit waiting requests in order, until one does not fit."""
    aside = np.int64(NONE)  # by priority: list of those set aside, to be put back
    r = first_waiting(e, t)
    while r != NONE and budget > 0 and e.run_count < e.max_num_active_seqs:
        request = t.requests[r]
        following = t.waiting[r].next
        if over_loras(e, t, r):
            set_deferred(e, t, r, np.int64(1))
            if e.by_priority:
                drop_first(e, t)
                t.waiting[r].next = aside
                aside = r
                following = first_waiting(e, t)
            r = following
            continue
        set_deferred(e, t, r, np.int64(0))
        n = admit_one(e, t, r, budget, threshold)
        if n == 0:
            break
        commit(e, t, record, r, n)
        if request.kind == EXPLICIT:
            t.explicit[e.explicits] = r
            e.explicits += 1
        budget -= n
        r = first_waiting(e, t) if e.by_priority else following
    while aside != NONE:
        following = t.waiting[aside].next
        e.wait_count -= 1
        wait(e, t, aside, np.int64(NONE))
        aside = following


@compiled
def admit_one(e: Any, t: Any, r: int, budget: int, threshold: int) -> int:
    """Move a waiting request to the running list; its tokens, 0 = it does not fit."""
    request = t.requests[r]
    tokens = request.prompt + request.output
    whole = blocks_of(tokens, e.block_size)
    spare = e.watermark_blocks if e.run_count > 0 else 0
    if request.shared_blocks == 0 and e.scheduler_reserve_full_isl and whole + spare > e.free:
        return 0  # the blocks it could hit are free: hits would take as many
    hits, reused = look_up(e, t, r, tokens)
    hit = hits * e.block_size
    n = tokens - hit
    if threshold > 0 and n > threshold:
        n = threshold
    if not e.enable_chunked_prefill and n > budget:
        return 0
    n = min(n, budget)
    reserved = reused - hits + spare
    wanted = blocks_of(hit + n, e.block_size)
    if wanted + reserved > e.free or (e.scheduler_reserve_full_isl and whole + reserved > e.free):
        return 0
    if e.by_priority:
        drop_first(e, t)
    stop_waiting(e, t, r)
    insert(t.running, r, np.int64(NONE))
    e.run_count += 1
    request.status = RUNNING
    request.computed = hit
    take_hits(e, t, r, hits, reused)
    grow(e, t, r, hits, wanted)
    remember(e, t, r, hit + n)
    if request.preemptions == 0 and e.enable_prefix_caching:
        t.counters[0].prefix_queries_tokens += tokens
        t.counters[0].prefix_hits_tokens += hit
    if request.first_scheduled == NEVER:
        request.first_scheduled = e.now
        request.cached = hit
    use_adapter(e, t, r)
    return n


@compiled
def only_decodes(e: Any, t: Any, record: int) -> bool:
    """Whether a step only brings each LAZY request a token that is not its last."""
    step = t.steps[record]
    return (
        e.lazy_seqs > 0
        and step.lazy == e.lazy_seqs
        and step.decode_seqs == e.lazy_seqs
        and step.prefill_tokens == 0
        and step.tokens == 0
        and step.ends == 0
    )


@compiled
def schedule(e: Any, t: Any, record: int) -> bool:
    """One schedule call, written into a step record; whether it scheduled anything."""
    t.steps[record] = t.steps[2]
    step = t.steps[record]
    step.index = e.step
    e.adapters_in_step = 0
    inside = e.run_count + e.wait_count
    threshold = e.long_prefill_token_threshold if inside > 1 else 0
    if threshold > 0 and e.long_prefill_token_threshold_adaptive:
        threshold = max(threshold, e.max_num_batched_tokens // inside)
    budget = schedule_together(e, t, record, threshold)
    if budget < 0:
        budget = schedule_one_by_one(e, t, record, threshold)
    if step.preempted == 0 and e.wait_count > 0:
        admit(e, t, record, budget, threshold)
    step.running = e.run_count
    step.waiting = e.wait_count
    step.free_blocks = e.free
    e.left_waiting = e.wait_count
    e.left_deferred = e.deferred_count
    if step.prefill_tokens + step.decode_seqs == 0:
        return False
    e.step += 1
    full = e.run_count >= e.max_num_active_seqs
    # With identified blocks an eviction may change what a waiting request would hit.
    closed = e.wait_count == 0 or full or e.cache_mode != IDENTIFY_BLOCKS
    if closed and e.max_loras == ENDLESS and step.preempted == 0 and e.explicits == 0:
        e.settled = only_decodes(e, t, record)
    return True
