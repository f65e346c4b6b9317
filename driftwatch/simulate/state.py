"""An engine's tables: made for settings, given requests, rid of those that have ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from driftwatch.simulate.configuration import PRIORITY, SchedulerConfiguration
from driftwatch.simulate.disturbance import Disturbance
from driftwatch.simulate.kernel import tables as k
from driftwatch.simulate.kernel.tables import NEVER, NONE, Tables
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime

_ROWS = 65536  # of the per-step table before it is read


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """What an engine does besides its settings."""

    disturbance: Disturbance | None = None  # what differs from the step-time model; None = nothing
    seed: int = 0  # of the jitter
    timeout_seconds: float | None = None  # the client gives up so long after its arrival
    # closed loop: so many requests arrive at their own times, every other one when one ends, as
    # patient as its cancel_seconds were after its arrival_seconds. None = all arrive at their own
    # times.
    concurrency: int | None = None
    # finite bucket edges of inter_token_latency_seconds, as in vLLM's ``le``
    itl_edges: Sequence[float] = ()
    iteration_tokens_edges: Sequence[float] = ()  # finite bucket edges of iteration_tokens_total
    per_step: bool = False  # keep a row per step


def integers(*shape: int, fill: int = 0) -> npt.NDArray[np.int64]:
    """An integer table."""
    return np.full(shape, fill, dtype=np.int64)


def empty_tables(c: SchedulerConfiguration, step_time: StepTime, options: Options) -> Tables:
    """Tables of an engine without requests."""
    disturbance = options.disturbance or Disturbance()
    running = c.max_num_seqs + 2
    classes = np.zeros(c.block_size, k.CLASS)
    classes["head"] = NONE
    itl, iteration = len(options.itl_edges) + 1, len(options.iteration_tokens_edges) + 1
    return Tables(
        engine=_engine(c, step_time, options),
        counters=_counters(c),
        requests=np.zeros(0, k.REQUEST),
        steps=np.zeros(3, k.STEP),
        tokens=integers(2, running),
        ends=integers(2, running),
        explicit=integers(running),
        order=integers(running),
        kinds=integers(running),
        classes=classes,
        finishes=np.zeros(2 * c.max_num_seqs + 64, k.HEAP),
        cancels=np.zeros(0, k.HEAP),
        waits=np.zeros(0, k.HEAP),
        adapters=integers(0),
        blocks=np.zeros(1, k.BLOCK),
        buckets=integers(1, fill=NONE),
        unkeyed=integers(0),
        table=integers(0, 0),
        slots=integers(0),
        hits=integers(0),
        groups=integers(0),
        itl_edges=np.array(options.itl_edges, dtype=np.float64),
        itl_counts=integers(itl),
        iteration_edges=np.array(options.iteration_tokens_edges, dtype=np.float64),
        iteration_counts=integers(iteration),
        scrape_times=np.zeros(0),
        scraped=np.zeros(0, k.COUNTERS),
        scraped_itl=integers(0, itl),
        scraped_iteration=integers(0, iteration),
        captures=np.array(step_time.capture_sizes, dtype=np.float64),
        factors=timed(disturbance.factor_seconds, disturbance.factors),
        stalls=timed(disturbance.stall_seconds, disturbance.stall_durations_seconds),
        jitter=_jitter(disturbance.jitter_sigma),
        rows=np.zeros(_ROWS if options.per_step else 0, k.ROW),
    )


def timed(seconds: Any, values: Any) -> Any:
    """Values that hold from, or hit at, sorted times."""
    table = np.zeros(len(seconds), k.TIMED)
    table["seconds"], table["value"] = seconds, values
    return table


def set_step_time(engine: Any, step_time: StepTime) -> None:
    """Write a step-time model's numbers into the ENGINE record (its capture sizes are a table)."""
    engine["hinge"] = step_time.hinge_tokens
    engine["c0"] = step_time.c0_seconds
    engine["c1"] = step_time.c1_seconds_per_prefill_token
    engine["c2"] = step_time.c2_seconds_per_decode_seq
    engine["c3"] = step_time.c3_seconds_per_kv_token
    engine["c4"] = step_time.c4_seconds_per_prefill_pair


