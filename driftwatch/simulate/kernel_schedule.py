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
    BLOCK_SIZE,
    BY_PRIORITY,
    CACHE_MODE,
    CACHED,
    CACHING,
    CHOSEN,
    CHUNKED,
    CLASS_COUNTS,
    COMPUTED,
    DEFERRED_COUNT,
    EXPLICIT,
    EXPLICIT_LIST,
    EXPLICITS,
    FIRST_SCHEDULED,
    FREE,
    IDENTIFY_BLOCKS,
    KIND,
    LAZY_SEQS,
    LEFT_DEFERRED,
    LEFT_WAITING,
    LORAS,
    MAX_TOKENS,
    NEVER,
    NONE,
    NOW,
    OUTPUT,
    PAIRS,
    PREEMPTED_TIMES,
    PREFIX_HITS,
    PREFIX_QUERIES,
    PROMPT,
    RECORDS,
    RESERVE,
    RUN_COUNT,
    RUN_PREVIOUS,
    RUN_TAIL,
    RUNNING,
    S_DECODE,
    S_FREE,
    S_INDEX,
    S_PREEMPTED,
    S_PREFILL,
    S_RUNNING,
    S_WAITING,
    SETTLED,
    SHARED_BLOCKS,
    STATUS,
    STEP,
    STEP_NUMBERS,
    THRESHOLD,
    WAIT_COUNT,
    WAIT_NEXT,
    WATERMARK_BLOCKS,
)
from driftwatch.simulate.kernel_lazy import (
    advance_lazy,
    commit,
    stamp_adapter,
)
from driftwatch.simulate.kernel_one_by_one import schedule_one_by_one
from driftwatch.simulate.kernel_queues import (
    defer,
    drop_first,
    first_waiting,
    over_loras,
    run,
    stop_waiting,
    wait,
)
from driftwatch.simulate.kernel_steady import only_decodes
from driftwatch.simulate.prefix_cache import (
    blocks_of,
    grow,
    look_up,
    remember,
    take_hits,
)


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
        # Order decides who goes short: as long as the explicit ones that come last do, nobody else.
        at = m[RUN_TAIL]
        last = explicits
        while last > 0 and at == m[m[EXPLICIT_LIST] + last - 1]:
            at = m[m[RUN_PREVIOUS] + at]
            last -= 1
        before = 0
        for i in range(last):
            before += m[m[CHOSEN] + m[m[EXPLICIT_LIST] + i]]
        if before > budget:
            return -1
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
        spare = m[WATERMARK_BLOCKS] if m[RUN_COUNT] > 0 else 0
        alone = m[m[SHARED_BLOCKS] + r] == 0
        if alone and m[RESERVE] and blocks_of(tokens, block_size) + spare > m[FREE]:
            break  # whatever it hits is free now: as many blocks are taken with hits as without
        hits, reused = look_up(m, f, r, tokens)
        hit = hits * block_size
        n = tokens - hit
        if threshold > 0 and n > threshold:
            n = threshold
        if not m[CHUNKED] and n > budget:
            break
        n = min(n, budget)
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
    m[LEFT_WAITING] = m[WAIT_COUNT]
    m[LEFT_DEFERRED] = m[DEFERRED_COUNT]
    if m[step + S_PREFILL] + m[step + S_DECODE] == 0:
        return False
    m[STEP] += 1
    # With identified blocks an eviction may change what a waiting request would hit.
    closed = m[WAIT_COUNT] == 0 or m[RUN_COUNT] >= m[ACTIVE] or m[CACHE_MODE] != IDENTIFY_BLOCKS
    if closed and m[LORAS] == 0 and m[step + S_PREEMPTED] == 0 and m[EXPLICITS] == 0:
        m[SETTLED] = only_decodes(m, f, record)
    return True
