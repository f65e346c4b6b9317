"""What happens between schedule calls: arrivals, cancellations, the outputs of a step, scrapes."""

from __future__ import annotations

from typing import Any

from driftwatch.simulate.kernel_layout import (
    AHEAD,
    APPLIED,
    ARRIVAL,
    ASYNC,
    BLOCK_SIZE,
    BUSY,
    CACHE_MODE,
    CACHED,
    CANCEL,
    CANCEL_FIRST,
    CANCEL_IDS,
    CANCEL_SECOND,
    CANCEL_SIZE,
    CANCEL_STATUS,
    CHOSEN,
    CLOSING,
    COMPUTED,
    CONCURRENCY,
    DECODE_TOTAL,
    END,
    ENDED,
    ENDS,
    EXECUTING,
    EXPLICIT,
    EXPLICIT_LIST,
    EXPLICITS,
    FINAL_STEP,
    FINISHED,
    FIRST_COUNTER,
    FIRST_TOKEN,
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
    JOIN_STEP,
    KIND,
    KV_TOTAL,
    LAST_COUNTER,
    LAST_OUTPUT,
    LAST_TOKEN,
    LAZY,
    LEFT_DEFERRED,
    LEFT_WAITING,
    LIVE,
    NEVER,
    NEXT_DUE,
    NEXT_RELEASED,
    NO_KIND,
    NONE,
    NOW,
    ORDER,
    OUTPUT,
    PENDING,
    PREEMPTED,
    PREFILL_PROMPTS,
    PREFILL_TOTAL,
    PROMPT,
    PROMPT_COMPUTED,
    PROMPT_TOKENS,
    QUEUED_REQS,
    QUEUED_TOKENS,
    RECORDS,
    REJECTED,
    REJECTED_REQS,
    REJECTED_TOKENS,
    RELEASED,
    REQUESTS,
    ROOM,
    RUN_COUNT,
    RUN_HEAD,
    RUN_NEXT,
    RUNNING,
    S_DECODE,
    S_ENDS,
    S_INDEX,
    S_KV,
    S_LAZY,
    S_PREFILL,
    S_TOKENS,
    SCRAPE_CLOCKS,
    SCRAPE_COUNT,
    SCRAPE_ITERATION,
    SCRAPE_ITL,
    SCRAPE_NUMBERS,
    SCRAPE_TIMES,
    SCRAPES,
    STATUS,
    STEP_NUMBERS,
    STEP_START,
    STEPS_ALL,
    STEPS_OBSERVED,
    TARGET,
    TIMED_OUT,
    TIMEOUT,
    TOKENS,
    WAITING,
)
from driftwatch.simulate.kernel_lazy import delivered, leave_lazy
from driftwatch.simulate.kernel_queues import (
    heap_drop,
    heap_push,
    stop_running,
    stop_waiting,
    wait,
)
from driftwatch.simulate.kernel_steady import bucket_at
from driftwatch.simulate.prefix_cache import blocks_of, release, remember


def next_arrival(m: Any, f: Any) -> float:
    """When the next request arrives; NEVER."""
    due = NEVER
    if m[NEXT_DUE] < m[CONCURRENCY]:
        due = f[m[ARRIVAL] + m[NEXT_DUE]]
    if m[NEXT_RELEASED] < m[RELEASED]:
        due = min(due, f[m[ARRIVAL] + m[NEXT_RELEASED]])
    return float(due)


def next_cancel(m: Any, f: Any) -> float:
    """When the next client inside gives up; NEVER."""
    while m[CANCEL_SIZE] > 0:
        state = m[m[STATUS] + m[m[CANCEL_IDS]]]
        if state in (WAITING, RUNNING, PREEMPTED):
            return float(f[m[CANCEL_FIRST]])
        heap_drop(m, f, m[CANCEL_FIRST], m[CANCEL_SECOND], m[CANCEL_IDS], m[CANCEL_SIZE])
        m[CANCEL_SIZE] -= 1
    return NEVER


