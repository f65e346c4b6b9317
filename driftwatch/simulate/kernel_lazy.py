"""Requests that only decode: LAZY, nothing is written for them step by step.

A LAZY request takes one token in every step from JOIN_STEP to FINAL_STEP; its computed tokens and
its blocks follow from the number of the step. Requests whose blocks fill in the same steps form a
class (there are block_size of them), so that a step knows how many blocks it needs. Whoever does
not decode in every step is EXPLICIT (prefilling, or left out of a step for want of budget or
blocks); CLOSING is whoever waits for the last token.
"""

from __future__ import annotations

from typing import Any

from driftwatch.simulate.kernel_layout import (
    ADAPTER_COUNT,
    ADAPTERS,
    AHEAD,
    APPLIED,
    ASYNC,
    BLOCK_SIZE,
    CACHE_MODE,
    CLASS_COUNTS,
    CLASS_HEADS,
    CLASS_NEXT,
    CLASS_PREVIOUS,
    CLOSING,
    COMPUTED,
    ENDS,
    EXPLICIT,
    FINAL_STEP,
    FINISH_FIRST,
    FINISH_IDS,
    FINISH_ROOM,
    FINISH_SECOND,
    FINISH_SIZE,
    FREE,
    IDENTIFY_BLOCKS,
    JOIN_COMPUTED,
    JOIN_STEP,
    KIND,
    LAST_TOKEN,
    LAZY,
    LAZY_KV,
    LAZY_SEQS,
    NONE,
    NOW,
    OUTPUT,
    PAIRS,
    PENDING,
    PROMPT,
    RECORDS,
    ROOM,
    RUN_HEAD,
    RUN_NEXT,
    S_DECODE,
    S_ENDS,
    S_INDEX,
    S_KV,
    S_LAZY,
    S_PREFILL,
    S_TOKENS,
    STEP,
    STEP_NUMBERS,
    TARGET,
    TOKENS,
)
from driftwatch.simulate.kernel_queues import heap_drop, heap_push
from driftwatch.simulate.prefix_cache import grow, remember


def class_of(m: Any, f: Any, r: int) -> int:
    """LAZY requests of one class fill their blocks in the same steps."""
    return int((m[m[JOIN_COMPUTED] + r] - m[m[JOIN_STEP] + r]) % m[BLOCK_SIZE])


def join_lazy(m: Any, f: Any, r: int, computed: int, step: int) -> None:
    """From ``step`` on the request decodes in every step until its last."""
    m[m[KIND] + r] = LAZY
    m[m[JOIN_STEP] + r] = step
    m[m[JOIN_COMPUTED] + r] = computed
    final = step + m[m[TARGET] + r] - 2 - computed
    m[m[FINAL_STEP] + r] = final
    m[LAZY_SEQS] += 1
    m[LAZY_KV] += computed + 1
    own = class_of(m, f, r)
    m[m[CLASS_COUNTS] + own] += 1
    if m[CACHE_MODE] == IDENTIFY_BLOCKS:
        head = m[m[CLASS_HEADS] + own]
        m[m[CLASS_PREVIOUS] + r] = NONE
        m[m[CLASS_NEXT] + r] = head
        if head != NONE:
            m[m[CLASS_PREVIOUS] + head] = r
        m[m[CLASS_HEADS] + own] = r
    if m[FINISH_SIZE] >= m[FINISH_ROOM]:
        rebuild_finishes(m, f)
    heap_push(
        m, f, m[FINISH_FIRST], m[FINISH_SECOND], m[FINISH_IDS], m[FINISH_SIZE], float(final), 0.0, r
    )
    m[FINISH_SIZE] += 1


def delivered(m: Any, f: Any, r: int) -> int:
    """Tokens that have come of a request."""
    kind = m[m[KIND] + r]
    if kind == LAZY or (kind == CLOSING and m[m[FINAL_STEP] + r] != NONE):
        steps = max(m[APPLIED] - m[m[JOIN_STEP] + r] + 2, 0)
        return int(m[m[JOIN_COMPUTED] + r] + steps - m[m[PROMPT] + r])
    return int(m[m[OUTPUT] + r])


def rebuild_finishes(m: Any, f: Any) -> None:
    """Drop the dead entries of the heap of last steps."""
    m[FINISH_SIZE] = 0
    r = m[RUN_HEAD]
    while r != NONE:
        if m[m[KIND] + r] == LAZY:
            heap_push(
                m,
                f,
                m[FINISH_FIRST],
                m[FINISH_SECOND],
                m[FINISH_IDS],
                m[FINISH_SIZE],
                float(m[m[FINAL_STEP] + r]),
                0.0,
                r,
            )
            m[FINISH_SIZE] += 1
        r = m[m[RUN_NEXT] + r]


def leave_lazy(m: Any, f: Any, r: int) -> None:
    """Take a request out of the LAZY ones; its computed tokens are written down."""
    computed = m[m[JOIN_COMPUTED] + r] + m[STEP] - m[m[JOIN_STEP] + r]
    m[m[COMPUTED] + r] = computed
    m[LAZY_SEQS] -= 1
    m[LAZY_KV] -= computed + 1
    own = class_of(m, f, r)
    m[m[CLASS_COUNTS] + own] -= 1
    if m[CACHE_MODE] == IDENTIFY_BLOCKS:
        before = m[m[CLASS_PREVIOUS] + r]
        after = m[m[CLASS_NEXT] + r]
        if before == NONE:
            m[m[CLASS_HEADS] + own] = after
        else:
            m[m[CLASS_NEXT] + before] = after
        if after != NONE:
            m[m[CLASS_PREVIOUS] + after] = before


