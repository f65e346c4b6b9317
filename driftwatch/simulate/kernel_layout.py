"""Where the kernel keeps what, by name.

The kernel's state is two flat arrays, ``m`` of whole and ``f`` of real numbers, so that one source
runs compiled over NumPy arrays (two arguments compile in seconds, fifty in a minute) and, where
Numba is absent, over plain lists. Each begins with a header of named places. A table's place in the
header says where the table begins: ``m[m[STATUS] + r]`` is the status of request r, and
``f[m[ARRIVAL] + r]`` its arrival.
"""

from __future__ import annotations

# Tables of whole numbers, one entry a request.
(
    PROMPT,  # prompt tokens
    TARGET,  # tokens at which it ends: prompt + generation, at most max_model_len
    PRIORITY,
    OWNER,  # whose text the first SHARED_BLOCKS blocks are: -1 - group
    SERIAL,  # its own number, for blocks that only it can hit
    SHARED_BLOCKS,
    GIVEN,  # cached tokens given with it, -1 = look up
    ADAPTER,
    CANCEL_STATUS,
    STATUS,
    KIND,
    COMPUTED,  # vLLM's num_computed_tokens (not kept while LAZY)
    OUTPUT,  # tokens delivered (not kept while LAZY)
    AHEAD,  # tokens that a step in flight will bring (asynchronous; not kept while LAZY)
    CHOSEN,  # tokens given by the schedule call going on
    PREEMPTED_TIMES,
    CACHED,  # prefix hit at the first admission
    JOIN_STEP,  # LAZY: the step from which it decodes in every step
    JOIN_COMPUTED,  # LAZY: its computed tokens before that step
    FINAL_STEP,  # LAZY, CLOSING: the last step it is in
    RUN_NEXT,
    RUN_PREVIOUS,
    WAIT_NEXT,
    WAIT_PREVIOUS,
    CLASS_NEXT,  # LAZY, with identified blocks: others whose blocks fill in the same steps
    CLASS_PREVIOUS,
    SLOT,  # its row in the block table
    KEYED,  # its blocks that have a key
    DEFERRED,  # set aside for its adapter
) = range(29)
REQUEST_INTEGERS = 29

# Tables of real numbers, one entry a request: seconds, NEVER where they have not come.
ARRIVAL, CANCEL, FIRST_SCHEDULED, FIRST_TOKEN, LAST_TOKEN, END = range(29, 35)
FIRST_FLOAT = ARRIVAL
REQUEST_FLOATS = 6

# Tables of whole numbers, one entry a block (and one more: both ends of the free queue).
B_NEXT, B_PREVIOUS, B_REFERENCES, B_OWNER, B_INDEX, B_CHAIN = range(35, 41)
FIRST_BLOCK_TABLE = B_NEXT
BLOCK_TABLES = 6

# Other tables of whole numbers.
(
    TOKENS,
    ENDS,
    EXPLICIT_LIST,
    ORDER,
    WAS_LAZY,
    CLASS_COUNTS,
    CLASS_HEADS,
    FINISH_IDS,
    CANCEL_IDS,
    WAIT_IDS,
    ADAPTERS,
    BUCKETS,
    UNKEYED_BLOCKS,
    TABLE,
    SLOTS,
    HITS,
    GROUP_BLOCKS,
    ITL_COUNTS,
    ITERATION_COUNTS,
    SCRAPE_NUMBERS,
    SCRAPE_ITL,
    SCRAPE_ITERATION,
    CAPTURES,
    ROW_NUMBERS,
) = range(41, 65)

# Other tables of real numbers (their places are in ``m`` too).
(
    FINISH_FIRST,
    FINISH_SECOND,
    CANCEL_FIRST,
    CANCEL_SECOND,
    WAIT_FIRST,
    WAIT_SECOND,
    ITL_EDGES,
    ITERATION_EDGES,
    SCRAPE_TIMES,
    SCRAPE_CLOCKS,
    FACTOR_TIMES,
    FACTORS,
    STALL_TIMES,
    STALL_LENGTHS,
    JITTER,
    ROW_STARTS,
    ROW_ENDS,
) = range(65, 82)

# How long tables are.
(
    REQUESTS,
    ROOM,
    FINISH_ROOM,
    BUCKET_COUNT,
    ITL_EDGE_COUNT,
    ITERATION_EDGE_COUNT,
    SCRAPE_COUNT,
    CAPTURE_COUNT,
    FACTOR_COUNT,
    STALL_COUNT,
    JITTER_COUNT,
    ROW_COUNT,
    ADAPTER_COUNT,
) = range(82, 95)