def end_request(m: Any, f: Any, r: int, status: int, time: float) -> None:
    """A request is over; a closed loop sends the next one at once, as patient as it was."""
    m[m[STATUS] + r] = status
    m[m[KIND] + r] = NO_KIND
    f[m[END] + r] = time
    m[ENDED] += 1
    following = m[RELEASED]
    if following < m[REQUESTS]:
        f[m[CANCEL] + following] += time
        f[m[ARRIVAL] + following] = time
        m[RELEASED] += 1


def arrive(m: Any, f: Any, r: int) -> None:
    """A request reaches the server: it waits, or the queue limits turn it away."""
    arrival = f[m[ARRIVAL] + r]
    given_up = arrival + f[TIMEOUT]
    if given_up < f[m[CANCEL] + r]:
        f[m[CANCEL] + r] = given_up
        m[m[CANCEL_STATUS] + r] = TIMED_OUT
    f[m[CANCEL] + r] = max(f[m[CANCEL] + r], arrival)
    prompt = m[m[PROMPT] + r]
    too_many = m[LIVE] >= m[QUEUED_REQS]
    if too_many or m[PREFILL_PROMPTS] >= m[QUEUED_TOKENS]:
        # counted under one reason, the requests' before the tokens' (async_llm.py)
        if too_many:
            m[REJECTED_REQS] += 1
        else:
            m[REJECTED_TOKENS] += 1
        end_request(m, f, r, REJECTED, arrival)
        return
    m[LIVE] += 1
    m[PREFILL_PROMPTS] += prompt
    m[m[STATUS] + r] = WAITING
    wait(m, f, r, False)
    if f[m[CANCEL] + r] < NEVER:
        heap_push(
            m,
            f,
            m[CANCEL_FIRST],
            m[CANCEL_SECOND],
            m[CANCEL_IDS],
            m[CANCEL_SIZE],
            f[m[CANCEL] + r],
            0.0,
            r,
        )
        m[CANCEL_SIZE] += 1


def leave(m: Any, f: Any, r: int, status: int, time: float) -> None:
    """A request that is inside goes, with its blocks."""
    if m[m[STATUS] + r] == RUNNING:
        release(m, f, r, blocks_of(m[m[COMPUTED] + r], m[BLOCK_SIZE]))
        stop_running(m, f, r)
    else:
        stop_waiting(m, f, r)
    m[LIVE] -= 1
    if f[m[FIRST_TOKEN] + r] == NEVER:
        m[PREFILL_PROMPTS] -= m[m[PROMPT] + r]
    end_request(m, f, r, status, time)


def cancel(m: Any, f: Any, r: int, time: float) -> None:
    """A client gives up: what the steps in flight bring it is not counted."""
    kind = m[m[KIND] + r]
    output = delivered(m, f, r)
    closing = kind == CLOSING or m[m[STATUS] + r] == PREEMPTED  # or was closing till preempted
    if kind == LAZY or (closing and m[m[FINAL_STEP] + r] != NONE):
        for i in range(2):
            record = m[EXECUTING] if i == 0 else m[PENDING]
            if record == NONE:
                continue
            step = RECORDS + record * STEP_NUMBERS
            if m[m[JOIN_STEP] + r] <= m[step + S_INDEX] and (
                kind == LAZY or m[m[FINAL_STEP] + r] >= m[step + S_INDEX]
            ):
                m[step + S_LAZY] -= 1
    if kind == LAZY:
        leave_lazy(m, f, r)
    elif kind == EXPLICIT:
        kept = 0
        for i in range(m[EXPLICITS]):
            if m[m[EXPLICIT_LIST] + i] != r:
                m[m[EXPLICIT_LIST] + kept] = m[m[EXPLICIT_LIST] + i]
                kept += 1
        m[EXPLICITS] = kept
    m[m[OUTPUT] + r] = output
    leave(m, f, r, m[m[CANCEL_STATUS] + r], time)