def close(m: Any, f: Any, record: int, r: int) -> None:
    """The step brings the last token of a request that only decoded."""
    m[m[KIND] + r] = CLOSING
    m[m[FINAL_STEP] + r] = m[STEP]
    step = RECORDS + record * STEP_NUMBERS
    m[m[ENDS] + record * m[ROOM] + m[step + S_ENDS]] = r
    m[step + S_ENDS] += 1


def single_out(m: Any, f: Any, r: int) -> None:
    """A request that decoded in every step does not in this one: its last token gets a time.

    Asynchronously the step in flight still brings it one token; where that is its first after a
    prefill, the step has it among its explicit ones already.
    """
    record = m[PENDING]
    if not m[ASYNC]:
        f[m[LAST_TOKEN] + r] = f[NOW]
    elif m[m[JOIN_STEP] + r] <= m[RECORDS + record * STEP_NUMBERS + S_INDEX]:
        f[m[LAST_TOKEN] + r] = f[NOW]
        step = RECORDS + record * STEP_NUMBERS
        m[step + S_LAZY] -= 1
        m[m[TOKENS] + record * m[ROOM] + m[step + S_TOKENS]] = r
        m[step + S_TOKENS] += 1


def stamp_adapter(m: Any, f: Any, adapter: int) -> None:
    """An adapter is in use in the step being scheduled."""
    if m[m[ADAPTERS] + adapter] != m[STEP]:
        m[m[ADAPTERS] + adapter] = m[STEP]
        m[m[ADAPTERS] + m[ADAPTER_COUNT] - 1] += 1


def commit(m: Any, f: Any, record: int, r: int, n: int) -> None:
    """The step computes n tokens of an explicit request."""
    step = RECORDS + record * STEP_NUMBERS
    computed = m[m[COMPUTED] + r]
    if n == 1 and computed >= m[m[PROMPT] + r]:
        m[step + S_DECODE] += 1
        m[step + S_KV] += computed + 1
    else:
        m[step + S_PREFILL] += n
        f[PAIRS + record] += float(n) * computed + n * (n + 1) / 2
    brings = computed + n == m[m[PROMPT] + r] + m[m[OUTPUT] + r] + m[m[AHEAD] + r]
    computed += n
    m[m[COMPUTED] + r] = computed
    if brings:
        m[m[TOKENS] + record * m[ROOM] + m[step + S_TOKENS]] = r
        m[step + S_TOKENS] += 1
        if m[ASYNC]:
            m[m[AHEAD] + r] += 1
        if computed >= m[m[TARGET] + r] - 1:
            m[m[KIND] + r] = CLOSING
            m[m[FINAL_STEP] + r] = NONE
        else:
            join_lazy(m, f, r, computed, m[STEP] + 1)
    else:
        m[m[KIND] + r] = EXPLICIT


def advance_lazy(m: Any, f: Any, record: int) -> None:
    """All LAZY requests decode one token in the step."""
    step = RECORDS + record * STEP_NUMBERS
    now = m[STEP]
    seqs = m[LAZY_SEQS]
    if seqs == 0:
        return
    block_size = m[BLOCK_SIZE]
    filling = (-now) % block_size
    if m[CACHE_MODE] == IDENTIFY_BLOCKS:
        r = m[m[CLASS_HEADS] + filling]
        while r != NONE:
            held = (m[m[JOIN_COMPUTED] + r] + now - m[m[JOIN_STEP] + r]) // block_size
            grow(m, f, r, held, held + 1)
            if m[ASYNC]:
                remember(m, f, r, held * block_size)
            r = m[m[CLASS_NEXT] + r]
        if not m[ASYNC]:
            r = m[m[CLASS_HEADS] + (-now - 1) % block_size]
            while r != NONE:
                remember(m, f, r, m[m[JOIN_COMPUTED] + r] + now - m[m[JOIN_STEP] + r] + 1)
                r = m[m[CLASS_NEXT] + r]
    else:
        m[FREE] -= m[m[CLASS_COUNTS] + filling]
    m[step + S_DECODE] += seqs
    m[step + S_KV] += m[LAZY_KV]
    m[step + S_LAZY] += seqs
    while m[FINISH_SIZE] > 0 and f[m[FINISH_FIRST]] <= now:
        r = m[m[FINISH_IDS]]
        key = f[m[FINISH_FIRST]]
        heap_drop(m, f, m[FINISH_FIRST], m[FINISH_SECOND], m[FINISH_IDS], m[FINISH_SIZE])
        m[FINISH_SIZE] -= 1
        if m[m[KIND] + r] == LAZY and m[m[FINAL_STEP] + r] == key:
            leave_lazy(m, f, r)
            m[m[COMPUTED] + r] += 1
            close(m, f, record, r)
    # The next step reads one token more of each that stays.
    m[LAZY_KV] += m[LAZY_SEQS]
