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
    CANCEL_SIZE,
    CANCEL_STATUS,
    CHOSEN,
    CLOSING,
    COMPUTED,
    CONCURRENCY,
    DECODE_TOTAL,
    DEFERRED_COUNT,
    END,
    ENDED,
    EXECUTING,
    EXPLICIT,
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
    ITERATION_TOKENS,
    ITL_COUNT,
    ITL_SUM,
    JOIN_STEP,
    KIND,
    KV_TOTAL,
    LAST_COUNTER,
    LAST_OUTPUT,
    LAST_TOKEN,
    LAZY,
    LIVE,
    NEVER,
    NEXT_DUE,
    NEXT_RELEASED,
    NO_KIND,
    NONE,
    NOW,
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
    REJECTED,
    REJECTED_REQS,
    REJECTED_TOKENS,
    RELEASED,
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
    SCRAPES,
    STATUS,
    STEP_START,
    STEPS_ALL,
    STEPS_OBSERVED,
    TARGET,
    TIMED_OUT,
    TIMEOUT,
    WAIT_COUNT,
    WAITING,
)
from driftwatch.simulate.kernel_queues import (
    heap_drop,
    heap_push,
    stop_running,
    stop_waiting,
    wait,
)
from driftwatch.simulate.kernel_schedule import delivered, leave_lazy
from driftwatch.simulate.prefix_cache import blocks_of, release, remember


def next_arrival(t: Any) -> float:
    """When the next request arrives; NEVER."""
    numbers = t.numbers
    due = NEVER
    if numbers[NEXT_DUE] < t.settings[CONCURRENCY]:
        due = t.floats[ARRIVAL][numbers[NEXT_DUE]]
    if numbers[NEXT_RELEASED] < numbers[RELEASED]:
        due = min(due, t.floats[ARRIVAL][numbers[NEXT_RELEASED]])
    return float(due)


def next_cancel(t: Any) -> float:
    """When the next client inside gives up; NEVER."""
    numbers = t.numbers
    status = t.integers[STATUS]
    while numbers[CANCEL_SIZE] > 0:
        state = status[t.cancel_ids[0]]
        if state == WAITING or state == RUNNING or state == PREEMPTED:
            return float(t.cancel_first[0])
        heap_drop(t.cancel_first, t.cancel_second, t.cancel_ids, numbers[CANCEL_SIZE])
        numbers[CANCEL_SIZE] -= 1
    return NEVER


def end_request(t: Any, r: int, status: int, time: float) -> None:
    """A request is over; a closed loop sends the next one at once."""
    numbers = t.numbers
    t.integers[STATUS][r] = status
    t.integers[KIND][r] = NO_KIND
    t.floats[END][r] = time
    numbers[ENDED] += 1
    if numbers[RELEASED] < len(t.integers[STATUS]):
        t.floats[ARRIVAL][numbers[RELEASED]] = time
        numbers[RELEASED] += 1


def arrive(t: Any, r: int) -> None:
    """A request reaches the server: it waits, or the queue limits turn it away."""
    numbers = t.numbers
    settings = t.settings
    arrival = t.floats[ARRIVAL][r]
    given_up = arrival + t.rates[TIMEOUT]
    if given_up < t.floats[CANCEL][r]:
        t.floats[CANCEL][r] = given_up
        t.integers[CANCEL_STATUS][r] = TIMED_OUT
    t.floats[CANCEL][r] = max(t.floats[CANCEL][r], arrival)
    prompt = t.integers[PROMPT][r]
    if numbers[LIVE] >= settings[QUEUED_REQS] or (
        numbers[PREFILL_PROMPTS] >= settings[QUEUED_TOKENS]
    ):
        numbers[REJECTED_REQS] += 1
        numbers[REJECTED_TOKENS] += prompt
        end_request(t, r, REJECTED, arrival)
        return
    numbers[LIVE] += 1
    numbers[PREFILL_PROMPTS] += prompt
    t.integers[STATUS][r] = WAITING
    wait(t, r, False)
    if t.floats[CANCEL][r] < NEVER:
        heap_push(
            t.cancel_first,
            t.cancel_second,
            t.cancel_ids,
            numbers[CANCEL_SIZE],
            t.floats[CANCEL][r],
            0.0,
            r,
        )
        numbers[CANCEL_SIZE] += 1


