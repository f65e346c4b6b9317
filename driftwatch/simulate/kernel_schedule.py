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
    ADAPTIVE,
    AHEAD,
    APPLIED,
    ARRIVAL,
    ASYNC,
    BLOCK_SIZE,
    BY_PRIORITY,
    CACHE_MODE,
    CACHED,
    CACHING,
    CHOSEN,
    CHUNKED,
    CLASS_NEXT,
    CLASS_PREVIOUS,
    CLOSING,
    COMPUTED,
    EXPLICIT,
    EXPLICITS,
    FINAL_STEP,
    FINISH_SIZE,
    FIRST_SCHEDULED,
    FREE,
    IDENTIFY_BLOCKS,
    JOIN_COMPUTED,
    JOIN_STEP,
    KIND,
    LAST_TOKEN,
    LAZY,
    LAZY_KV,
    LAZY_SEQS,
    LORAS,
    MAX_TOKENS,
    MODEL_LENGTH,
    NEVER,
    NO_KIND,
    NONE,
    NOW,
    OUTPUT,
    PENDING,
    PREEMPTED,
    PREEMPTED_TIMES,
    PREEMPTIONS,
    PREFIX_HITS,
    PREFIX_QUERIES,
    PRIORITY,
    PROMPT,
    RESERVE,
    RUN_COUNT,
    RUN_HEAD,
    RUN_NEXT,
    RUN_PREVIOUS,
    RUN_TAIL,
    RUNNING,
    S_DECODE,
    S_ENDS,
    S_FREE,
    S_INDEX,
    S_KV,
    S_LAZY,
    S_PREEMPTED,
    S_PREFILL,
    S_RUNNING,
    S_TOKENS,
    S_WAITING,
    STATUS,
    STEP,
    TARGET,
    THRESHOLD,
    WAIT_COUNT,
    WAIT_NEXT,
    WATERMARK_BLOCKS,
)
from driftwatch.simulate.kernel_queues import (
    defer,
    drop_first,
    first_waiting,
    heap_drop,
    heap_push,
    over_loras,
    run,
    stop_running,
    stop_waiting,
    wait,
)
from driftwatch.simulate.prefix_cache import (
    blocks_of,
    grow,
    look_up,
    release,
    remember,
    take_hits,
)


def class_of(t: Any, r: int) -> int:
    """LAZY requests of one class fill their blocks in the same steps."""
    return (t.integers[JOIN_COMPUTED][r] - t.integers[JOIN_STEP][r]) % t.settings[BLOCK_SIZE]


def join_lazy(t: Any, r: int, computed: int, step: int) -> None:
    """From ``step`` on the request decodes in every step until its last."""
    numbers = t.numbers
    integers = t.integers
    integers[KIND][r] = LAZY
    integers[JOIN_STEP][r] = step
    integers[JOIN_COMPUTED][r] = computed
    final = step + integers[TARGET][r] - 2 - computed
    integers[FINAL_STEP][r] = final
    numbers[LAZY_SEQS] += 1
    numbers[LAZY_KV] += computed + 1
    own = class_of(t, r)
    t.class_counts[own] += 1
    if t.settings[CACHE_MODE] == IDENTIFY_BLOCKS:
        head = t.class_heads[own]
        integers[CLASS_PREVIOUS][r] = NONE
        integers[CLASS_NEXT][r] = head
        if head != NONE:
            integers[CLASS_PREVIOUS][head] = r
        t.class_heads[own] = r
    if numbers[FINISH_SIZE] >= len(t.finish_ids):
        rebuild_finishes(t)
    heap_push(
        t.finish_first, t.finish_second, t.finish_ids, numbers[FINISH_SIZE], float(final), 0.0, r
    )
    numbers[FINISH_SIZE] += 1


def delivered(t: Any, r: int) -> int:
    """Tokens that have come of a request."""
    integers = t.integers
    kind = integers[KIND][r]
    if kind == LAZY or (kind == CLOSING and integers[FINAL_STEP][r] != NONE):
        steps = max(t.numbers[APPLIED] - integers[JOIN_STEP][r] + 2, 0)
        return int(integers[JOIN_COMPUTED][r] + steps - integers[PROMPT][r])
    return int(integers[OUTPUT][r])


