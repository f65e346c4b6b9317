"""Steps without budget or blocks for everybody: request by request, in order, as vLLM does it."""

from __future__ import annotations

from typing import Any

from driftwatch.simulate.kernel_layout import (
    ADAPTER,
    AHEAD,
    ARRIVAL,
    ASYNC,
    BLOCK_SIZE,
    BY_PRIORITY,
    CHOSEN,
    CLOSING,
    COMPUTED,
    ENDED,
    EXPLICIT,
    EXPLICIT_LIST,
    EXPLICITS,
    FINAL_STEP,
    FREE,
    JOIN_COMPUTED,
    JOIN_STEP,
    KIND,
    LAZY,
    LAZY_KV,
    LORAS,
    MARK,
    MARK_STEP,
    MARK_STEPS,
    MAX_TOKENS,
    MODEL_LENGTH,
    NEXT_DUE,
    NEXT_RELEASED,
    NO_KIND,
    NONE,
    ORDER,
    OUTPUT,
    PREEMPTED,
    PREEMPTED_TIMES,
    PREEMPTIONS,
    PRIORITY,
    PROMPT,
    RECORDS,
    REQUESTS,
    RUN_HEAD,
    RUN_NEXT,
    RUNNING,
    S_DECODE,
    S_KV,
    S_LAZY,
    S_PREEMPTED,
    STATUS,
    STEP,
    STEP_NUMBERS,
    STUCK,
    TARGET,
    WAITING,
    WAS_LAZY,
)
from driftwatch.simulate.kernel_lazy import (
    close,
    commit,
    delivered,
    leave_lazy,
    single_out,
    stamp_adapter,
)
from driftwatch.simulate.kernel_queues import (
    stop_running,
    wait,
)
from driftwatch.simulate.prefix_cache import (
    blocks_of,
    grow,
    release,
    remember,
)

WORTH_COUNTING = 1000  # steps without an end, before the tokens inside are counted


def preempt(m: Any, f: Any, r: int) -> None:
    """Free a running request whole and put it back to the front of the queue."""
    held = blocks_of(m[m[COMPUTED] + r] + m[m[CHOSEN] + r], m[BLOCK_SIZE])
    if m[m[KIND] + r] == CLOSING and m[m[FINAL_STEP] + r] != NONE:
        m[m[OUTPUT] + r] = delivered(m, f, r)
    else:
        m[m[FINAL_STEP] + r] = NONE  # no step in flight holds its last token
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
    watch_progress(m)


def watch_progress(m: Any) -> None:
    """Notice requests that preempt each other and never end: two of one priority and arrival can.

    A step computes a token at least. Without preemption all end within as many steps as they have
    tokens, so that longer without an arrival or an end is no progress.
    """
    mark = m[ENDED] + m[NEXT_DUE] + m[NEXT_RELEASED]
    if mark != m[MARK]:
        m[MARK] = mark
        m[MARK_STEP] = m[STEP]
        m[MARK_STEPS] = 0
        return
    steps = m[STEP] - m[MARK_STEP]
    if steps < WORTH_COUNTING:
        return
    if m[MARK_STEPS] == 0:
        for r in range(m[REQUESTS]):
            status = m[m[STATUS] + r]
            if status in (WAITING, RUNNING, PREEMPTED):
                m[MARK_STEPS] += m[m[TARGET] + r]
    if steps > m[MARK_STEPS]:
        m[STUCK] = 2


def stop_decoding(m: Any, f: Any, r: int) -> None:
    """A LAZY request does not go on in this step: its numbers are written down."""
    ahead = m[ASYNC]
    leave_lazy(m, f, r)
    m[m[OUTPUT] + r] = m[m[COMPUTED] + r] + 1 - ahead - m[m[PROMPT] + r]
    m[m[AHEAD] + r] = ahead
    single_out(m, f, r)


def schedule_one_by_one(m: Any, f: Any, record: int, threshold: int) -> int:
    """Phase 1 in vLLM's own order, with preemption; what is left of the budget.

    Whoever decodes on stays LAZY: of those only who is preempted or left out is written to.
    """
    block_size = m[BLOCK_SIZE]
    ahead = m[ASYNC]
    order = m[ORDER]
    lazy = m[WAS_LAZY]
    now = m[STEP]
    count = 0
    r = m[RUN_HEAD]
    while r != NONE:
        m[order + count] = r
        m[lazy + count] = m[m[KIND] + r]
        count += 1
        m[m[CHOSEN] + r] = 0
        r = m[m[RUN_NEXT] + r]
    step = RECORDS + record * STEP_NUMBERS
    budget = m[MAX_TOKENS]
    at = 0
    while at < count and budget > 0:
        r = m[order + at]
        if m[lazy + at] == LAZY:
            computed = m[m[JOIN_COMPUTED] + r] + now - m[m[JOIN_STEP] + r]
            n = 1
            known = computed + 1 - ahead
        else:
            computed = m[m[COMPUTED] + r]
            known = m[m[PROMPT] + r] + m[m[OUTPUT] + r]
            n = known + m[m[AHEAD] + r] - computed
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
                stop_decoding(m, f, victim)
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
        remember(m, f, r, min(computed + n, known))
        m[m[CHOSEN] + r] = n
        budget -= n
        at += 1
    commit_in_order(m, f, record, count)
    return int(budget)


def commit_in_order(m: Any, f: Any, record: int, count: int) -> None:
    """What was chosen for the first ``count`` of the running list is computed in the step."""
    order = m[ORDER]
    lazy = m[WAS_LAZY]
    now = m[STEP]
    step = RECORDS + record * STEP_NUMBERS
    staying = 0
    m[EXPLICITS] = 0
    for i in range(count):
        r = m[order + i]
        n = m[m[CHOSEN] + r]
        m[m[CHOSEN] + r] = 0
        if m[lazy + i] != LAZY:
            if n > 0:
                commit(m, f, record, r, n)
        elif n > 0:
            computed = m[m[JOIN_COMPUTED] + r] + now - m[m[JOIN_STEP] + r] + 1
            m[step + S_DECODE] += 1
            m[step + S_KV] += computed
            m[step + S_LAZY] += 1
            if computed >= m[m[TARGET] + r] - 1:
                leave_lazy(m, f, r)
                m[m[COMPUTED] + r] = computed
                close(m, f, record, r)
            else:
                staying += 1
        else:
            stop_decoding(m, f, r)
            m[m[KIND] + r] = EXPLICIT
        if m[m[KIND] + r] == EXPLICIT:
            m[m[EXPLICIT_LIST] + m[EXPLICITS]] = r
            m[EXPLICITS] += 1
        if m[LORAS] > 0 and n > 0 and m[m[ADAPTER] + r] >= 0:
            stamp_adapter(m, f, m[m[ADAPTER] + r])
    m[LAZY_KV] += staying  # the next step reads one token more of each that stays


def comes_after(m: Any, f: Any, r: int, other: int) -> bool:
    """Whether r is preempted before the other: vLLM's max over (priority, arrival)."""
    priority = m[PRIORITY]
    if m[priority + r] != m[priority + other]:
        return bool(m[priority + r] > m[priority + other])
    return bool(f[m[ARRIVAL] + r] > f[m[ARRIVAL] + other])
