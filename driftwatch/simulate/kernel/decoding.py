"""Requests that only decode are LAZY: a step writes nothing for them.

A LAZY request takes one token in every step from join_step to final_step; its computed tokens and
its blocks follow from the number of the step. Requests whose blocks fill in the same steps form a
class (there are block_size of them), so that a step knows how many blocks it needs. A request that
does not decode in every step is EXPLICIT: it prefills, or a step left it out for lack of budget or
blocks. A CLOSING request waits for its last token.
"""

from __future__ import annotations

from typing import Any

from driftwatch.simulate.kernel.blocks import grow, remember
from driftwatch.simulate.kernel.compiling import compiled
from driftwatch.simulate.kernel.lists import heap_drop, heap_push, insert, remove
from driftwatch.simulate.kernel.tables import CLOSING, EXPLICIT, IDENTIFY_BLOCKS, LAZY, NONE


@compiled
def computed_at(e: Any, t: Any, r: int) -> int:
    """Computed tokens of a LAZY request before the step being scheduled."""
    request = t.requests[r]
    return request.join_computed + e.step - request.join_step


@compiled
def class_of(e: Any, t: Any, r: int) -> int:
    """LAZY requests of one class fill their blocks in the same steps."""
    request = t.requests[r]
    return (request.join_computed - request.join_step) % e.block_size


@compiled
def join_lazy(e: Any, t: Any, r: int, computed: int, step: int) -> None:
    """Make a request LAZY: from ``step`` on it decodes in every step until its last."""
    request = t.requests[r]
    request.kind = LAZY
    request.join_step = step
    request.join_computed = computed
    request.final_step = step + request.target - 2 - computed
    e.lazy_seqs += 1
    e.lazy_kv += computed + 1
    own = class_of(e, t, r)
    t.class_counts[own] += 1
    if e.cache_mode == IDENTIFY_BLOCKS:
        insert(t.classes, e.block_size + r, t.classes[own].next)
    if e.finishing >= len(t.finishes):
        rebuild_finishes(e, t)
    heap_push(t.finishes, e.finishing, float(request.final_step), 0.0, r)
    e.finishing += 1


@compiled
def rebuild_finishes(e: Any, t: Any) -> None:
    """Drop the dead entries of the heap of last steps."""
    e.finishing = 0
    r = t.running[NONE].next
    while r != NONE:
        request = t.requests[r]
        if request.kind == LAZY:
            heap_push(t.finishes, e.finishing, float(request.final_step), 0.0, r)
            e.finishing += 1
        r = t.running[r].next


@compiled
def leave_lazy(e: Any, t: Any, r: int) -> None:
    """Take a request out of the LAZY ones, and write its computed tokens."""
    request = t.requests[r]
    request.computed = computed_at(e, t, r)
    e.lazy_seqs -= 1
    e.lazy_kv -= request.computed + 1
    t.class_counts[class_of(e, t, r)] -= 1
    if e.cache_mode == IDENTIFY_BLOCKS:
        remove(t.classes, e.block_size + r)


@compiled
def counted_by_steps(t: Any, r: int) -> bool:
    """Whether a request's tokens follow from the number of the step."""
    request = t.requests[r]
    return request.kind == LAZY or (request.kind == CLOSING and request.final_step != NONE)


@compiled
def delivered(e: Any, t: Any, r: int) -> int:
    """Tokens that the client of a request has got."""
    request = t.requests[r]
    if not counted_by_steps(t, r):
        return request.output
    steps = max(e.applied - request.join_step + 2, 0)
    return request.join_computed + steps - request.prompt


@compiled
def add_token(t: Any, record: int, r: int) -> None:
    """Note that the step brings an explicit request a token."""
    step = t.steps[record]
    t.tokens[record, step.tokens] = r
    step.tokens += 1


@compiled
def close(e: Any, t: Any, record: int, r: int) -> None:
    """Note that the step brings the last token of a LAZY request."""
    leave_lazy(e, t, r)
    step = t.steps[record]
    request = t.requests[r]
    request.computed += 1
    request.kind = CLOSING
    request.final_step = e.step
    t.ends[record, step.ends] = r
    step.ends += 1


@compiled
def stop_decoding(e: Any, t: Any, r: int) -> None:
    """Write the numbers of a LAZY request that gets no token in this step.

    With asynchronous scheduling the step in flight still brings it one token. If that is its first
    after a prefill, the step already has it among its explicit ones.
    """
    request = t.requests[r]
    leave_lazy(e, t, r)
    request.output = request.computed + 1 - e.async_scheduling - request.prompt
    request.ahead = e.async_scheduling
    if not e.async_scheduling:
        request.last_token = e.now
    elif request.join_step <= t.steps[e.pending].index:
        request.last_token = e.now
        t.steps[e.pending].lazy -= 1
        add_token(t, e.pending, r)


@compiled
def commit(e: Any, t: Any, record: int, r: int, n: int) -> None:
    """Let the step compute n tokens of an explicit request."""
    step = t.steps[record]
    request = t.requests[r]
    computed = request.computed
    if n == 1 and computed >= request.prompt:
        step.decode_seqs += 1
        step.kv_tokens_read += computed + 1
    else:
        step.prefill_tokens += n
        step.pairs += float(n) * computed + n * (n + 1) / 2
    brings = computed + n == request.prompt + request.output + request.ahead
    computed += n
    request.computed = computed
    if not brings:
        request.kind = EXPLICIT
        return
    add_token(t, record, r)
    if e.async_scheduling:
        request.ahead += 1
    if computed >= request.target - 1:
        request.kind = CLOSING
        request.final_step = NONE
    else:
        join_lazy(e, t, r, computed, e.step + 1)


@compiled
def fill_blocks(e: Any, t: Any) -> None:
    """Give LAZY requests a block whose next token begins one; key the full ones."""
    filling = (-e.step) % e.block_size
    if e.cache_mode != IDENTIFY_BLOCKS:
        e.free -= t.class_counts[filling]
        return
    at = t.classes[filling].next
    while at >= e.block_size:
        r = at - e.block_size
        filled = computed_at(e, t, r) // e.block_size
        grow(e, t, r, filled, filled + 1)
        if e.async_scheduling:
            remember(e, t, r, filled * e.block_size)
        at = t.classes[at].next
    if not e.async_scheduling:
        at = t.classes[(-e.step - 1) % e.block_size].next
        while at >= e.block_size:
            r = at - e.block_size
            remember(e, t, r, computed_at(e, t, r) + 1)
            at = t.classes[at].next


@compiled
def advance_lazy(e: Any, t: Any, record: int) -> None:
    """Let all LAZY requests decode one token in the step."""
    if e.lazy_seqs == 0:
        return
    fill_blocks(e, t)
    step = t.steps[record]
    step.decode_seqs += e.lazy_seqs
    step.kv_tokens_read += e.lazy_kv
    step.lazy += e.lazy_seqs
    while e.finishing > 0 and t.finishes[0].first <= e.step:
        final = t.finishes[0].first
        r = t.finishes[0].id
        heap_drop(t.finishes, e.finishing)
        e.finishing -= 1
        request = t.requests[r]
        if request.kind == LAZY and request.final_step == final:
            close(e, t, record, r)
    e.lazy_kv += e.lazy_seqs  # the next step reads one token more of each remaining request