def rebuild_finishes(t: Any) -> None:
    """Drop the dead entries of the heap of last steps."""
    t.numbers[FINISH_SIZE] = 0
    r = t.numbers[RUN_HEAD]
    while r != NONE:
        if t.integers[KIND][r] == LAZY:
            heap_push(
                t.finish_first,
                t.finish_second,
                t.finish_ids,
                t.numbers[FINISH_SIZE],
                float(t.integers[FINAL_STEP][r]),
                0.0,
                r,
            )
            t.numbers[FINISH_SIZE] += 1
        r = t.integers[RUN_NEXT][r]


def leave_lazy(t: Any, r: int) -> None:
    """Take a request out of the LAZY ones; its computed tokens are written down."""
    numbers = t.numbers
    integers = t.integers
    computed = integers[JOIN_COMPUTED][r] + numbers[STEP] - integers[JOIN_STEP][r]
    integers[COMPUTED][r] = computed
    numbers[LAZY_SEQS] -= 1
    numbers[LAZY_KV] -= computed + 1
    own = class_of(t, r)
    t.class_counts[own] -= 1
    if t.settings[CACHE_MODE] == IDENTIFY_BLOCKS:
        before = integers[CLASS_PREVIOUS][r]
        after = integers[CLASS_NEXT][r]
        if before == NONE:
            t.class_heads[own] = after
        else:
            integers[CLASS_NEXT][before] = after
        if after != NONE:
            integers[CLASS_PREVIOUS][after] = before


def commit(t: Any, record: int, r: int, n: int) -> None:
    """The step computes n tokens of an explicit request."""
    step = t.records[record]
    integers = t.integers
    computed = integers[COMPUTED][r]
    if n == 1 and computed >= integers[PROMPT][r]:
        step[S_DECODE] += 1
        step[S_KV] += computed + 1
    else:
        step[S_PREFILL] += n
        t.pairs[record] += float(n) * computed + n * (n + 1) / 2
    brings = computed + n == integers[PROMPT][r] + integers[OUTPUT][r] + integers[AHEAD][r]
    computed += n
    integers[COMPUTED][r] = computed
    if brings:
        t.tokens[record][step[S_TOKENS]] = r
        step[S_TOKENS] += 1
        if t.settings[ASYNC]:
            integers[AHEAD][r] += 1
        if computed >= integers[TARGET][r] - 1:
            integers[KIND][r] = CLOSING
            integers[FINAL_STEP][r] = NONE
        else:
            join_lazy(t, r, computed, t.numbers[STEP] + 1)
    else:
        integers[KIND][r] = EXPLICIT


def preempt(t: Any, r: int) -> None:
    """Free a running request whole and put it back to the front of the queue."""
    integers = t.integers
    held = blocks_of(integers[COMPUTED][r] + integers[CHOSEN][r], t.settings[BLOCK_SIZE])
    if integers[KIND][r] == CLOSING and integers[FINAL_STEP][r] != NONE:
        integers[OUTPUT][r] = delivered(t, r)
    release(t, r, held)
    stop_running(t, r)
    integers[STATUS][r] = PREEMPTED
    integers[KIND][r] = NO_KIND
    integers[COMPUTED][r] = 0
    integers[AHEAD][r] = 0
    integers[CHOSEN][r] = 0
    integers[PREEMPTED_TIMES][r] += 1
    t.numbers[PREEMPTIONS] += 1
    wait(t, r, True)


def single_out(t: Any, r: int) -> None:
    """A request that decoded in every step does not in this one: its last token gets a time.

    Asynchronously the step in flight still brings it one token; where that is its first after a
    prefill, the step has it among its explicit ones already.
    """
    record = t.numbers[PENDING]
    if not t.settings[ASYNC]:
        t.floats[LAST_TOKEN][r] = t.clocks[NOW]
    elif t.integers[JOIN_STEP][r] <= t.records[record][S_INDEX]:
        t.floats[LAST_TOKEN][r] = t.clocks[NOW]
        step = t.records[record]
        step[S_LAZY] -= 1
        t.tokens[record][step[S_TOKENS]] = r
        step[S_TOKENS] += 1


