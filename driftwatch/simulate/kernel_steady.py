"""Steps in which every running request decodes and nothing else happens, one after the other.

What ``kernel_schedule.schedule`` and ``kernel_outputs.apply`` would do for such a step, in the same
order of floating-point operations, on local names: a long run is mostly these.
"""

from __future__ import annotations

from typing import Any

from driftwatch.simulate.kernel_layout import (
    APPLIED,
    ASYNC,
    BLOCK_SIZE,
    BUSY,
    C0,
    C2,
    C3,
    CACHE_MODE,
    CAPTURE_COUNT,
    CAPTURES,
    CLASS_COUNTS,
    DECODE_TOTAL,
    DEFERRED_COUNT,
    EXECUTING,
    FACTOR_AT,
    FACTOR_COUNT,
    FACTOR_TIMES,
    FACTORS,
    FINISH_FIRST,
    FINISH_SIZE,
    FREE,
    GAUGE_CAPACITY,
    GAUGE_DEFERRED,
    GAUGE_FREE,
    GAUGE_RUNNING,
    GENERATION_TOKENS,
    IDENTIFY_BLOCKS,
    ITERATION_COUNTS,
    ITERATION_EDGE_COUNT,
    ITERATION_EDGES,
    ITERATION_TOKENS,
    ITL_COUNT,
    ITL_COUNTS,
    ITL_EDGE_COUNT,
    ITL_EDGES,
    ITL_SUM,
    JITTER,
    JITTER_COUNT,
    KV_TOTAL,
    LAST_OUTPUT,
    LAZY_KV,
    LAZY_SEQS,
    NEVER,
    NONE,
    NOW,
    PAIRS,
    PENDING,
    PER_STEP,
    RANDOM_1,
    RANDOM_2,
    RECORDS,
    ROW_COUNT,
    ROW_ENDS,
    ROW_NUMBERS,
    ROW_STARTS,
    ROWS,
    RUN_COUNT,
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
    STALL_AT,
    STALL_COUNT,
    STALL_LENGTHS,
    STALL_TIMES,
    STEP,
    STEP_END,
    STEP_NUMBERS,
    STEP_START,
    STEPS_ALL,
    STEPS_OBSERVED,
    WAIT_COUNT,
)


def padded(m: Any, f: Any, decode_seqs: int) -> int:
    """Decoding requests as a CUDA graph runs them: up to the next captured size."""
    low = 0
    high = m[CAPTURE_COUNT]
    while low < high:
        middle = (low + high) // 2
        if m[m[CAPTURES] + middle] < decode_seqs:
            low = middle + 1
        else:
            high = middle
    if low < m[CAPTURE_COUNT]:
        return int(m[m[CAPTURES] + low])
    return decode_seqs


def draw(m: Any, f: Any) -> int:
    """Next number of L'Ecuyer's combined generator (CACM 31(6), 1988), below 2147483562."""
    m[RANDOM_1] = m[RANDOM_1] * 40014 % 2147483563
    m[RANDOM_2] = m[RANDOM_2] * 40692 % 2147483399
    drawn = m[RANDOM_1] - m[RANDOM_2]
    if drawn < 1:
        drawn += 2147483562
    return int(drawn - 1)


def disturbed(m: Any, f: Any, start: float, seconds: float) -> float:
    """A step's time with the wander factor of its start, jitter, and the stalls that hit it."""
    while m[FACTOR_AT] < m[FACTOR_COUNT] and f[m[FACTOR_TIMES] + m[FACTOR_AT]] <= start:
        m[FACTOR_AT] += 1
    if m[FACTOR_AT] > 0:
        seconds *= f[m[FACTORS] + m[FACTOR_AT] - 1]
    if m[JITTER_COUNT] > 0:
        seconds *= f[m[JITTER] + draw(m, f) % m[JITTER_COUNT]]
    while m[STALL_AT] < m[STALL_COUNT] and f[m[STALL_TIMES] + m[STALL_AT]] < start + seconds:
        seconds += f[m[STALL_LENGTHS] + m[STALL_AT]]
        m[STALL_AT] += 1
    return seconds


def write_row(m: Any, f: Any, record: int) -> None:
    """One row of the per-step table: what the schedule call left behind."""
    step = RECORDS + record * STEP_NUMBERS
    at = m[ROWS]
    f[m[ROW_STARTS] + at] = f[STEP_START]
    f[m[ROW_ENDS] + at] = f[STEP_END]
    row = m[ROW_NUMBERS] + 7 * at
    m[row] = m[step + S_PREFILL]
    m[row + 1] = m[step + S_DECODE]
    m[row + 2] = m[step + S_KV]
    m[row + 3] = m[step + S_RUNNING]
    m[row + 4] = m[step + S_WAITING]
    m[row + 5] = m[step + S_PREEMPTED]
    m[row + 6] = m[step + S_FREE]
    m[ROWS] += 1


