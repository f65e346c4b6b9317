"""The kernel's state as one bundle of arrays, and how much of it a configuration needs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from driftwatch.simulate import kernel_layout as layout
from driftwatch.simulate.configuration import PRIORITY, SchedulerConfiguration
from driftwatch.simulate.disturbance import Disturbance
from driftwatch.simulate.step_time import StepTime

ENDLESS = 1 << 40  # what stands for "no limit"


class Tables(NamedTuple):
    """The parts of ``m`` and ``f`` by name; ``pack`` joins them, ``unpack`` cuts them out again."""

    head: Any  # settings, numbers and step records, at their places in the header of m
    reals: Any  # the header of f
    integers: Any  # REQUEST_INTEGERS × requests
    floats: Any  # REQUEST_FLOATS × requests
    blocks: Any  # BLOCK_TABLES × (blocks + 1)
    tokens: Any  # 2 × running: explicit requests that the step brings a token
    ends: Any  # 2 × running: LAZY requests whose last token the step brings
    explicit_list: Any  # EXPLICIT requests in the order of the running list
    order: Any  # scratch
    was_lazy: Any  # scratch
    class_counts: Any  # LAZY requests per class (block_size of them)
    class_heads: Any
    finish_ids: Any
    cancel_ids: Any
    wait_ids: Any
    adapters: Any  # step in which each adapter was last chosen; last: how many in this one
    buckets: Any
    unkeyed_blocks: Any  # free blocks without a text
    table: Any  # running requests × blocks of one
    slots: Any  # free rows of the table
    hits: Any  # scratch
    group_blocks: Any  # endless blocks: how much of each group's text was ever computed
    itl_counts: Any
    iteration_counts: Any
    scrape_numbers: Any
    scrape_itl: Any
    scrape_iteration: Any
    captures: Any
    row_numbers: Any
    finish_first: Any
    finish_second: Any
    cancel_first: Any
    cancel_second: Any
    wait_first: Any
    wait_second: Any
    itl_edges: Any
    iteration_edges: Any
    scrape_times: Any
    scrape_clocks: Any
    factor_times: Any
    factors: Any
    stall_times: Any
    stall_lengths: Any
    jitter: Any  # quantiles of the jitter factor
    row_starts: Any
    row_ends: Any


LENGTHS = {
    "order": layout.ROOM,
    "finish_ids": layout.FINISH_ROOM,
    "buckets": layout.BUCKET_COUNT,
    "itl_edges": layout.ITL_EDGE_COUNT,
    "iteration_edges": layout.ITERATION_EDGE_COUNT,
    "scrape_times": layout.SCRAPE_COUNT,
    "captures": layout.CAPTURE_COUNT,
    "factor_times": layout.FACTOR_COUNT,
    "stall_times": layout.STALL_COUNT,
    "jitter": layout.JITTER_COUNT,
    "row_starts": layout.ROW_COUNT,
    "adapters": layout.ADAPTER_COUNT,
}
TWO_DIMENSIONAL = {
    "integers": 0,
    "floats": layout.FIRST_FLOAT,
    "blocks": layout.FIRST_BLOCK_TABLE,
}


def pack(t: Tables) -> tuple[Any, Any]:
    """The two arrays ``m`` and ``f`` that the kernel works on."""
    whole, real = layout.HEADER, layout.REAL_HEADER
    for name, part in zip(t._fields[2:], t[2:], strict=True):
        first = TWO_DIMENSIONAL.get(name)
        slots = (
            [getattr(layout, name.upper())]
            if first is None
            else list(range(first, first + len(part)))
        )
        for slot in slots:
            step = part.size if first is None else part.shape[1]
            if part.dtype == np.int64:
                t.head[slot], whole = whole, whole + step
            else:
                t.head[slot], real = real, real + step
        if name in LENGTHS:
            t.head[LENGTHS[name]] = len(part)
    t.head[layout.REQUESTS] = t.integers.shape[1]
    parts = [part.reshape(-1) for part in t]
    return (
        np.concatenate([part for part in parts if part.dtype == np.int64]),
        np.concatenate([part for part in parts if part.dtype == np.float64]),
    )


def unpack(t: Tables, m: Any, f: Any) -> Tables:
    """The parts of ``m`` and ``f``, shaped as those of ``t``."""
    at = {np.dtype(np.int64): 0, np.dtype(np.float64): 0}
    parts = []
    for part in t:
        source = m if part.dtype == np.int64 else f
        start = at[part.dtype]
        at[part.dtype] = start + part.size
        parts.append(source[start : start + part.size].reshape(part.shape))
    return Tables(*parts)


def integers(*shape: int, fill: int = 0) -> np.ndarray[Any, np.dtype[np.int64]]:
    """An integer table."""
    return np.full(shape, fill, dtype=np.int64)


def reals(values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A table of real numbers."""
    return np.ascontiguousarray(values, dtype=np.float64)