def happen(m: Any, f: Any, until: float, inclusive: bool) -> None:
    """Arrivals and cancellations up to a time, in their order."""
    while True:
        arriving = next_arrival(m, f)
        leaving = next_cancel(m, f)
        soonest = min(arriving, leaving)
        if soonest > until or soonest == NEVER or (soonest == until and not inclusive):
            return
        if leaving < arriving:
            cancel(m, f, m[m[CANCEL_IDS]], leaving)
        elif m[NEXT_DUE] < m[CONCURRENCY] and f[m[ARRIVAL] + m[NEXT_DUE]] == arriving:
            m[NEXT_DUE] += 1
            arrive(m, f, m[NEXT_DUE] - 1)
        else:
            m[NEXT_RELEASED] += 1
            arrive(m, f, m[NEXT_RELEASED] - 1)


def scrape(m: Any, f: Any) -> None:
    """Write one scrape row."""
    at = m[SCRAPES]
    counters = LAST_COUNTER + 1 - FIRST_COUNTER
    row = m[SCRAPE_NUMBERS] + at * (counters + 4)
    for i in range(counters):
        m[row + i] = m[FIRST_COUNTER + i]
    m[row + counters] = m[GAUGE_RUNNING]
    m[row + counters + 1] = m[GAUGE_CAPACITY]
    m[row + counters + 2] = m[GAUGE_DEFERRED]
    m[row + counters + 3] = m[GAUGE_FREE]
    f[m[SCRAPE_CLOCKS] + 2 * at] = f[BUSY]
    f[m[SCRAPE_CLOCKS] + 2 * at + 1] = f[ITL_SUM]
    width = m[ITL_EDGE_COUNT] + 1
    for i in range(width):
        m[m[SCRAPE_ITL] + at * width + i] = m[m[ITL_COUNTS] + i]
    width = m[ITERATION_EDGE_COUNT] + 1
    for i in range(width):
        m[m[SCRAPE_ITERATION] + at * width + i] = m[m[ITERATION_COUNTS] + i]
    m[SCRAPES] += 1


def pass_time(m: Any, f: Any, until: float, inclusive: bool) -> None:
    """Scrapes, arrivals and cancellations up to a time."""
    while m[SCRAPES] < m[SCRAPE_COUNT]:
        time = f[m[SCRAPE_TIMES] + m[SCRAPES]]
        if time > until or (time == until and not inclusive):
            break
        happen(m, f, time, True)
        scrape(m, f)
    happen(m, f, until, inclusive)


def receive(m: Any, f: Any, r: int, now: float) -> int:
    """A request gets a token of its own; prompt tokens to book with it (its first)."""
    booked = 0
    if f[m[FIRST_TOKEN] + r] == NEVER:
        f[m[FIRST_TOKEN] + r] = now
        prompt = m[m[PROMPT] + r]
        booked = prompt - m[m[CACHED] + r]
        m[PROMPT_TOKENS] += prompt
        m[PROMPT_COMPUTED] += booked
        m[PREFILL_PROMPTS] -= prompt
    else:
        interval = now - f[m[LAST_TOKEN] + r]
        m[ITL_COUNT] += 1
        f[ITL_SUM] += interval
        m[m[ITL_COUNTS] + bucket_at(m, f, m[ITL_EDGES], m[ITL_EDGE_COUNT], interval)] += 1
    f[m[LAST_TOKEN] + r] = now
    return int(booked)