def schedule_one_by_one(t: Any, record: int, threshold: int) -> int:
    """Phase 1 in vLLM's own order, with preemption; what is left of the budget."""
    numbers = t.numbers
    settings = t.settings
    integers = t.integers
    block_size = settings[BLOCK_SIZE]
    ahead = settings[ASYNC]
    order = t.order
    lazy = t.was_lazy
    count = 0
    r = numbers[RUN_HEAD]
    while r != NONE:
        order[count] = r
        lazy[count] = integers[KIND][r]
        count += 1
        if integers[KIND][r] == LAZY:
            leave_lazy(t, r)
            integers[OUTPUT][r] = integers[COMPUTED][r] + 1 - ahead - integers[PROMPT][r]
            integers[AHEAD][r] = ahead
        integers[CHOSEN][r] = 0
        r = integers[RUN_NEXT][r]
    step = t.records[record]
    budget = settings[MAX_TOKENS]
    at = 0
    while at < count and budget > 0:
        r = order[at]
        computed = integers[COMPUTED][r]
        n = integers[PROMPT][r] + integers[OUTPUT][r] + integers[AHEAD][r] - computed
        if threshold > 0 and n > threshold:
            n = threshold
        n = min(n, budget, settings[MODEL_LENGTH] - computed - 1)
        if n <= 0 or integers[KIND][r] == CLOSING:
            at += 1
            continue
        held = blocks_of(computed, block_size)
        wanted = blocks_of(computed + n, block_size)
        fits = True
        while wanted - held > numbers[FREE]:
            victim_at = count - 1
            if settings[BY_PRIORITY]:
                victim_at = 0
                for i in range(count):
                    if comes_after(t, order[i], order[victim_at]):
                        victim_at = i
            victim = order[victim_at]
            if integers[CHOSEN][victim] > 0:
                budget += integers[CHOSEN][victim]
                at -= 1
            if lazy[victim_at] == LAZY:
                single_out(t, victim)
            preempt(t, victim)
            step[S_PREEMPTED] += 1
            count -= 1
            for i in range(victim_at, count):
                order[i] = order[i + 1]
                lazy[i] = lazy[i + 1]
            if victim == r:
                fits = False
                break
        if not fits:
            break
        grow(t, r, held, wanted)
        remember(t, r, min(computed + n, integers[PROMPT][r] + integers[OUTPUT][r]))
        integers[CHOSEN][r] = n
        budget -= n
        at += 1
    numbers[EXPLICITS] = 0
    for i in range(count):
        r = order[i]
        n = integers[CHOSEN][r]
        integers[CHOSEN][r] = 0
        if lazy[i] != LAZY:
            if n > 0:
                commit(t, record, r, n)
        elif n > 0:
            computed = integers[COMPUTED][r] + 1
            step[S_DECODE] += 1
            step[S_KV] += computed
            step[S_LAZY] += 1
            if computed >= integers[TARGET][r] - 1:
                integers[COMPUTED][r] = computed
                close(t, record, r)
            else:
                # It goes on; the steps in flight that it is in are still counted from its joining.
                joined = integers[JOIN_STEP][r]
                join_lazy(t, r, computed, numbers[STEP] + 1)
                integers[JOIN_COMPUTED][r] -= integers[JOIN_STEP][r] - joined
                integers[JOIN_STEP][r] = joined
        else:
            single_out(t, r)
            integers[KIND][r] = EXPLICIT
        if integers[KIND][r] == EXPLICIT:
            t.explicit[numbers[EXPLICITS]] = r
            numbers[EXPLICITS] += 1
        if settings[LORAS] > 0 and n > 0 and integers[ADAPTER][r] >= 0:
            stamp_adapter(t, integers[ADAPTER][r])
    return int(budget)


def stamp_adapter(t: Any, adapter: int) -> None:
    """An adapter is in use in the step being scheduled."""
    if t.adapters[adapter] != t.numbers[STEP]:
        t.adapters[adapter] = t.numbers[STEP]
        t.adapters[len(t.adapters) - 1] += 1


def comes_after(t: Any, r: int, other: int) -> bool:
    """Whether r is preempted before the other: vLLM's max over (priority, arrival)."""
    priority = t.integers[PRIORITY]
    if priority[r] != priority[other]:
        return bool(priority[r] > priority[other])
    return bool(t.floats[ARRIVAL][r] > t.floats[ARRIVAL][other])


