"""An engine's tables: make them from settings, add requests, run them, remove ended requests.

Semantics, beyond vLLM's scheduler itself (``kernel.schedule``):

- Arrivals are read before every schedule call. The queue limits are the API server's
  (``v1/engine/async_llm.py``): a request is turned away while ``max_num_queued_reqs`` are
  inside (waiting or running), or while the prompts without a first token sum to
  ``max_num_queued_tokens``.
- A client that gives up (cancel_seconds, timeout_seconds) leaves at that time, with its blocks. A
  step that runs then still computes its request, but the token is not counted (vLLM handles aborts
  before the outputs of the step).
- Times are the sum of step times in the order of the steps.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from driftwatch.arrays import Flags, Floats
from driftwatch.errors import NoVerdict
from driftwatch.simulate.configuration import PRIORITY, SchedulerConfiguration
from driftwatch.simulate.kernel import tables as k
from driftwatch.simulate.kernel.tables import NEVER, NONE, Tables
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.step_time import StepTime

_ROWS = 65536  # size of the per-step table; it is read when full
_JITTER_FACTORS = 4096


def _none() -> Floats:
    return np.zeros(0)


@dataclass(frozen=True, slots=True, eq=False)
class Disturbance:
    """Deviations of a real engine from its step-time model: factors on step times, and stalls.

    The hidden engine of the simulated fleet uses all of them; a simulation for advice uses none.
    """

    jitter_sigma: float = 0.0  # sd of the log of a factor drawn anew each step (log-normal, mean 1)
    # sorted times from which the next factor holds (a step function)
    factor_seconds: Floats = field(default_factory=_none)
    # step-time factor from each of those times on (1.25 = a quarter slower); 1 before
    factors: Floats = field(default_factory=_none)
    # sorted times of stalls; each lengthens once the step that runs then, or the next one
    stall_seconds: Floats = field(default_factory=_none)
    # their lengths; inf = the engine never returns (wedged)
    stall_durations_seconds: Floats = field(default_factory=_none)


@dataclass(frozen=True, slots=True, eq=False)
class Observe:
    """Scrapes of a run, and their histograms' edges."""

    scrape_seconds: Floats = field(default_factory=_none)  # sorted times of the scrapes
    itl_edges: tuple[float, ...] = ()  # finite bucket edges of inter_token_latency_seconds
    iteration_tokens_edges: tuple[float, ...] = ()  # finite bucket edges of iteration_tokens_total


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """Conditions of a run besides the scheduler's settings."""

    observe: Observe = field(default_factory=Observe)
    disturbance: Disturbance = field(default_factory=Disturbance)
    seed: int = 0  # of the jitter
    timeout_seconds: float | None = None  # clients give up this long after their arrival
    # closed loop: this many requests arrive at their own times; the others arrive when one ends,
    # and keep the time between arrival_seconds and cancel_seconds. None = all arrive at their own
    # times.
    concurrency: int | None = None
    per_step: bool = False  # keep a row per step


def run_kernel(t: Tables, until_seconds: float) -> None:
    """Run an engine's tables to a time, or until the per-step table is full.

    Raises NoVerdict: the engine makes no progress.
    """
    from driftwatch.simulate.kernel.loop import advance  # imports Numba

    advance(t, float(until_seconds))
    engine = t.engine[0]
    if engine["stuck"]:
        why = (
            "none can be admitted"
            if engine["stuck"] == k.NOBODY_ADMITTED
            else "running ones preempt each other without end"
        )
        raise NoVerdict(
            f"the simulated engine makes no progress at {engine['now']:.3f} s: "
            f"{engine['wait_count']:,} requests wait and {why}"
        )


def compile_kernel() -> None:
    """Compile the kernel, once per machine, or load it; it takes some seconds."""
    run_kernel(make_tables(SchedulerConfiguration(1, 1), Options()), 0)


def make_tables(c: SchedulerConfiguration, options: Options) -> Tables:
    """Tables of an engine without requests; steps take no time before ``set_step_time``."""
    observe, disturbance, running = options.observe, options.disturbance, c.max_num_seqs + 2
    counters = np.zeros(1, k.COUNTERS)
    counters["free_blocks"] = k.ENDLESS if c.num_gpu_blocks is None else c.num_gpu_blocks - 1
    itl, iteration = len(observe.itl_edges) + 1, len(observe.iteration_tokens_edges) + 1
    times = np.ascontiguousarray(observe.scrape_seconds, dtype=np.float64)
    return Tables(
        engine=_engine(c, options),
        counters=counters,
        requests=np.zeros(0, k.REQUEST),
        running=_links(0),
        waiting=_links(0),
        steps=np.zeros(3, k.STEP),
        tokens=_integers(2, running),
        ends=_integers(2, running),
        explicit=_integers(running),
        order=_integers(running),
        kinds=_integers(running),
        class_counts=_integers(c.block_size),
        classes=_links(0),
        finishes=np.zeros(2 * c.max_num_seqs + 64, k.HEAP),
        cancels=np.zeros(0, k.HEAP),
        waits=np.zeros(0, k.HEAP),
        adapters=_integers(0),
        blocks=np.zeros(0, k.BLOCK),
        free_queue=_links(0),
        buckets=_integers(1),
        unkeyed=_integers(0),
        table=_integers(0, 0),
        slots=_integers(0),
        hits=_integers(0),
        itl_edges=np.array(observe.itl_edges, dtype=np.float64),
        itl_counts=_integers(itl),
        iteration_edges=np.array(observe.iteration_tokens_edges, dtype=np.float64),
        iteration_counts=_integers(iteration),
        scrape_times=times,
        scraped=np.zeros(len(times), k.COUNTERS),
        scraped_itl=_integers(len(times), itl),
        scraped_iteration=_integers(len(times), iteration),
        captures=np.zeros(0),
        factors=_timed(disturbance.factor_seconds, disturbance.factors),
        stalls=_timed(disturbance.stall_seconds, disturbance.stall_durations_seconds),
        jitter=_jitter(disturbance.jitter_sigma),
        rows=np.zeros(_ROWS if options.per_step else 0, k.STEP),
    )