# Settings.
(
    MAX_SEQS,
    MAX_TOKENS,
    BLOCK_SIZE,
    MODEL_LENGTH,
    ACTIVE,
    THRESHOLD,
    ADAPTIVE,
    CHUNKED,
    WATERMARK_BLOCKS,
    RESERVE,
    BY_PRIORITY,
    CACHING,
    ASYNC,
    QUEUED_REQS,
    QUEUED_TOKENS,
    LORAS,
    HINGE,
    CONCURRENCY,  # requests that arrive by themselves; the others when one ends
    PER_STEP,
    TABLE_WIDTH,
    TOTAL_BLOCKS,
    CACHE_MODE,
) = range(95, 117)

# The engine's whole numbers.
(
    STEP,  # index of the next step to be scheduled
    APPLIED,  # index of the last step whose outputs came
    EXECUTING,  # which step record runs; -1 = none
    PENDING,  # which step record is scheduled and not started (asynchronous); -1 = none
    LAZY_SEQS,
    LAZY_KV,  # context tokens that the LAZY ones read in the next step
    EXPLICITS,
    RUN_HEAD,
    RUN_TAIL,
    RUN_COUNT,
    WAIT_HEAD,
    WAIT_TAIL,
    WAIT_COUNT,
    DEFERRED_COUNT,
    FREE,
    UNKEYED,
    NEXT_DUE,  # next request that arrives by itself
    NEXT_RELEASED,  # next request that arrives because another ended
    RELEASED,  # how many of those have their time
    LIVE,  # requests inside: waiting or running
    PREFILL_PROMPTS,  # prompt tokens of those without a first token
    STALL_AT,
    FACTOR_AT,
    RANDOM_1,
    RANDOM_2,
    ROWS,  # per-step rows written
    SCRAPES,  # scrape rows written
    FULL,  # the per-step table is full: come again
    STUCK,  # 1: nobody who waits can be admitted; 2: requests preempt each other and none ends
    MARK,  # arrivals and ends at a preemption,
    MARK_STEP,  # the first step with one since them,
    MARK_STEPS,  # and how many may follow; 0 = not counted yet
    SETTLED,  # nobody can be admitted until a request arrives, ends, or gets no token
    ENDED,
    FREE_SLOTS,
    FINISH_SIZE,
    CANCEL_SIZE,
    WAIT_SIZE,
    LEFT_WAITING,  # by the last schedule call: what arrives during a step is not in the engine yet
    LEFT_DEFERRED,
    GAUGE_RUNNING,
    GAUGE_CAPACITY,
    GAUGE_DEFERRED,
    GAUGE_FREE,
    STEPS_OBSERVED,
    STEPS_ALL,
    ITERATION_TOKENS,
    ITL_COUNT,
    PROMPT_TOKENS,
    PROMPT_COMPUTED,
    GENERATION_TOKENS,
    PREEMPTIONS,
    PREFIX_QUERIES,
    PREFIX_HITS,
    REJECTED_REQS,
    REJECTED_TOKENS,
    DECODE_TOTAL,
    PREFILL_TOTAL,
    KV_TOTAL,
    EMPTY_SCHEDULES,
    EVICTED,
) = range(117, 178)
FIRST_COUNTER, LAST_COUNTER = STEPS_OBSERVED, EVICTED

# A step record; two of them, from RECORDS on.
(
    S_INDEX,
    S_PREFILL,
    S_DECODE,
    S_KV,
    S_LAZY,  # LAZY requests that get a token from it
    S_TOKENS,  # explicit requests that get a token from it
    S_ENDS,  # LAZY requests whose last token it brings
    S_RUNNING,
    S_WAITING,
    S_PREEMPTED,
    S_FREE,
) = range(11)
STEP_NUMBERS = 11
RECORDS = 178
HEADER = RECORDS + 2 * STEP_NUMBERS

# The header of ``f``: the engine's times, the law, the client's patience, and the prefill pairs of
# the two step records.
NOW, STEP_START, STEP_END, LAST_OUTPUT, BUSY, ITL_SUM = range(6)
C0, C1, C2, C3, C4, TIMEOUT = range(6, 12)
PAIRS = 12
REAL_HEADER = 14

UNSENT, WAITING, RUNNING, PREEMPTED, FINISHED, REJECTED, CANCELLED, TIMED_OUT = range(8)
NO_KIND, EXPLICIT, LAZY, CLOSING = range(4)
COUNT_BLOCKS, IDENTIFY_BLOCKS, ENDLESS_BLOCKS = range(3)
NO_OWNER = -(1 << 40)
NONE = -1
NEVER = float("inf")
