"""One schedule call of vLLM's V1 scheduler (``v1/core/sched/scheduler.py``).

Requests that only decode are LAZY: they take one token in every step until their last, so nothing
is written for them; what they have follows from the step at which they joined. A step in which
budget and blocks suffice for everybody costs the EXPLICIT requests (prefilling) only. Any other
step is done request by request, in order, as vLLM does it.
"""

from __future__ import annotations

from typing import Any

from driftwatch.simulate.kernel_layout import (
    ACTIVE,
    ADAPTER,
    ADAPTER_COUNT,
    ADAPTERS,
    ADAPTIVE,
    AHEAD,
    ARRIVAL,
    ASYNC,
    BLOCK_SIZE,
    BY_PRIORITY,
    CACHE_MODE,
    CACHED,
    CACHING,
    CHOSEN,
    CHUNKED,
    CLASS_COUNTS,
    CLOSING,
    COMPUTED,
    EXPLICIT,
    EXPLICIT_LIST,
    EXPLICITS,
    FINAL_STEP,
    FIRST_SCHEDULED,
    FREE,
    IDENTIFY_BLOCKS,
    JOIN_COMPUTED,
    JOIN_STEP,
    KIND,
    LAZY,
    LAZY_SEQS,
    LORAS,
    MAX_TOKENS,
    MODEL_LENGTH,
    NEVER,
    NO_KIND,
    NONE,
    NOW,
    ORDER,
    OUTPUT,
    PAIRS,
    PREEMPTED,
    PREEMPTED_TIMES,
    PREEMPTIONS,
    PREFIX_HITS,
    PREFIX_QUERIES,
    PRIORITY,
    PROMPT,
    RECORDS,
    RESERVE,
    RUN_COUNT,
    RUN_HEAD,
    RUN_NEXT,
    RUN_PREVIOUS,
    RUN_TAIL,
    RUNNING,
    S_DECODE,
    S_FREE,
    S_INDEX,
    S_KV,
    S_LAZY,
    S_PREEMPTED,
    S_PREFILL,
    S_RUNNING,
    S_WAITING,
    SETTLED,
    STATUS,
    STEP,
    STEP_NUMBERS,
    TARGET,
    THRESHOLD,
    WAIT_COUNT,
    WAIT_NEXT,
    WAS_LAZY,
    WATERMARK_BLOCKS,
)
from driftwatch.simulate.kernel_lazy import (
    advance_lazy,
    close,
    commit,
    delivered,
    join_lazy,
    leave_lazy,
    single_out,
    stamp_adapter,
)
from driftwatch.simulate.kernel_queues import (
    defer,
    drop_first,
    first_waiting,
    over_loras,
    run,
    stop_running,
    stop_waiting,
    wait,
)
from driftwatch.simulate.kernel_steady import only_decodes
from driftwatch.simulate.prefix_cache import (
    blocks_of,
    grow,
    look_up,
    release,
    remember,
    take_hits,
)


def preempt(m: Any, f: Any, r: int) -> None:
    """Free a running request whole and put it back to the front of the queue."""
    held = blocks_of(m[m[COMPUTED] + r] + m[m[CHOSEN] + r], m[BLOCK_SIZE])
    if m[m[KIND] + r] == CLOSING and m[m[FINAL_STEP] + r] != NONE:
        m[m[OUTPUT] + r] = delivered(m, f, r)
    release(m, f, r, held)
    stop_running(m, f, r)
    m[m[STATUS] + r] = PREEMPTED
    m[m[KIND] + r] = NO_KIND
    m[m[COMPUTED] + r] = 0
    m[m[AHEAD] + r] = 0
    m[m[CHOSEN] + r] = 0
    m[m[PREEMPTED_TIMES] + r] += 1
    m[PREEMPTIONS] += 1
    wait(m, f, r, True)