def _engine(c: SchedulerConfiguration, step_time: StepTime, options: Options) -> Any:
    def bound(value: int | None) -> int:
        return k.ENDLESS if value is None else value

    # Two starting points that neighbouring seeds do not share (splitmix64's multiplier).
    mixed = ((options.seed + 1) * 0x9E3779B97F4A7C15) & (2**64 - 1)
    mixed ^= mixed >> 31
    blocks = k.ENDLESS if c.num_gpu_blocks is None else c.num_gpu_blocks - 1
    values = {
        "max_seqs": c.max_num_seqs,
        "max_tokens": c.max_num_batched_tokens,
        "block_size": c.block_size,
        "model_length": bound(c.max_model_len),
        "active": c.max_num_active_seqs or c.max_num_seqs,
        "threshold": c.long_prefill_token_threshold,
        "adaptive": c.long_prefill_token_threshold_adaptive,
        "chunked": c.enable_chunked_prefill,
        "watermark_blocks": int(c.watermark * (c.num_gpu_blocks or 0)),
        "reserve": c.scheduler_reserve_full_isl,
        "by_priority": c.scheduling_policy == PRIORITY,
        "caching": c.enable_prefix_caching,
        "asynchronous": c.async_scheduling,
        "queued_reqs": bound(c.max_num_queued_reqs),
        "queued_tokens": bound(c.max_num_queued_tokens),
        "loras": c.max_loras or 0,
        "per_step": options.per_step,
        "total_blocks": blocks,
        "free": blocks,
        "random_1": 1 + mixed % 2147483562,
        "random_2": 1 + (mixed >> 20) % 2147483398,
        "timeout": NEVER if options.timeout_seconds is None else options.timeout_seconds,
    }
    nothing = ("applied", "executing", "pending", "run_head", "run_tail", "wait_head", "wait_tail")
    engine = np.zeros(1, k.ENGINE)
    for name, value in {**values, **dict.fromkeys(nothing, NONE)}.items():
        engine[name] = value
    set_step_time(engine, step_time)
    return engine


def _counters(c: SchedulerConfiguration) -> Any:
    counters = np.zeros(1, k.COUNTERS)
    counters["free_blocks"] = k.ENDLESS if c.num_gpu_blocks is None else c.num_gpu_blocks - 1
    return counters


def _jitter(sigma: float) -> npt.NDArray[np.float64]:
    """4,096 equally likely factors, log-normal with mean 1; empty where sigma is 0."""
    if sigma <= 0.0:
        return np.zeros(0)
    normal = NormalDist()
    factors = np.exp(sigma * np.array([normal.inv_cdf((i + 0.5) / 4096) for i in range(4096)]))
    return np.asarray(factors / factors.mean())


def cache_mode(requests: Requests, c: SchedulerConfiguration, identify_blocks: bool) -> int:
    """How blocks are modelled: counted, identified one by one, or endless."""
    if not c.enable_prefix_caching:
        return k.COUNT_BLOCKS
    if c.num_gpu_blocks is None:
        return k.ENDLESS_BLOCKS
    has_count = requests.cached_tokens > requests.shared_prefix_tokens * (
        requests.prefix_group >= 0
    )
    return k.COUNT_BLOCKS if not identify_blocks or has_count.any() else k.IDENTIFY_BLOCKS


def with_requests(
    t: Tables,
    requests: Requests,
    c: SchedulerConfiguration,
    *,
    groups: dict[int, int],
    first_index: int,
    concurrency: int | None,
    identify_blocks: bool,
) -> Tables:
    """Tables with more requests at their end; ``groups`` numbers the prefix groups as they come."""
    engine = t.engine[0]
    mode = cache_mode(requests, c, identify_blocks)
    if first_index == 0:
        engine["cache_mode"] = mode
        if mode == k.IDENTIFY_BLOCKS:
            t = _with_blocks(t, c)
    elif mode != engine["cache_mode"]:
        raise ValueError("cached_tokens are given in one offer and looked up in another")
    before, count = len(t.requests), len(requests)
    added = _request_records(requests, c, groups, mode, first_index)
    own = count if concurrency is None else max(0, min(count, concurrency - first_index))
    if first_index == 0 or concurrency is None:
        engine["next_released"] = engine["released"] = engine["concurrency"] = before + own
    # Until one ends, nobody knows when these arrive; until then "cancel" holds their patience.
    added["cancel"][own:] -= requests.arrival_seconds[own:]
    added["arrival"][own:] = NEVER
    total = before + count
    most = int(requests.adapter.max(initial=-1)) + 1
    t = t._replace(
        requests=np.concatenate([t.requests, added]) if before else added,
        groups=_longer(t.groups, len(groups)),
        cancels=_longer(t.cancels, total + 1),
        waits=_longer(t.waits, total + 1) if engine["by_priority"] else t.waits,
        adapters=integers(most, fill=NONE) if most > len(t.adapters) else t.adapters,
    )
    return _with_table(t, c) if mode == k.IDENTIFY_BLOCKS else t


def _blank_request() -> Any:
    blank = np.zeros((), k.REQUEST)
    for name in ("owner", "given", "adapter", "cached"):
        blank[name] = NONE
    for name in ("cancel", "first_scheduled", "first_token", "last_token", "end"):
        blank[name] = NEVER
    blank["cancel_status"] = k.CANCELLED
    return blank


_BLANK = _blank_request()