def bucket_at(m: Any, f: Any, edges: int, count: int, value: float) -> int:
    """Index of the first edge that a value does not exceed."""
    low = 0
    high = count
    while low < high:
        middle = (low + high) // 2
        if f[edges + middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


def only_decodes(m: Any, f: Any, record: int) -> bool:
    """Whether a step brings each of the LAZY requests a token, not its last, and nothing else."""
    step = RECORDS + record * STEP_NUMBERS
    seqs = m[LAZY_SEQS]
    return bool(
        seqs > 0
        and m[step + S_LAZY] == seqs
        and m[step + S_DECODE] == seqs
        and m[step + S_PREFILL] == 0
        and m[step + S_TOKENS] == 0
        and m[step + S_ENDS] == 0
    )


def decode_on(m: Any, f: Any, until: float, event: float) -> None:
    """Apply the step that runs, schedule and start the next, while all of them only decode.

    Called where nobody can be admitted (``m[SETTLED]``); ``event`` is the soonest arrival,
    cancellation or scrape. Stops before the step that reaches it or ``until``, and before a step
    that brings a last token or lacks blocks.
    """
    record = m[EXECUTING]
    ahead = m[ASYNC]
    if not only_decodes(m, f, record) or (ahead and m[PENDING] == NONE):
        return
    per_step = m[PER_STEP]
    identify = m[CACHE_MODE] == IDENTIFY_BLOCKS
    classes = m[CLASS_COUNTS]
    block_size = m[BLOCK_SIZE]
    index = m[STEP]
    filling = (-index) % block_size
    free = m[FREE]
    seqs = m[LAZY_SEQS]
    kv = m[LAZY_KV]
    last = f[m[FINISH_FIRST]] if m[FINISH_SIZE] > 0 else NEVER
    undisturbed = m[FACTOR_COUNT] + m[JITTER_COUNT] + m[STALL_COUNT] == 0
    decoding = padded(m, f, seqs) if m[CAPTURE_COUNT] > 0 else seqs
    alone = f[C0] + f[C2] * decoding
    per_kv = f[C3]
    start = f[STEP_START]
    end = f[STEP_END]
    before = f[LAST_OUTPUT]
    busy = f[BUSY]
    itl_sum = f[ITL_SUM]
    below = NEVER  # the bucket of the interval before: above this edge,
    above = NEVER  # at most this one
    bucket = 0
    kv_total = 0
    steps = 0
    free_then = free
    while end < event and end <= until and last > index:
        fills = m[classes + filling]
        if fills > free or (per_step and m[ROWS] >= m[ROW_COUNT]):
            break
        if identify and (
            fills > 0 or (not ahead and m[classes + (filling + block_size - 1) % block_size] > 0)
        ):
            break
        step = RECORDS + record * STEP_NUMBERS
        if per_step:
            f[STEP_START] = start
            f[STEP_END] = end
            write_row(m, f, record)
        interval = end - before
        if not below < interval <= above:
            count = m[ITL_EDGE_COUNT]
            bucket = bucket_at(m, f, m[ITL_EDGES], count, interval)
            below = f[m[ITL_EDGES] + bucket - 1] if bucket > 0 else -NEVER
            above = f[m[ITL_EDGES] + bucket] if bucket < count else NEVER
            bucket += m[ITL_COUNTS]
        m[bucket] += seqs
        itl_sum += interval * seqs
        busy += end - start
        before = end
        kv_total += m[step + S_KV]
        free_then = free
        steps += 1
        free -= fills
        for i in range(S_FREE):
            m[step + i] = 0
        m[step + S_INDEX] = index
        m[step + S_DECODE] = seqs
        m[step + S_KV] = kv
        m[step + S_LAZY] = seqs
        m[step + S_RUNNING] = m[RUN_COUNT]
        m[step + S_WAITING] = m[WAIT_COUNT]
        m[step + S_FREE] = free
        f[PAIRS + record] = 0.0
        kv += seqs
        index += 1
        filling = filling - 1 if filling > 0 else block_size - 1
        if ahead:
            record = 1 - record
        seconds = alone + per_kv * m[RECORDS + record * STEP_NUMBERS + S_KV]
        start = end
        end = start + (seconds if undisturbed else disturbed(m, f, start, seconds))
    if steps == 0:
        return
    m[EXECUTING] = record
    if ahead:
        m[PENDING] = 1 - record
    m[STEP] = index
    m[APPLIED] += steps
    m[FREE] = free
    m[LAZY_KV] = kv
    f[NOW] = start
    f[STEP_START] = start
    f[STEP_END] = end
    f[LAST_OUTPUT] = before
    f[BUSY] = busy
    f[ITL_SUM] = itl_sum
    tokens = seqs * steps
    m[ITL_COUNT] += tokens
    m[STEPS_ALL] += steps
    m[STEPS_OBSERVED] += steps
    m[DECODE_TOTAL] += tokens
    m[GENERATION_TOKENS] += tokens
    m[ITERATION_TOKENS] += tokens
    m[KV_TOTAL] += kv_total
    m[
        m[ITERATION_COUNTS]
        + bucket_at(m, f, m[ITERATION_EDGES], m[ITERATION_EDGE_COUNT], float(seqs))
    ] += steps
    m[GAUGE_RUNNING] = m[RUN_COUNT]
    m[GAUGE_DEFERRED] = m[DEFERRED_COUNT]
    m[GAUGE_CAPACITY] = m[WAIT_COUNT] - m[DEFERRED_COUNT]
    m[GAUGE_FREE] = free_then