def leave(t: Any, r: int, status: int, time: float) -> None:
    """A request that is inside goes, with its blocks."""
    numbers = t.numbers
    integers = t.integers
    if integers[STATUS][r] == RUNNING:
        release(t, r, blocks_of(integers[COMPUTED][r], t.settings[BLOCK_SIZE]))
        stop_running(t, r)
    else:
        stop_waiting(t, r)
    numbers[LIVE] -= 1
    if t.floats[FIRST_TOKEN][r] == NEVER:
        numbers[PREFILL_PROMPTS] -= integers[PROMPT][r]
    end_request(t, r, status, time)


def cancel(t: Any, r: int, time: float) -> None:
    """A client gives up: what the steps in flight bring it is not counted."""
    numbers = t.numbers
    integers = t.integers
    kind = integers[KIND][r]
    output = delivered(t, r)
    if kind == LAZY or (kind == CLOSING and integers[FINAL_STEP][r] != NONE):
        for i in range(2):
            record = numbers[EXECUTING] if i == 0 else numbers[PENDING]
            if record == NONE:
                continue
            step = t.records[record]
            if integers[JOIN_STEP][r] <= step[S_INDEX] and (
                kind == LAZY or integers[FINAL_STEP][r] >= step[S_INDEX]
            ):
                step[S_LAZY] -= 1
    if kind == LAZY:
        leave_lazy(t, r)
    elif kind == EXPLICIT:
        kept = 0
        for i in range(numbers[EXPLICITS]):
            if t.explicit[i] != r:
                t.explicit[kept] = t.explicit[i]
                kept += 1
        numbers[EXPLICITS] = kept
    integers[OUTPUT][r] = output
    leave(t, r, integers[CANCEL_STATUS][r], time)


def happen(t: Any, until: float, inclusive: bool) -> None:
    """Arrivals and cancellations up to a time, in their order."""
    numbers = t.numbers
    while True:
        arriving = next_arrival(t)
        leaving = next_cancel(t)
        soonest = min(arriving, leaving)
        if soonest > until or soonest == NEVER or (soonest == until and not inclusive):
            return
        if leaving < arriving:
            cancel(t, t.cancel_ids[0], leaving)
        elif (
            numbers[NEXT_DUE] < t.settings[CONCURRENCY]
            and t.floats[ARRIVAL][numbers[NEXT_DUE]] == arriving
        ):
            numbers[NEXT_DUE] += 1
            arrive(t, numbers[NEXT_DUE] - 1)
        else:
            numbers[NEXT_RELEASED] += 1
            arrive(t, numbers[NEXT_RELEASED] - 1)


