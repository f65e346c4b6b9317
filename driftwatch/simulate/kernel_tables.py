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
    """Arrays (compiled) or lists of the same shapes (fallback).

    Two-dimensional ones are indexed by row first: ``integers[STATUS][r]``.
    """

    integers: Any  # REQUEST_INTEGERS × requests
    floats: Any  # REQUEST_FLOATS × requests
    settings: Any
    rates: Any
    numbers: Any
    clocks: Any
    records: Any  # 2 × STEP_NUMBERS
    pairs: Any  # prefill pairs of the two records
    tokens: Any  # 2 × running: explicit requests that the step brings a token
    ends: Any  # 2 × running: LAZY requests whose last token the step brings
    explicit: Any  # prefilling requests in the order of the running list
    order: Any  # scratch
    was_lazy: Any  # scratch
    class_counts: Any  # LAZY requests per class (block_size of them)
    class_heads: Any
    finish_first: Any
    finish_second: Any
    finish_ids: Any
    cancel_first: Any
    cancel_second: Any
    cancel_ids: Any
    wait_first: Any
    wait_second: Any
    wait_ids: Any
    adapters: Any  # step in which each adapter was last chosen; last: how many in this one
    blocks: Any  # BLOCK_NUMBERS × (blocks + 1)
    buckets: Any
    unkeyed: Any  # free blocks without a text
    table: Any  # running requests × blocks of one
    slots: Any  # free rows of the table
    hits: Any  # scratch
    group_blocks: Any  # endless blocks: how much of each group's text was ever computed
    itl_edges: Any
    itl_counts: Any
    iteration_edges: Any
    iteration_counts: Any
    scrape_times: Any
    scrape_numbers: Any
    scrape_clocks: Any
    scrape_itl: Any
    scrape_iteration: Any
    captures: Any
    factor_times: Any
    factors: Any
    stall_times: Any
    stall_lengths: Any
    jitter: Any  # quantiles of the jitter factor
    row_starts: Any
    row_ends: Any
    row_numbers: Any


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

    made = integers(layout.SETTINGS)
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


def rates_of(law: StepTime, timeout_seconds: float | None) -> Any:
    """The law's coefficients and the client's patience."""
    return reals(
        [
            law.c0_seconds,
            law.c1_seconds_per_prefill_token,
            law.c2_seconds_per_decode_seq,
            law.c3_seconds_per_kv_token,
            law.c4_seconds_per_prefill_pair,
            layout.NEVER if timeout_seconds is None else timeout_seconds,
        ]
    )


def numbers_at_start(settings: Any, seed: int) -> Any:
    """The engine's whole numbers before its first request."""
    made = integers(layout.NUMBERS)
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
    made[layout.FREE] = made[layout.GAUGE_FREE] = settings[layout.TOTAL_BLOCKS]
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
    settings = settings_of(c, law, per_step)
    hit = disturbance or Disturbance()
    running = c.max_num_seqs + 2
    heap = 2 * c.max_num_seqs + 64
    rows = 65536 if per_step else 0
    none, nothing = integers(0), reals([])
    return Tables(
        integers=integers(layout.REQUEST_INTEGERS, 0),
        floats=np.zeros((layout.REQUEST_FLOATS, 0)),
        settings=settings,
        rates=rates_of(law, timeout_seconds),
        numbers=numbers_at_start(settings, seed),
        clocks=np.zeros(layout.CLOCKS),
        records=integers(2, layout.STEP_NUMBERS),
        pairs=np.zeros(2),
        tokens=integers(2, running),
        ends=integers(2, running),
        explicit=integers(running),
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
        blocks=integers(layout.BLOCK_NUMBERS, 1),
        buckets=integers(1, fill=layout.NONE),
        unkeyed=none,
        table=none,
        slots=none,
        hits=none,
        group_blocks=none,
        itl_edges=reals(itl_edges),
        itl_counts=integers(len(itl_edges) + 1),
        iteration_edges=reals(iteration_edges),
        iteration_counts=integers(len(iteration_edges) + 1),
        scrape_times=nothing,
        scrape_numbers=integers(0, layout.NUMBERS),
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
    made = integers(layout.BLOCK_NUMBERS, blocks + 1, fill=layout.NONE)
    made[layout.B_REFERENCES] = 0
    made[layout.B_OWNER] = layout.NO_OWNER
    made[layout.B_NEXT][blocks] = made[layout.B_PREVIOUS][blocks] = blocks
    size = 1 << max(4, (2 * blocks).bit_length())
    t.numbers[layout.UNKEYED] = blocks
    t.numbers[layout.FREE_SLOTS] = running
    return t._replace(
        blocks=made,
        buckets=integers(size, fill=layout.NONE),
        unkeyed=np.arange(blocks, dtype=np.int64)[::-1].copy(),
        slots=np.arange(running, dtype=np.int64),
    )
