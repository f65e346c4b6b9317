"""The kernel's data: structured arrays, and the numbers of states."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

# Status of a request.
UNSENT, WAITING, RUNNING, PREEMPTED, FINISHED, REJECTED, CANCELLED, TIMED_OUT = range(8)
# How a running request is counted (see ``decoding``).
NO_KIND, EXPLICIT, LAZY, CLOSING = range(4)
# How KV blocks are modelled: the number of free ones, or the text of each.
COUNT_BLOCKS, IDENTIFY_BLOCKS = range(2)
# Why an engine makes no progress.
NOBODY_ADMITTED, PREEMPTING_FOR_EVER = 1, 2

NO_OWNER = -(1 << 40)
NONE = -1
NEVER = float("inf")
ENDLESS = 1 << 40  # no limit


def _record(whole: str, real: str = "", short: str = "", tiny: str = "") -> np.dtype[np.void]:
    kinds = ((real, np.float64), (whole, np.int64), (short, np.int32), (tiny, np.int8))
    return np.dtype([(name, kind) for names, kind in kinds for name in names.split()], align=True)


# target: tokens at which it ends, at most max_model_len
# owner: owner of the text of its first shared_blocks blocks (-1 - group)
# serial: its number among all offered requests
# given: cached tokens given with it; NONE = look up
# computed: vLLM's num_computed_tokens, output: tokens delivered, ahead: tokens that a step in
#   flight will bring (out of date while LAZY)
# chosen: tokens that the current schedule call gives it
# cached: prefix hit at the first admission
# join_step: LAZY: from this step on it decodes in every step; join_computed: computed before it
# final_step: LAZY, CLOSING: the last step it is in
# slot: its row of the block table; keyed: number of its blocks with a key
# deferred: set aside for its adapter
# arrival to end: seconds, NEVER = not yet
REQUEST = _record(
    "priority",
    "arrival cancel first_scheduled first_token last_token end",
    "prompt target owner serial shared_blocks given adapter computed output ahead chosen "
    "preemptions cached join_step join_computed final_step slot keyed",
    "cancel_status status kind deferred",
)
LINK = _record("next previous")  # see ``lists``
BLOCK = _record("references owner index chain")
HEAP = _record("id", "first second")
# A time from which a value holds (step-time factor), or at which it happens (length of a stall).
TIMED = _record("", "seconds value")
# A scheduled step, and a row of the per-step table. lazy: LAZY requests that get a token ·
# tokens: explicit ones that get a token · ends: LAZY ones that get their last token · running to
# free_blocks: after the schedule call.
STEP = _record(
    "index prefill_tokens decode_seqs kv_tokens_read lazy tokens ends running waiting preempted "
    "free_blocks",
    "pairs start_seconds end_seconds",
)
# Values of a scrape: gauges of the last step that ended, and counts since the engine's start.
COUNTERS = _record(
    "running waiting_capacity waiting_deferred free_blocks "
    "steps_observed steps_all iteration_tokens_sum itl_seconds_count prompt_tokens "
    "prompt_tokens_computed generation_tokens preemptions prefix_queries_tokens prefix_hits_tokens "
    "rejected_reqs rejected_tokens decode_seqs_total prefill_tokens_total kv_tokens_read_total "
    "empty_schedules evicted_blocks",
    "busy_seconds itl_seconds_sum",
)
# Settings and the step-time model under their own names, no limit as ENDLESS; and:
# step: the next to be scheduled; applied: the last one with outputs
# executing, pending: the step record that runs, and the scheduled one that has not started; NONE
# lazy_kv: context tokens that the LAZY requests read in the next step
# concurrency: requests that arrive by themselves; the others arrive when one ends
# next_due, next_released: the next to arrive of each; released: number of others with a time
# live: requests inside; live_tokens: their targets; prefill_prompts: prompt tokens of those
#   without a first token
# full: the per-step table is full
# progress_step: the first step after the last arrival or end
# settled: no request can be admitted until one arrives, ends, or gets no token
# left_waiting, left_deferred: counts after the last schedule call; requests that arrive during a
#   step are not in the engine yet
ENGINE = _record(
    "max_num_batched_tokens block_size max_model_len max_num_active_seqs "
    "long_prefill_token_threshold long_prefill_token_threshold_adaptive enable_chunked_prefill "
    "scheduler_reserve_full_isl enable_prefix_caching async_scheduling max_num_queued_reqs "
    "max_num_queued_tokens max_loras watermark_blocks by_priority hinge_tokens per_step "
    "total_blocks cache_mode concurrency "
    "step applied executing pending lazy_seqs lazy_kv explicits run_count wait_count "
    "deferred_count free unkeyed next_due next_released released live live_tokens prefill_prompts "
    "adapters_in_step factor_at stall_at random_1 random_2 rows scrapes full stuck progress_step "
    "settled free_slots finishing cancelling wait_size left_waiting left_deferred",
    "now step_end last_output timeout_seconds c0_seconds c1_seconds_per_prefill_token "
    "c2_seconds_per_decode_seq c3_seconds_per_kv_token c4_seconds_per_prefill_pair",
)


class Tables(NamedTuple):
    """An engine's whole state."""

    engine: Any  # its one ENGINE record
    counters: Any  # its one COUNTERS record
    requests: Any  # REQUEST records, in the order of arrival
    running: Any  # LINKs of the running list
    waiting: Any  # LINKs of the waiting queue, first come first served
    steps: Any  # STEP records: the two that may be in flight, and a blank one
    tokens: Any  # for each of the two, the explicit requests that get a token
    ends: Any  # for each of the two, the LAZY requests that get their last token
    explicit: Any  # EXPLICIT requests in the order of the running list
    order: Any  # scratch: requests in the order of the running list, or those that end
    kinds: Any  # scratch: their kinds
    # class_counts, classes: LAZY requests whose blocks fill in the same steps: how many and, with
    # identified blocks, LINKs of a list for each; the lists' ends are the first block_size
    class_counts: Any
    classes: Any
    finishes: Any  # heap of (last step, LAZY request)
    cancels: Any  # heap of (time, request whose client gives up then)
    waits: Any  # heap of (priority, arrival, request), by the priority policy
    adapters: Any  # the step that last used each
    blocks: Any  # BLOCK records
    free_queue: Any  # LINKs of the free blocks with a text
    buckets: Any  # newest block of each chain of the hash table; its size is a power of two
    unkeyed: Any  # free blocks without a text
    table: Any  # blocks of each running request, a row each
    slots: Any  # free rows of the table
    hits: Any  # scratch: blocks of a prefix hit
    # itl_edges, itl_counts: finite edges and counts of inter_token_latency_seconds
    itl_edges: Any
    itl_counts: Any
    # iteration_edges, iteration_counts: of iteration_tokens_total
    iteration_edges: Any
    iteration_counts: Any
    # scrape_times, scraped: COUNTERS at each of these times
    scrape_times: Any
    scraped: Any
    # scraped_itl, scraped_iteration: histograms' counts at these times
    scraped_itl: Any
    scraped_iteration: Any
    captures: Any  # CUDA-graph sizes (real numbers)
    # factors, stalls: TIMED records
    factors: Any
    stalls: Any
    jitter: Any  # equally likely factors on a step's time
    rows: Any  # STEP records of the steps that ended