def _request_records(
    requests: Requests, c: SchedulerConfiguration, groups: dict[int, int], mode: int, first: int
) -> Any:
    target = requests.prompt_tokens + requests.generation_tokens
    if c.max_model_len is not None:
        target = np.minimum(target, c.max_model_len)
    numbers, which = np.unique(requests.prefix_group, return_inverse=True)
    for group in numbers[numbers >= 0].tolist():
        groups.setdefault(group, len(groups))
    owners = np.array([-1 - groups.get(g, -1) for g in numbers.tolist()], np.int64)
    shared = np.minimum(requests.shared_prefix_tokens, requests.prompt_tokens)
    looked_up = mode == k.IDENTIFY_BLOCKS or not c.enable_prefix_caching
    values = {
        "prompt": requests.prompt_tokens,
        "target": target,
        "priority": requests.priority,
        "owner": owners[which],
        "serial": np.arange(first, first + len(requests)),
        "shared_blocks": np.where(requests.prefix_group >= 0, shared, 0) // c.block_size,
        "adapter": requests.adapter,
        "arrival": requests.arrival_seconds,
        "cancel": requests.cancel_seconds,
    }
    if not looked_up:
        values["given"] = requests.cached_tokens
    added = np.frombuffer(bytearray(_BLANK.tobytes()) * len(requests), k.REQUEST)
    for name, column in values.items():
        if (column != _BLANK[name]).any():
            added[name] = column
    return added


def _longer(values: Any, size: int) -> Any:
    if len(values) >= size:
        return values
    return np.concatenate([values, np.zeros(size - len(values), dtype=values.dtype)])


def _with_blocks(t: Tables, c: SchedulerConfiguration) -> Tables:
    """Tables that identify every block (prefix caching)."""
    count, running = int(t.engine[0]["total_blocks"]), c.max_num_seqs + 1
    blocks = np.zeros(count + 1, k.BLOCK)
    blocks["next"] = blocks["previous"] = blocks["index"] = blocks["chain"] = NONE
    blocks["owner"] = k.NO_OWNER
    blocks[count]["next"] = blocks[count]["previous"] = count
    t.engine["unkeyed"] = count
    t.engine["free_slots"] = running
    return t._replace(
        blocks=blocks,
        buckets=integers(1 << max(4, (2 * count).bit_length()), fill=NONE),
        unkeyed=np.arange(count, dtype=np.int64)[::-1].copy(),
        slots=np.arange(running, dtype=np.int64),
    )


def _with_table(t: Tables, c: SchedulerConfiguration) -> Tables:
    """Tables whose block table is wide enough for every request."""
    width = int(t.requests["target"].max(initial=1)) // c.block_size + 2
    old = t.table.shape[1]
    if width <= old:
        return t
    table = integers(c.max_num_seqs + 1, width)
    table[: len(t.table), :old] = t.table
    return t._replace(table=table, hits=integers(width))


def with_scrapes(t: Tables, times: npt.NDArray[np.float64]) -> Tables:
    """Tables with room for scrapes at these times."""
    count = len(times)
    t.engine["scrapes"] = 0
    return t._replace(
        scrape_times=np.ascontiguousarray(times, dtype=np.float64),
        scraped=np.zeros(count, k.COUNTERS),
        scraped_itl=integers(count, len(t.itl_counts)),
        scraped_iteration=integers(count, len(t.iteration_counts)),
    )


def without(t: Tables, ended: npt.NDArray[np.bool_]) -> Tables:
    """Tables without the ended requests; everything that points at a request is renumbered."""
    if not ended.any():
        return t
    staying = ~ended
    number = np.append(np.where(staying, np.cumsum(staying) - 1, NONE), NONE)  # NONE stays NONE
    rows = t.requests[staying]
    for pointer in (
        "run_next",
        "run_previous",
        "wait_next",
        "wait_previous",
        "class_next",
        "class_previous",
    ):
        stale = rows[pointer] >= len(ended)
        rows[pointer] = number[np.where(stale, NONE, rows[pointer])]
    engine = t.engine[0]
    for name in ("run_head", "run_tail", "wait_head", "wait_tail"):
        engine[name] = number[engine[name]]
    before = np.append(np.cumsum(staying) - staying, np.count_nonzero(staying))
    for name in ("next_due", "next_released", "released", "concurrency"):
        engine[name] = before[engine[name]]
    t.classes["head"] = number[t.classes["head"]]
    count = engine["explicits"]
    t.explicit[:count] = number[t.explicit[:count]]
    for record in range(2):
        for members, name in ((t.tokens, "tokens"), (t.ends, "ends")):
            members_then = number[members[record][: t.steps[record][name]]]
            members_then = members_then[members_then != NONE]
            members[record][: len(members_then)] = members_then
            t.steps[record][name] = len(members_then)
    for heap, name in (
        (t.finishes, "finishing"),
        (t.cancels, "cancelling"),
        (t.waits, "wait_size"),
    ):
        entries = heap[: engine[name]].copy()
        entries["id"] = number[entries["id"]]
        entries = entries[entries["id"] != NONE]
        heap[: len(entries)] = np.sort(entries, order=("first", "second", "id"))  # sorted is a heap
        engine[name] = len(entries)
    return t._replace(requests=rows)