def apply(m: Any, f: Any, record: int) -> None:
    """The outputs of a step come: tokens, ends, metrics."""
    step = RECORDS + record * STEP_NUMBERS
    now = f[NOW]
    tokens = m[step + S_LAZY]
    prompts = 0
    if tokens > 0:
        interval = now - f[LAST_OUTPUT]
        m[ITL_COUNT] += tokens
        f[ITL_SUM] += interval * tokens
        m[m[ITL_COUNTS] + bucket_at(m, f, m[ITL_EDGES], m[ITL_EDGE_COUNT], interval)] += tokens
    ending = 0
    for i in range(m[step + S_TOKENS]):
        r = m[m[TOKENS] + record * m[ROOM] + i]
        status = m[m[STATUS] + r]
        if status != RUNNING and status != PREEMPTED:
            continue
        tokens += 1
        prompts += receive(m, f, r, now)
        kind = m[m[KIND] + r]
        if kind == LAZY or (kind == CLOSING and m[m[FINAL_STEP] + r] != NONE):
            continue  # it went on decoding meanwhile: its count follows from the steps
        m[m[OUTPUT] + r] += 1
        if status == RUNNING and m[ASYNC]:
            m[m[AHEAD] + r] -= 1
            remember(m, f, r, m[m[COMPUTED] + r] - m[m[AHEAD] + r])
        if m[m[PROMPT] + r] + m[m[OUTPUT] + r] >= m[m[TARGET] + r]:
            m[m[ORDER] + ending] = r
            ending += 1
    for i in range(m[step + S_ENDS]):
        r = m[m[ENDS] + record * m[ROOM] + i]
        status = m[m[STATUS] + r]
        if status != RUNNING and status != PREEMPTED:
            continue
        m[m[OUTPUT] + r] = m[m[TARGET] + r] - m[m[PROMPT] + r]
        if status == RUNNING and m[ASYNC]:
            remember(m, f, r, m[m[COMPUTED] + r])
        m[m[ORDER] + ending] = r
        ending += 1
    finish(m, f, ending, now)
    m[APPLIED] = m[step + S_INDEX]
    m[STEPS_ALL] += 1
    m[PREFILL_TOTAL] += m[step + S_PREFILL]
    m[DECODE_TOTAL] += m[step + S_DECODE]
    m[KV_TOTAL] += m[step + S_KV]
    m[GENERATION_TOKENS] += tokens
    if tokens > 0:
        m[STEPS_OBSERVED] += 1
        m[ITERATION_TOKENS] += tokens + prompts
        m[
            m[ITERATION_COUNTS]
            + bucket_at(m, f, m[ITERATION_EDGES], m[ITERATION_EDGE_COUNT], float(tokens + prompts))
        ] += 1
    f[BUSY] += now - f[STEP_START]
    f[LAST_OUTPUT] = now
    gauge(m, m[LEFT_WAITING], m[LEFT_DEFERRED])


def gauge(m: Any, waiting: int, deferred: int) -> None:
    """Publish the gauges: who runs, who of the waiting is deferred, the free blocks."""
    m[GAUGE_RUNNING] = m[RUN_COUNT]
    m[GAUGE_DEFERRED] = deferred
    m[GAUGE_CAPACITY] = waiting - deferred
    m[GAUGE_FREE] = m[FREE]


def finish(m: Any, f: Any, ending: int, now: float) -> None:
    """Requests that got their last token go, in the order of the running list.

    The order decides which of their blocks are overwritten first.
    """
    if ending < 2 or m[CACHE_MODE] != IDENTIFY_BLOCKS:
        for i in range(ending):
            leave(m, f, m[m[ORDER] + i], FINISHED, now)
        return
    for i in range(ending):
        r = m[m[ORDER] + i]
        if m[m[STATUS] + r] == RUNNING:
            m[m[CHOSEN] + r] = NONE
        else:
            leave(m, f, r, FINISHED, now)
    r = m[RUN_HEAD]
    while r != NONE:
        following = m[m[RUN_NEXT] + r]
        if m[m[CHOSEN] + r] == NONE:
            m[m[CHOSEN] + r] = 0
            leave(m, f, r, FINISHED, now)
        r = following