def settings_of(c: SchedulerConfiguration, law: StepTime, per_step: bool) -> Any:
    """The configuration in the kernel's numbers; None becomes a bound that never binds."""

    def bound(value: int | None) -> int:
        return ENDLESS if value is None else value

    made = integers(layout.HEADER)
    made[layout.MAX_SEQS] = c.max_num_seqs
    made[layout.MAX_TOKENS] = c.max_num_batched_tokens
    made[layout.BLOCK_SIZE] = c.block_size
    made[layout.MODEL_LENGTH] = bound(c.max_model_len)
    made[layout.ACTIVE] = c.max_num_active_seqs or c.max_num_seqs
    made[layout.THRESHOLD] = c.long_prefill_token_threshold
    made[layout.ADAPTIVE] = c.long_prefill_token_threshold_adaptive
    made[layout.CHUNKED] = c.enable_chunked_prefill
    made[layout.WATERMARK_BLOCKS] = int(c.watermark * (c.num_gpu_blocks or 0))
    made[layout.RESERVE] = c.scheduler_reserve_full_isl
    made[layout.BY_PRIORITY] = c.scheduling_policy == PRIORITY
    made[layout.CACHING] = c.enable_prefix_caching
    made[layout.ASYNC] = c.async_scheduling
    made[layout.QUEUED_REQS] = bound(c.max_num_queued_reqs)
    made[layout.QUEUED_TOKENS] = bound(c.max_num_queued_tokens)
    made[layout.LORAS] = c.max_loras or 0
    made[layout.HINGE] = law.hinge_tokens
    made[layout.PER_STEP] = per_step
    made[layout.TOTAL_BLOCKS] = ENDLESS if c.num_gpu_blocks is None else c.num_gpu_blocks - 1
    return made


def reals_at_start(law: StepTime, timeout_seconds: float | None) -> Any:
    """The header of ``f`` before the first request."""
    made = np.zeros(layout.REAL_HEADER)
    made[layout.C0] = law.c0_seconds
    made[layout.C1] = law.c1_seconds_per_prefill_token
    made[layout.C2] = law.c2_seconds_per_decode_seq
    made[layout.C3] = law.c3_seconds_per_kv_token
    made[layout.C4] = law.c4_seconds_per_prefill_pair
    made[layout.TIMEOUT] = layout.NEVER if timeout_seconds is None else timeout_seconds
    return made


def head_at_start(c: SchedulerConfiguration, law: StepTime, per_step: bool, seed: int) -> Any:
    """The header of ``m`` before the first request."""
    made = settings_of(c, law, per_step)
    for empty in (
        layout.APPLIED,
        layout.EXECUTING,
        layout.PENDING,
        layout.RUN_HEAD,
        layout.RUN_TAIL,
        layout.WAIT_HEAD,
        layout.WAIT_TAIL,
    ):
        made[empty] = layout.NONE
    made[layout.FREE] = made[layout.GAUGE_FREE] = made[layout.TOTAL_BLOCKS]
    # Two starting points that neighbouring seeds do not share (splitmix64's multiplier).
    mixed = ((seed + 1) * 0x9E3779B97F4A7C15) & (2**64 - 1)
    mixed ^= mixed >> 31
    made[layout.RANDOM_1] = 1 + mixed % 2147483562
    made[layout.RANDOM_2] = 1 + (mixed >> 20) % 2147483398
    return made