def schedule_one_by_one(m: Any, f: Any, record: int, threshold: int) -> int:
    """Phase 1 in vLLM's own order, with preemption; what is left of the budget."""
    block_size = m[BLOCK_SIZE]
    ahead = m[ASYNC]
    order = m[ORDER]
    lazy = m[WAS_LAZY]
    count = 0
    r = m[RUN_HEAD]
    while r != NONE:
        m[order + count] = r
        m[lazy + count] = m[m[KIND] + r]
        count += 1
        if m[m[KIND] + r] == LAZY:
            leave_lazy(m, f, r)
            m[m[OUTPUT] + r] = m[m[COMPUTED] + r] + 1 - ahead - m[m[PROMPT] + r]
            m[m[AHEAD] + r] = ahead
        m[m[CHOSEN] + r] = 0
        r = m[m[RUN_NEXT] + r]
    step = RECORDS + record * STEP_NUMBERS
    budget = m[MAX_TOKENS]
    at = 0
    while at < count and budget > 0:
        r = m[order + at]
        computed = m[m[COMPUTED] + r]
        n = m[m[PROMPT] + r] + m[m[OUTPUT] + r] + m[m[AHEAD] + r] - computed
        if threshold > 0 and n > threshold:
            n = threshold
        n = min(n, budget, m[MODEL_LENGTH] - computed - 1)
        if n <= 0 or m[m[KIND] + r] == CLOSING:
            at += 1
            continue
        held = blocks_of(computed, block_size)
        wanted = blocks_of(computed + n, block_size)
        fits = True
        while wanted - held > m[FREE]:
            victim_at = count - 1
            if m[BY_PRIORITY]:
                victim_at = 0
                for i in range(count):
                    if comes_after(m, f, m[order + i], m[order + victim_at]):
                        victim_at = i
            victim = m[order + victim_at]
            budget += m[m[CHOSEN] + victim]
            if victim_at < at:
                at -= 1
            if m[lazy + victim_at] == LAZY:
                single_out(m, f, victim)
            preempt(m, f, victim)
            m[step + S_PREEMPTED] += 1
            count -= 1
            for i in range(victim_at, count):
                m[order + i] = m[order + i + 1]
                m[lazy + i] = m[lazy + i + 1]
            if victim == r:
                fits = False
                break
        if not fits:
            break
        grow(m, f, r, held, wanted)
        remember(m, f, r, min(computed + n, m[m[PROMPT] + r] + m[m[OUTPUT] + r]))
        m[m[CHOSEN] + r] = n
        budget -= n
        at += 1
    m[EXPLICITS] = 0
    for i in range(count):
        r = m[order + i]
        n = m[m[CHOSEN] + r]
        m[m[CHOSEN] + r] = 0
        if m[lazy + i] != LAZY:
            if n > 0:
                commit(m, f, record, r, n)
        elif n > 0:
            computed = m[m[COMPUTED] + r] + 1
            m[step + S_DECODE] += 1
            m[step + S_KV] += computed
            m[step + S_LAZY] += 1
            if computed >= m[m[TARGET] + r] - 1:
                m[m[COMPUTED] + r] = computed
                close(m, f, record, r)
            else:
                # It goes on; the steps in flight that it is in are still counted from its joining.
                joined = m[m[JOIN_STEP] + r]
                join_lazy(m, f, r, computed, m[STEP] + 1)
                m[m[JOIN_COMPUTED] + r] -= m[m[JOIN_STEP] + r] - joined
                m[m[JOIN_STEP] + r] = joined
        else:
            single_out(m, f, r)
            m[m[KIND] + r] = EXPLICIT
        if m[m[KIND] + r] == EXPLICIT:
            m[m[EXPLICIT_LIST] + m[EXPLICITS]] = r
            m[EXPLICITS] += 1
        if m[LORAS] > 0 and n > 0 and m[m[ADAPTER] + r] >= 0:
            stamp_adapter(m, f, m[m[ADAPTER] + r])
    return int(budget)


def comes_after(m: Any, f: Any, r: int, other: int) -> bool:
    """Whether r is preempted before the other: vLLM's max over (priority, arrival)."""
    priority = m[PRIORITY]
    if m[priority + r] != m[priority + other]:
        return bool(m[priority + r] > m[priority + other])
    return bool(f[m[ARRIVAL] + r] > f[m[ARRIVAL] + other])


def schedule_lazily(m: Any, f: Any, record: int, threshold: int) -> int:
    """Phase 1 where budget and blocks suffice for all; -1 where they may not."""
    block_size = m[BLOCK_SIZE]
    if m[LORAS] > 0:
        return -1
    now = m[STEP]
    seqs = m[LAZY_SEQS]
    filling = (-now) % block_size
    need = m[m[CLASS_COUNTS] + filling]
    budget = m[MAX_TOKENS] - seqs
    explicits = m[EXPLICITS]
    wanted_all = 0
    for i in range(explicits):
        r = m[m[EXPLICIT_LIST] + i]
        n = m[m[PROMPT] + r] + m[m[OUTPUT] + r] + m[m[AHEAD] + r] - m[m[COMPUTED] + r]
        if threshold > 0 and n > threshold:
            n = threshold
        m[m[CHOSEN] + r] = n
        wanted_all += n
    if wanted_all > budget:
        # Order decides who goes short: as long as the explicit ones come last, they do.
        at = m[RUN_TAIL]
        for i in range(explicits - 1, -1, -1):
            if at != m[m[EXPLICIT_LIST] + i]:
                return -1
            at = m[m[RUN_PREVIOUS] + at]
    left = budget
    for i in range(explicits):
        r = m[m[EXPLICIT_LIST] + i]
        n = min(m[m[CHOSEN] + r], left)
        m[m[CHOSEN] + r] = n
        left -= n
        computed = m[m[COMPUTED] + r]
        need += blocks_of(computed + n, block_size) - blocks_of(computed, block_size)
    if need > m[FREE]:
        return -1
    advance_lazy(m, f, record)
    kept = 0
    for i in range(explicits):
        r = m[m[EXPLICIT_LIST] + i]
        n = m[m[CHOSEN] + r]
        m[m[CHOSEN] + r] = 0
        if n > 0:
            computed = m[m[COMPUTED] + r]
            grow(m, f, r, blocks_of(computed, block_size), blocks_of(computed + n, block_size))
            remember(m, f, r, min(computed + n, m[m[PROMPT] + r] + m[m[OUTPUT] + r]))
            commit(m, f, record, r, n)
        if m[m[KIND] + r] == EXPLICIT:
            m[m[EXPLICIT_LIST] + kept] = r
            kept += 1
    m[EXPLICITS] = kept
    return int(left)