def close(t: Any, record: int, r: int) -> None:
    """The step brings the last token of a request that only decoded."""
    t.integers[KIND][r] = CLOSING
    t.integers[FINAL_STEP][r] = t.numbers[STEP]
    step = t.records[record]
    t.ends[record][step[S_ENDS]] = r
    step[S_ENDS] += 1


def schedule_lazily(t: Any, record: int, threshold: int) -> int:
    """Phase 1 where budget and blocks suffice for all; -1 where they may not."""
    numbers = t.numbers
    settings = t.settings
    integers = t.integers
    block_size = settings[BLOCK_SIZE]
    if settings[LORAS] > 0:
        return -1
    now = numbers[STEP]
    seqs = numbers[LAZY_SEQS]
    filling = (-now) % block_size
    need = t.class_counts[filling]
    budget = settings[MAX_TOKENS] - seqs
    explicits = numbers[EXPLICITS]
    wanted_all = 0
    for i in range(explicits):
        r = t.explicit[i]
        n = integers[PROMPT][r] + integers[OUTPUT][r] + integers[AHEAD][r] - integers[COMPUTED][r]
        if threshold > 0 and n > threshold:
            n = threshold
        integers[CHOSEN][r] = n
        wanted_all += n
    if wanted_all > budget:
        # Order decides who goes short: as long as the explicit ones come last, they do.
        at = numbers[RUN_TAIL]
        for i in range(explicits - 1, -1, -1):
            if at != t.explicit[i]:
                return -1
            at = integers[RUN_PREVIOUS][at]
    left = budget
    for i in range(explicits):
        r = t.explicit[i]
        n = min(integers[CHOSEN][r], left)
        integers[CHOSEN][r] = n
        left -= n
        computed = integers[COMPUTED][r]
        need += blocks_of(computed + n, block_size) - blocks_of(computed, block_size)
    if need > numbers[FREE]:
        return -1
    advance_lazy(t, record)
    kept = 0
    for i in range(explicits):
        r = t.explicit[i]
        n = integers[CHOSEN][r]
        integers[CHOSEN][r] = 0
        if n > 0:
            computed = integers[COMPUTED][r]
            grow(t, r, blocks_of(computed, block_size), blocks_of(computed + n, block_size))
            remember(t, r, min(computed + n, integers[PROMPT][r] + integers[OUTPUT][r]))
            commit(t, record, r, n)
        if integers[KIND][r] == EXPLICIT:
            t.explicit[kept] = r
            kept += 1
    numbers[EXPLICITS] = kept
    return int(left)


def advance_lazy(t: Any, record: int) -> None:
    """All LAZY requests decode one token in the step."""
    numbers = t.numbers
    settings = t.settings
    integers = t.integers
    step = t.records[record]
    now = numbers[STEP]
    seqs = numbers[LAZY_SEQS]
    if seqs == 0:
        return
    block_size = settings[BLOCK_SIZE]
    filling = (-now) % block_size
    if settings[CACHE_MODE] == IDENTIFY_BLOCKS:
        r = t.class_heads[filling]
        while r != NONE:
            held = (integers[JOIN_COMPUTED][r] + now - integers[JOIN_STEP][r]) // block_size
            grow(t, r, held, held + 1)
            if settings[ASYNC]:
                remember(t, r, held * block_size)
            r = integers[CLASS_NEXT][r]
        if not settings[ASYNC]:
            r = t.class_heads[(-now - 1) % block_size]
            while r != NONE:
                remember(t, r, integers[JOIN_COMPUTED][r] + now - integers[JOIN_STEP][r] + 1)
                r = integers[CLASS_NEXT][r]
    else:
        numbers[FREE] -= t.class_counts[filling]
    step[S_DECODE] += seqs
    step[S_KV] += numbers[LAZY_KV]
    step[S_LAZY] += seqs
    while numbers[FINISH_SIZE] > 0 and t.finish_first[0] <= now:
        r = t.finish_ids[0]
        key = t.finish_first[0]
        heap_drop(t.finish_first, t.finish_second, t.finish_ids, numbers[FINISH_SIZE])
        numbers[FINISH_SIZE] -= 1
        if integers[KIND][r] == LAZY and integers[FINAL_STEP][r] == key:
            leave_lazy(t, r)
            integers[COMPUTED][r] += 1
            close(t, record, r)
    # The next step reads one token more of each that stays.
    numbers[LAZY_KV] += numbers[LAZY_SEQS]


