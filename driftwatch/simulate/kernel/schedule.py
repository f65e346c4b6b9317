"""One schedule call of vLLM's V1 scheduler (``v1/core/sched/scheduler.py``).

A step in which budget and blocks suffice for everybody costs the EXPLICIT requests only (see
``decoding``). Any other step is done request by request (``one_by_one``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from driftwatch.simulate.kernel.blocks import blocks_of, grow, look_up, remember, take_hits
from driftwatch.simulate.kernel.compiling import compiled
from driftwatch.simulate.kernel.decoding import advance_lazy, commit
from driftwatch.simulate.kernel.one_by_one import schedule_one_by_one
from driftwatch.simulate.kernel.queues import (
    defer,
    drop_first,
    first_waiting,
    over_loras,
    recall,
    run,
    stop_waiting,
    use_adapter,
    wait_first,
)
from driftwatch.simulate.kernel.tables import EXPLICIT, IDENTIFY_BLOCKS, NEVER, NONE, RUNNING


@compiled
def choose_tokens(e: Any, t: Any, threshold: int) -> int:
    """Tokens for each explicit request in order, the LAZY ones first; what is left, or -1.

    -1: order decides who goes short, and others than the last explicit ones may.
    """
    budget = e.max_tokens - e.lazy_seqs
    wanted = 0
    for i in range(e.explicits):
        request = t.requests[t.explicit[i]]
        n = request.prompt + request.output + request.ahead - request.computed
        if threshold > 0 and n > threshold:
            n = threshold
        request.chosen = n
        wanted += n
    if wanted > budget:
        at = e.run_tail
        last = e.explicits
        while last > 0 and at == t.explicit[last - 1]:
            at = t.requests[at].run_previous
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
    """Phase 1 where budget and blocks suffice for all, and what is left; -1 where they may not."""
    if e.loras > 0:
        return -1
    budget = choose_tokens(e, t, threshold)
    if budget < 0:
        return -1
    need = t.classes[(-e.step) % e.block_size].count
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
def admit(e: Any, t: Any, record: int, budget: int, threshold: int) -> None:
    """Phase 2: waiting requests in order, until one does not fit."""
    aside = np.int64(NONE)  # by priority: set aside, to go back
    r = first_waiting(e, t)
    while r != NONE and budget > 0 and e.run_count < e.active:
        request = t.requests[r]
        following = request.wait_next
        if over_loras(e, t, r):
            defer(e, t, r)
            if e.by_priority:
                drop_first(e, t)
                request.wait_next = aside
                aside = r
                following = first_waiting(e, t)
            r = following
            continue
        recall(e, t, r)
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
        following = t.requests[aside].wait_next
        e.wait_count -= 1
        wait_first(e, t, aside)
        aside = following


@compiled
def admit_one(e: Any, t: Any, r: int, budget: int, threshold: int) -> int:
    """Move a waiting request to the running list; its tokens, 0 = it does not fit."""
    request = t.requests[r]
    tokens = request.prompt + request.output
    whole = blocks_of(tokens, e.block_size)
    spare = e.watermark_blocks if e.run_count > 0 else 0
    if request.shared_blocks == 0 and e.reserve and whole + spare > e.free:
        return 0  # whatever it hits is free now: as many blocks are taken with hits as without
    hits, reused = look_up(e, t, r, tokens)
    hit = hits * e.block_size
    n = tokens - hit
    if threshold > 0 and n > threshold:
        n = threshold
    if not e.chunked and n > budget:
        return 0
    n = min(n, budget)
    reserved = reused - hits + spare
    wanted = blocks_of(hit + n, e.block_size)
    if wanted + reserved > e.free or (e.reserve and whole + reserved > e.free):
        return 0
    if e.by_priority:
        drop_first(e, t)
    stop_waiting(e, t, r)
    run(e, t, r)
    request.status = RUNNING
    request.computed = hit
    take_hits(e, t, r, hits, reused)
    grow(e, t, r, hits, wanted)
    remember(e, t, r, hit + n)
    if request.preemptions == 0 and e.caching:
        t.counters[0].prefix_queries_tokens += tokens
        t.counters[0].prefix_hits_tokens += hit
    if request.first_scheduled == NEVER:
        request.first_scheduled = e.now
        request.cached = hit
    use_adapter(e, t, r)
    return n


@compiled
def only_decodes(e: Any, t: Any, record: int) -> bool:
    """Whether a step brings each of the LAZY requests a token, not its last, and nothing else."""
    step = t.steps[record]
    return (
        e.lazy_seqs > 0
        and step.lazy == e.lazy_seqs
        and step.decode == e.lazy_seqs
        and step.prefill == 0
        and step.tokens == 0
        and step.ends == 0
    )


@compiled
def schedule(e: Any, t: Any, record: int) -> bool:
    """One schedule call into a step record; whether it scheduled anything."""
    t.steps[record] = t.steps[2]
    step = t.steps[record]
    step.index = e.step
    e.adapters_in_step = 0
    inside = e.run_count + e.wait_count
    threshold = e.threshold if inside > 1 else 0
    if threshold > 0 and e.adaptive:
        threshold = max(threshold, e.max_tokens // inside)
    budget = schedule_together(e, t, record, threshold)
    if budget < 0:
        budget = schedule_one_by_one(e, t, record, threshold)
    if step.preempted == 0 and e.wait_count > 0:
        admit(e, t, record, budget, threshold)
    step.running = e.run_count
    step.waiting = e.wait_count
    step.free = e.free
    e.left_waiting = e.wait_count
    e.left_deferred = e.deferred_count
    if step.prefill + step.decode == 0:
        return False
    e.step += 1
    # With identified blocks an eviction may change what a waiting request would hit.
    closed = e.wait_count == 0 or e.run_count >= e.active or e.cache_mode != IDENTIFY_BLOCKS
    if closed and e.loras == 0 and step.preempted == 0 and e.explicits == 0:
        e.settled = only_decodes(e, t, record)
    return True