def admit(m: Any, f: Any, record: int, budget: int, threshold: int) -> None:
    """Phase 2: waiting requests in order, until one does not fit."""
    block_size = m[BLOCK_SIZE]
    by_priority = m[BY_PRIORITY]
    aside = NONE  # by priority: set aside, to go back
    r = first_waiting(m, f)
    while r != NONE and budget > 0 and m[RUN_COUNT] < m[ACTIVE]:
        if over_loras(m, f, r, m[m[ADAPTERS] + m[ADAPTER_COUNT] - 1], m[STEP]):
            defer(m, f, r, 1)
            if by_priority:
                drop_first(m, f)
                m[m[WAIT_NEXT] + r] = aside
                aside = r
                r = first_waiting(m, f)
            else:
                r = m[m[WAIT_NEXT] + r]
            continue
        defer(m, f, r, 0)
        tokens = m[m[PROMPT] + r] + m[m[OUTPUT] + r]
        hits, reused = look_up(m, f, r, tokens)
        hit = hits * block_size
        n = tokens - hit
        if threshold > 0 and n > threshold:
            n = threshold
        if not m[CHUNKED] and n > budget:
            break
        n = min(n, budget)
        spare = m[WATERMARK_BLOCKS] if m[RUN_COUNT] > 0 else 0
        taken = reused - hits + spare
        if m[RESERVE] and blocks_of(tokens, block_size) + taken > m[FREE]:
            break
        wanted = blocks_of(hit + n, block_size)
        if wanted + taken > m[FREE]:
            break
        following = m[m[WAIT_NEXT] + r]
        if by_priority:
            drop_first(m, f)
        stop_waiting(m, f, r)
        run(m, f, r)
        m[m[STATUS] + r] = RUNNING
        m[m[COMPUTED] + r] = hit
        take_hits(m, f, r, hits, reused)
        grow(m, f, r, hits, wanted)
        remember(m, f, r, hit + n)
        if m[m[PREEMPTED_TIMES] + r] == 0 and m[CACHING]:
            m[PREFIX_QUERIES] += tokens
            m[PREFIX_HITS] += hit
        if f[m[FIRST_SCHEDULED] + r] == NEVER:
            f[m[FIRST_SCHEDULED] + r] = f[NOW]
            m[m[CACHED] + r] = hit
        if m[LORAS] > 0 and m[m[ADAPTER] + r] >= 0:
            stamp_adapter(m, f, m[m[ADAPTER] + r])
        commit(m, f, record, r, n)
        if m[m[KIND] + r] == EXPLICIT:
            m[m[EXPLICIT_LIST] + m[EXPLICITS]] = r
            m[EXPLICITS] += 1
        budget -= n
        r = first_waiting(m, f) if by_priority else following
    while aside != NONE:
        following = m[m[WAIT_NEXT] + aside]
        m[WAIT_COUNT] -= 1
        wait(m, f, aside, True)
        aside = following


def schedule(m: Any, f: Any, record: int) -> bool:
    """One schedule call into a step record; whether it scheduled anything."""
    step = RECORDS + record * STEP_NUMBERS
    for i in range(S_FREE + 1):
        m[step + i] = 0
    f[PAIRS + record] = 0.0
    m[step + S_INDEX] = m[STEP]
    m[m[ADAPTERS] + m[ADAPTER_COUNT] - 1] = 0
    there = m[RUN_COUNT] + m[WAIT_COUNT]
    threshold = m[THRESHOLD] if there > 1 else 0
    if threshold > 0 and m[ADAPTIVE]:
        threshold = max(threshold, m[MAX_TOKENS] // there)
    budget = schedule_lazily(m, f, record, threshold)
    if budget < 0:
        budget = schedule_one_by_one(m, f, record, threshold)
    if m[step + S_PREEMPTED] == 0 and m[WAIT_COUNT] > 0:
        admit(m, f, record, budget, threshold)
    m[step + S_RUNNING] = m[RUN_COUNT]
    m[step + S_WAITING] = m[WAIT_COUNT]
    m[step + S_FREE] = m[FREE]
    if m[step + S_PREFILL] + m[step + S_DECODE] == 0:
        return False
    m[STEP] += 1
    # With identified blocks an eviction may change what a waiting request would hit.
    closed = m[WAIT_COUNT] == 0 or m[RUN_COUNT] >= m[ACTIVE] or m[CACHE_MODE] != IDENTIFY_BLOCKS
    if closed and m[LORAS] == 0 and m[step + S_PREEMPTED] == 0 and m[EXPLICITS] == 0:
        m[SETTLED] = only_decodes(m, f, record)
    return True