def bucket_at(edges: Any, value: float) -> int:
    """Index of the first edge that a value does not exceed."""
    low = 0
    high = len(edges)
    while low < high:
        middle = (low + high) // 2
        if edges[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


def scrape(t: Any) -> None:
    """Write one scrape row."""
    numbers = t.numbers
    row = t.scrape_numbers[numbers[SCRAPES]]
    for i in range(FIRST_COUNTER, LAST_COUNTER + 1):
        row[i - FIRST_COUNTER] = numbers[i]
    after = LAST_COUNTER + 1 - FIRST_COUNTER
    row[after] = numbers[GAUGE_RUNNING]
    row[after + 1] = numbers[GAUGE_CAPACITY]
    row[after + 2] = numbers[GAUGE_DEFERRED]
    row[after + 3] = numbers[GAUGE_FREE]
    clocks = t.scrape_clocks[numbers[SCRAPES]]
    clocks[0] = t.clocks[BUSY]
    clocks[1] = t.clocks[ITL_SUM]
    buckets = t.scrape_itl[numbers[SCRAPES]]
    for i in range(len(t.itl_counts)):
        buckets[i] = t.itl_counts[i]
    buckets = t.scrape_iteration[numbers[SCRAPES]]
    for i in range(len(t.iteration_counts)):
        buckets[i] = t.iteration_counts[i]
    numbers[SCRAPES] += 1


def pass_time(t: Any, until: float, inclusive: bool) -> None:
    """Scrapes, arrivals and cancellations up to a time."""
    numbers = t.numbers
    while numbers[SCRAPES] < len(t.scrape_times):
        time = t.scrape_times[numbers[SCRAPES]]
        if time > until or (time == until and not inclusive):
            break
        happen(t, time, True)
        scrape(t)
    happen(t, until, inclusive)


def receive(t: Any, r: int, now: float) -> int:
    """A request gets a token of its own; prompt tokens to book with it (its first)."""
    numbers = t.numbers
    floats = t.floats
    booked = 0
    if floats[FIRST_TOKEN][r] == NEVER:
        floats[FIRST_TOKEN][r] = now
        prompt = t.integers[PROMPT][r]
        booked = prompt - t.integers[CACHED][r]
        numbers[PROMPT_TOKENS] += prompt
        numbers[PROMPT_COMPUTED] += booked
        numbers[PREFILL_PROMPTS] -= prompt
    else:
        interval = now - floats[LAST_TOKEN][r]
        numbers[ITL_COUNT] += 1
        t.clocks[ITL_SUM] += interval
        t.itl_counts[bucket_at(t.itl_edges, interval)] += 1
    floats[LAST_TOKEN][r] = now
    return int(booked)


def apply(t: Any, record: int) -> None:
    """The outputs of a step come: tokens, ends, metrics."""
    numbers = t.numbers
    integers = t.integers
    step = t.records[record]
    now = t.clocks[NOW]
    tokens = step[S_LAZY]
    prompts = 0
    if tokens > 0:
        interval = now - t.clocks[LAST_OUTPUT]
        numbers[ITL_COUNT] += tokens
        t.clocks[ITL_SUM] += interval * tokens
        t.itl_counts[bucket_at(t.itl_edges, interval)] += tokens
    ending = 0
    for i in range(step[S_TOKENS]):
        r = t.tokens[record][i]
        status = integers[STATUS][r]
        if status != RUNNING and status != PREEMPTED:
            continue
        tokens += 1
        prompts += receive(t, r, now)
        if integers[KIND][r] == LAZY:
            continue
        integers[OUTPUT][r] += 1
        if status == RUNNING and t.settings[ASYNC]:
            integers[AHEAD][r] -= 1
            remember(t, r, integers[COMPUTED][r] - integers[AHEAD][r])
        if integers[PROMPT][r] + integers[OUTPUT][r] >= integers[TARGET][r]:
            t.order[ending] = r
            ending += 1
    for i in range(step[S_ENDS]):
        r = t.ends[record][i]
        status = integers[STATUS][r]
        if status != RUNNING and status != PREEMPTED:
            continue
        integers[OUTPUT][r] = integers[TARGET][r] - integers[PROMPT][r]
        if status == RUNNING and t.settings[ASYNC]:
            remember(t, r, integers[COMPUTED][r])
        t.order[ending] = r
        ending += 1
    finish(t, ending, now)
    numbers[APPLIED] = step[S_INDEX]
    numbers[STEPS_ALL] += 1
    numbers[PREFILL_TOTAL] += step[S_PREFILL]
    numbers[DECODE_TOTAL] += step[S_DECODE]
    numbers[KV_TOTAL] += step[S_KV]
    numbers[GENERATION_TOKENS] += tokens
    if tokens > 0:
        numbers[STEPS_OBSERVED] += 1
        numbers[ITERATION_TOKENS] += tokens + prompts
        t.iteration_counts[bucket_at(t.iteration_edges, float(tokens + prompts))] += 1
    t.clocks[BUSY] += now - t.clocks[STEP_START]
    t.clocks[LAST_OUTPUT] = now
    numbers[GAUGE_RUNNING] = numbers[RUN_COUNT]
    numbers[GAUGE_DEFERRED] = numbers[DEFERRED_COUNT]
    numbers[GAUGE_CAPACITY] = numbers[WAIT_COUNT] - numbers[DEFERRED_COUNT]
    numbers[GAUGE_FREE] = numbers[FREE]


def finish(t: Any, ending: int, now: float) -> None:
    """Requests that got their last token go, in the order of the running list.

    The order decides which of their blocks are overwritten first.
    """
    integers = t.integers
    if ending < 2 or t.settings[CACHE_MODE] != IDENTIFY_BLOCKS:
        for i in range(ending):
            leave(t, t.order[i], FINISHED, now)
        return
    for i in range(ending):
        r = t.order[i]
        if integers[STATUS][r] == RUNNING:
            integers[CHOSEN][r] = NONE
        else:
            leave(t, r, FINISHED, now)
    r = t.numbers[RUN_HEAD]
    while r != NONE:
        following = integers[RUN_NEXT][r]
        if integers[CHOSEN][r] == NONE:
            integers[CHOSEN][r] = 0
            leave(t, r, FINISHED, now)
        r = following