def _integers(*shape: int) -> npt.NDArray[np.int64]:
    return np.zeros(shape, dtype=np.int64)


def _links(count: int) -> Any:
    """An empty list with room for ``count`` members."""
    links = np.zeros(count + 1, k.LINK)
    links["next"][-1] = links["previous"][-1] = NONE
    return links


def _timed(seconds: Any, values: Any) -> Any:
    table = np.zeros(len(seconds), k.TIMED)
    table["seconds"], table["value"] = seconds, values
    return table


def _jitter(sigma: float) -> Floats:
    """Equally likely factors, log-normal with mean 1; empty where sigma is 0."""
    if sigma <= 0.0:
        return np.zeros(0)
    normal, count = NormalDist(), _JITTER_FACTORS
    factors = np.exp(sigma * np.array([normal.inv_cdf((i + 0.5) / count) for i in range(count)]))
    return np.asarray(factors / factors.mean())


def _engine(c: SchedulerConfiguration, options: Options) -> Any:
    # Two starting points that neighbouring seeds do not share (splitmix64's multiplier).
    mixed = ((options.seed + 1) * 0x9E3779B97F4A7C15) & (2**64 - 1)
    mixed ^= mixed >> 31
    blocks = None if c.num_gpu_blocks is None else c.num_gpu_blocks - 1
    values = {field.name: getattr(c, field.name) for field in fields(c)} | {
        "max_num_active_seqs": c.max_num_active_seqs or c.max_num_seqs,
        "watermark_blocks": int(c.watermark * (c.num_gpu_blocks or 0)),
        "by_priority": c.scheduling_policy == PRIORITY,
        "per_step": options.per_step,
        "total_blocks": blocks,
        "free": blocks,
        "random_1": 1 + mixed % 2147483562,
        "random_2": 1 + (mixed >> 20) % 2147483398,
        "timeout_seconds": NEVER if options.timeout_seconds is None else options.timeout_seconds,
        "step": 1,  # 0 is before the first
        "executing": NONE,
        "pending": NONE,
    }
    engine = np.zeros(1, k.ENGINE)
    for name in values.keys() & set(k.ENGINE.names or ()):
        engine[name] = k.ENDLESS if values[name] is None else values[name]
    return engine


def set_step_time(t: Tables, step_time: StepTime) -> Tables:
    """Tables whose steps take the times of a step-time model."""
    values = asdict(step_time)
    captures = np.array(values.pop("capture_sizes"), dtype=np.float64)
    for name, value in values.items():
        t.engine[name] = value
    return t._replace(captures=captures)


def cache_mode(requests: Requests, c: SchedulerConfiguration, identify_blocks: bool) -> int:
    """Whether blocks are counted, or identified one by one."""
    if not (identify_blocks and c.enable_prefix_caching and c.num_gpu_blocks is not None):
        return k.COUNT_BLOCKS
    looked_up = requests.shared_prefix_tokens * (requests.prefix_group >= 0)
    has_count = (requests.cached_tokens > looked_up).any()
    return k.COUNT_BLOCKS if has_count else k.IDENTIFY_BLOCKS


def add_requests(
    t: Tables,
    requests: Requests,
    c: SchedulerConfiguration,
    *,
    first_index: int = 0,
    concurrency: int | None = None,
    identify_blocks: bool = True,
) -> Tables:
    """Tables with more requests at their end; ``first_index``: number of requests added before.

    ``identify_blocks``: with prefix caching, identify the text of each block; then one call must
    add all requests. Without it requests bring their cached tokens, or have no hits.
    """
    engine, count, before = t.engine[0], len(requests), len(t.requests)
    mode = engine["cache_mode"] = cache_mode(requests, c, identify_blocks)
    added = _request_records(requests, c, mode, first_index)
    own = count if concurrency is None else min(count, concurrency)
    engine["next_released"] = engine["released"] = engine["concurrency"] = before + own
    # These arrive when others end; until then "cancel" is the time from arrival to cancellation.
    added["cancel"][own:] -= requests.arrival_seconds[own:]
    added["arrival"][own:] = NEVER
    room = np.zeros(count, k.LINK)
    t = t._replace(
        requests=np.concatenate([t.requests, added]) if before else added,
        running=np.concatenate([t.running[:-1], room, t.running[-1:]]),
        waiting=np.concatenate([t.waiting[:-1], room, t.waiting[-1:]]),
        cancels=_longer(t.cancels, before + count + 1),
        waits=_longer(t.waits, before + count + 1) if engine["by_priority"] else t.waits,
        adapters=_longer(t.adapters, int(requests.adapter.max(initial=-1)) + 1),
    )
    return _with_blocks(t, c) if mode == k.IDENTIFY_BLOCKS else t