def jitter_quantiles(sigma: float) -> Any:
    """4,096 equally likely factors of the log-normal law with mean 1; empty where sigma is 0."""
    if sigma <= 0.0:
        return reals([])
    from statistics import NormalDist

    normal = NormalDist()
    factors = np.exp(sigma * np.array([normal.inv_cdf((i + 0.5) / 4096) for i in range(4096)]))
    return reals(factors / factors.mean())


def make_tables(
    c: SchedulerConfiguration,
    law: StepTime,
    *,
    disturbance: Disturbance | None,
    seed: int,
    timeout_seconds: float | None,
    per_step: bool,
    itl_edges: Any,
    iteration_edges: Any,
) -> Tables:
    """Tables of an engine without requests."""
    hit = disturbance or Disturbance()
    running = c.max_num_seqs + 2
    heap = 2 * c.max_num_seqs + 64
    rows = 65536 if per_step else 0
    none, nothing = integers(0), reals([])
    return Tables(
        head=head_at_start(c, law, per_step, seed),
        reals=reals_at_start(law, timeout_seconds),
        integers=integers(layout.REQUEST_INTEGERS, 0),
        floats=np.zeros((layout.REQUEST_FLOATS, 0)),
        tokens=integers(2, running),
        ends=integers(2, running),
        explicit_list=integers(running),
        order=integers(running),
        was_lazy=integers(running),
        class_counts=integers(c.block_size),
        class_heads=integers(c.block_size, fill=layout.NONE),
        finish_first=np.zeros(heap),
        finish_second=np.zeros(heap),
        finish_ids=integers(heap),
        cancel_first=nothing,
        cancel_second=nothing,
        cancel_ids=none,
        wait_first=nothing,
        wait_second=nothing,
        wait_ids=none,
        adapters=integers(1, fill=0),
        blocks=integers(layout.BLOCK_TABLES, 1),
        buckets=integers(1, fill=layout.NONE),
        unkeyed_blocks=none,
        table=none,
        slots=none,
        hits=none,
        group_blocks=none,
        itl_edges=reals(itl_edges),
        itl_counts=integers(len(itl_edges) + 1),
        iteration_edges=reals(iteration_edges),
        iteration_counts=integers(len(iteration_edges) + 1),
        scrape_times=nothing,
        scrape_numbers=integers(0, 0),
        scrape_clocks=np.zeros((0, 2)),
        scrape_itl=integers(0, len(itl_edges) + 1),
        scrape_iteration=integers(0, len(iteration_edges) + 1),
        captures=np.array(law.capture_sizes, dtype=np.int64),
        factor_times=reals(hit.factor_seconds),
        factors=reals(hit.factors),
        stall_times=reals(hit.stall_seconds),
        stall_lengths=reals(hit.stall_durations_seconds),
        jitter=jitter_quantiles(hit.jitter_sigma),
        row_starts=np.zeros(rows),
        row_ends=np.zeros(rows),
        row_numbers=integers(rows, 7),
    )


def with_blocks(t: Tables, blocks: int, running: int) -> Tables:
    """Tables that know every block by itself (prefix caching)."""
    made = integers(layout.BLOCK_TABLES, blocks + 1, fill=layout.NONE)
    made[layout.B_REFERENCES - layout.FIRST_BLOCK_TABLE] = 0
    made[layout.B_OWNER - layout.FIRST_BLOCK_TABLE] = layout.NO_OWNER
    for end in (layout.B_NEXT, layout.B_PREVIOUS):
        made[end - layout.FIRST_BLOCK_TABLE][blocks] = blocks
    size = 1 << max(4, (2 * blocks).bit_length())
    t.head[layout.UNKEYED] = blocks
    t.head[layout.FREE_SLOTS] = running
    return t._replace(
        blocks=made,
        buckets=integers(size, fill=layout.NONE),
        unkeyed_blocks=np.arange(blocks, dtype=np.int64)[::-1].copy(),
        slots=np.arange(running, dtype=np.int64),
    )