def admit(t: Any, record: int, budget: int, threshold: int) -> None:
    """Phase 2: waiting requests in order, until one does not fit."""
    numbers = t.numbers
    settings = t.settings
    integers = t.integers
    block_size = settings[BLOCK_SIZE]
    by_priority = settings[BY_PRIORITY]
    aside = NONE  # by priority: set aside, to go back
    r = first_waiting(t)
    while r != NONE and budget > 0 and numbers[RUN_COUNT] < settings[ACTIVE]:
        if over_loras(t, r, t.adapters[len(t.adapters) - 1], numbers[STEP]):
            defer(t, r, 1)
            if by_priority:
                drop_first(t)
                integers[WAIT_NEXT][r] = aside
                aside = r
                r = first_waiting(t)
            else:
                r = integers[WAIT_NEXT][r]
            continue
        defer(t, r, 0)
        tokens = integers[PROMPT][r] + integers[OUTPUT][r]
        hits, reused = look_up(t, r, tokens)
        hit = hits * block_size
        n = tokens - hit
        if threshold > 0 and n > threshold:
            n = threshold
        if not settings[CHUNKED] and n > budget:
            break
        n = min(n, budget)
        spare = settings[WATERMARK_BLOCKS] if numbers[RUN_COUNT] > 0 else 0
        taken = reused - hits + spare
        if settings[RESERVE] and blocks_of(tokens, block_size) + taken > numbers[FREE]:
            break
        wanted = blocks_of(hit + n, block_size)
        if wanted + taken > numbers[FREE]:
            break
        following = integers[WAIT_NEXT][r]
        if by_priority:
            drop_first(t)
        stop_waiting(t, r)
        run(t, r)
        integers[STATUS][r] = RUNNING
        integers[COMPUTED][r] = hit
        take_hits(t, r, hits, reused)
        grow(t, r, hits, wanted)
        remember(t, r, hit + n)
        if integers[PREEMPTED_TIMES][r] == 0 and settings[CACHING]:
            numbers[PREFIX_QUERIES] += tokens
            numbers[PREFIX_HITS] += hit
        if t.floats[FIRST_SCHEDULED][r] == NEVER:
            t.floats[FIRST_SCHEDULED][r] = t.clocks[NOW]
            integers[CACHED][r] = hit
        if settings[LORAS] > 0 and integers[ADAPTER][r] >= 0:
            stamp_adapter(t, integers[ADAPTER][r])
        commit(t, record, r, n)
        if integers[KIND][r] == EXPLICIT:
            t.explicit[numbers[EXPLICITS]] = r
            numbers[EXPLICITS] += 1
        budget -= n
        r = first_waiting(t) if by_priority else following
    while aside != NONE:
        following = integers[WAIT_NEXT][aside]
        numbers[WAIT_COUNT] -= 1
        wait(t, aside, True)
        aside = following


def schedule(t: Any, record: int) -> bool:
    """One schedule call into a step record; whether it scheduled anything."""
    numbers = t.numbers
    settings = t.settings
    step = t.records[record]
    for i in range(S_FREE + 1):
        step[i] = 0
    t.pairs[record] = 0.0
    step[S_INDEX] = numbers[STEP]
    t.adapters[len(t.adapters) - 1] = 0
    there = numbers[RUN_COUNT] + numbers[WAIT_COUNT]
    threshold = settings[THRESHOLD] if there > 1 else 0
    if threshold > 0 and settings[ADAPTIVE]:
        threshold = max(threshold, settings[MAX_TOKENS] // there)
    budget = schedule_lazily(t, record, threshold)
    if budget < 0:
        budget = schedule_one_by_one(t, record, threshold)
    if step[S_PREEMPTED] == 0 and numbers[WAIT_COUNT] > 0:
        admit(t, record, budget, threshold)
    step[S_RUNNING] = numbers[RUN_COUNT]
    step[S_WAITING] = numbers[WAIT_COUNT]
    step[S_FREE] = numbers[FREE]
    if step[S_PREFILL] + step[S_DECODE] == 0:
        return False
    numbers[STEP] += 1
    return True