def _blank_request() -> Any:
    blank = np.zeros((), k.REQUEST)
    for name in ("owner", "given", "adapter", "cached"):
        blank[name] = NONE
    for name in ("cancel", "first_scheduled", "first_token", "last_token", "end"):
        blank[name] = NEVER
    blank["cancel_status"] = k.CANCELLED
    return blank


_BLANK = _blank_request()


def _request_records(requests: Requests, c: SchedulerConfiguration, mode: int, first: int) -> Any:
    target = requests.prompt_tokens + requests.generation_tokens
    if c.max_model_len is not None:
        target = np.minimum(target, c.max_model_len)
    shared = np.minimum(requests.shared_prefix_tokens, requests.prompt_tokens)
    values = {
        "prompt": requests.prompt_tokens,
        "target": target,
        "priority": requests.priority,
        "owner": -1 - requests.prefix_group,
        "serial": np.arange(first, first + len(requests)),
        "shared_blocks": np.where(requests.prefix_group >= 0, shared, 0) // c.block_size,
        "adapter": requests.adapter,
        "arrival": requests.arrival_seconds,
        "cancel": requests.cancel_seconds,
    }
    if mode != k.IDENTIFY_BLOCKS and c.enable_prefix_caching:
        values["given"] = requests.cached_tokens
    added = np.frombuffer(bytearray(_BLANK.tobytes()) * len(requests), k.REQUEST)
    for name, column in values.items():
        if (column != _BLANK[name]).any():
            added[name] = column
    return added


def _longer(values: Any, size: int) -> Any:
    if (more := size - len(values)) <= 0:
        return values
    return np.concatenate([values, np.zeros(more, dtype=values.dtype)])


def _with_blocks(t: Tables, c: SchedulerConfiguration) -> Tables:
    """Tables that identify every block (prefix caching)."""
    count, running = int(t.engine[0]["total_blocks"]), c.max_num_seqs + 1
    width = int(t.requests["target"].max(initial=1)) // c.block_size + 2
    blocks = np.zeros(count, k.BLOCK)
    blocks["index"] = blocks["chain"] = NONE
    blocks["owner"] = k.NO_OWNER
    classes = np.zeros(c.block_size + len(t.requests), k.LINK)
    classes["next"][: c.block_size] = classes["previous"][: c.block_size] = np.arange(c.block_size)
    t.engine["unkeyed"] = count
    t.engine["free_slots"] = running
    return t._replace(
        classes=classes,
        blocks=blocks,
        free_queue=_links(count),
        buckets=np.full(1 << max(4, (2 * count).bit_length()), NONE, dtype=np.int64),
        unkeyed=np.arange(count, dtype=np.int64)[::-1].copy(),
        table=_integers(running, width),
        slots=np.arange(running, dtype=np.int64),
        hits=_integers(width),
    )


def with_scrapes(t: Tables, times: Floats) -> Tables:
    """Tables with room for scrapes at these times."""
    t.engine["scrapes"] = 0
    return t._replace(
        scrape_times=np.ascontiguousarray(times, dtype=np.float64),
        scraped=np.zeros(len(times), k.COUNTERS),
        scraped_itl=_integers(len(times), len(t.itl_counts)),
        scraped_iteration=_integers(len(times), len(t.iteration_counts)),
    )


def without(t: Tables, ended: Flags) -> Tables:
    """Tables without the ended requests; indices of requests are renumbered.

    For counted blocks only.
    """
    if not ended.any():
        return t
    staying, engine = ~ended, t.engine[0]
    number = np.append(np.where(staying, np.cumsum(staying) - 1, NONE), NONE)  # NONE stays NONE
    before = np.append(np.cumsum(staying) - staying, np.count_nonzero(staying))
    for name in ("next_due", "next_released", "released", "concurrency"):
        engine[name] = before[engine[name]]
    t.explicit[: engine["explicits"]] = number[t.explicit[: engine["explicits"]]]
    for record in range(2):
        for members, name in ((t.tokens, "tokens"), (t.ends, "ends")):
            then = number[members[record][: t.steps[record][name]]]
            then = then[then != NONE]
            members[record][: len(then)] = then
            t.steps[record][name] = len(then)
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

    def linked(links: Any) -> Any:
        links = links[np.append(staying, True)]
        for name in ("next", "previous"):  # meaningless for requests in no list
            links[name] = number[np.minimum(links[name], len(ended))]
        return links

    return t._replace(
        requests=t.requests[staying], running=linked(t.running), waiting=linked(t.waiting)
    )
