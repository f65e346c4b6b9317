"""The evidence table's schema as data: docs, ``driftwatch evidence`` and every check read this.

One row per target and window (a minute, unless asked otherwise). NULL is unknown, never 0;
NaN and infinities become NULL before any condition sees them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

DType = Literal["float", "bool", "string", "time"]
# What a column needs besides what the scrapes show.
Need = Literal[
    "prompt_tokens_reference",  # tuned_for, or a baseline
    "generation_tokens_reference",
    "lengths_reference",  # one of both
    "baseline",
    "gpu_count",  # declared, or read
    "gpu_reading",
    "slo",  # one of both targets
    "slo_ttft",
    "slo_tpot",
    "max_num_seqs",  # said, else inferred once it binds
    "max_num_batched_tokens",
    "pool_of_several",
    "pool_of_three",
    "speed_pin",  # an armed pin of its own or of its pool
    "release",  # of vLLM, its image or the driver
    "own_past",  # hours to days of its own minutes
]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the evidence table.

    Attributes:
        name: column name, unit in the name.
        dtype: float, bool, string or time.
        unit: base unit, ``1`` for ratios.
        meaning: definition in the field's words.
        sources: scrape columns it is computed from (see the metric registry), or other inputs.
        disabled_by: what makes it NULL besides a missing source.
        aliases: words people search by.
        needs: what it is NULL without, besides its sources.
        optional: those of its sources that it does without, or that something stands in for.
    """

    name: str
    dtype: DType
    unit: str
    meaning: str
    sources: tuple[str, ...] = ()
    disabled_by: str = ""
    aliases: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    optional: tuple[str, ...] = ()


_NOT_REPLAYED = (
    "asked only while lengths moved and a limit binds; driftwatch recommend TARGET says it"
)
_NO_GPU = "no DCGM or NVML reading of the target's GPUs"
_REF = "no reference (a pin, --baseline FROM..TO, or tuned_for in the configuration)"
_STEPS = ("itl_seconds", "ttft_seconds", "iteration_tokens")
_PIN = "no armed pin (driftwatch baseline list says what is missing)"
_LOAD = (*_STEPS, "generation_tokens_total", "prompt_tokens_total", "kv_cache_usage_ratio")


def _c(
    name: str,
    unit: str,
    meaning: str,
    *sources: str,
    off: str = "",
    alias: tuple[str, ...] = (),
    dtype: DType = "float",
    needs: tuple[Need, ...] = (),
    optional: tuple[str, ...] = (),
) -> Column:
    return Column(name, dtype, unit, meaning, sources, off, alias, needs, optional)


def _gpu(name: str, unit: str, meaning: str, *alias: str) -> Column:
    """A mean over the target's GPUs, of what DCGM or NVML read in the window."""
    return _c(name, unit, meaning, "DCGM", "NVML", off=_NO_GPU, alias=alias, needs=("gpu_reading",))


def _latency(stem: str, what: str, *alias: str) -> tuple[Column, ...]:
    name = f"{stem}_seconds"
    return (
        _c(f"{name}_mean", "seconds", f"mean {what}, from sum and count", name, alias=alias),
        _c(f"{name}_p95", "seconds", f"p95 {what}, linear inside its bucket", name, alias=alias),
        _c(
            f"{name}_p95_lower",
            "seconds",
            f"lower edge of the bucket that holds the p95 {what}",
            name,
        ),
        _c(
            f"{name}_p95_upper",
            "seconds",
            f"upper edge of the bucket that holds the p95 {what}; "
            "NULL with a lower edge means above the last finite edge",
            name,
        ),
    )


_REF_BUCKETS = (
    "no reference with a distribution (a pin or --baseline; tuned_for declares means only), "
    "other bucket edges, or fewer than 100 finished requests"
)
_DISTANCES = (
    ("js_distance", "1", "Jensen-Shannon distance"),
    ("w1_ratio", "1", "exp of the Wasserstein-1 distance in ln tokens"),
    ("w1_upper_ratio", "1", "the largest w1_ratio that the buckets allow"),
    ("psi", "1", "population stability index"),
    ("ks_distance", "1", "Kolmogorov-Smirnov distance at the bucket edges"),
    ("chi2_p_value", "1", "p of the chi-square test of equal shares; bursts make it small"),
    ("cramers_v", "1", "Cramer's V of the same table"),
)
_PAST = "too little of its own past, its pool's or a shipped table for this layout of buckets"


def _drift(stem: str, what: str) -> tuple[Column, ...]:
    """Scores against contexts and twins: a distance over what is usual for it (1 = the 99 %)."""
    return (
        _c(
            f"{stem}_drift_score",
            "1",
            f"how far the pool's {what}s are from the nearest of its contexts (previous hour, "
            "trailing 24 h, same hour of earlier days and weeks), over what is usual",
            stem,
            off=_PAST,
            alias=("length drift", "traffic shift"),
            needs=("own_past",),
        ),
        _c(
            f"{stem}_drift_ratio",
            "1",
            f"the pool's mean {what} over that of the nearest context",
            stem,
            off=_PAST,
            alias=("length drift", "traffic shift"),
            needs=("own_past",),
        ),
        _c(
            f"{stem}_peer_score",
            "1",
            f"how far the target's {what}s are from its twins' of the same minutes, over what is "
            "usual",
            stem,
            off="a pool of fewer than three, or too few finished requests within 60 min",
            alias=("sticky client",),
            needs=("pool_of_three",),
        ),
        _c(
            f"{stem}_peer_ratio",
            "1",
            f"mean {what} over that of the twins, same minutes",
            stem,
            off="a pool of fewer than three, or too few finished requests within 60 min",
            alias=("sticky client",),
            needs=("pool_of_three",),
        ),
        _c(
            f"{stem}_pin_score",
            "1",
            f"{what}s of the last 24 h against the pin, over what is usual",
            stem,
            off="no pin of a whole day with a distribution, or less than 24 h of minutes",
            needs=("baseline", "own_past"),
        ),
        _c(
            f"{stem}_pin_ratio",
            "1",
            f"mean {what} of the last 24 h over the pin's",
            stem,
            off="no pin, or less than 24 h of minutes",
            needs=("baseline", "own_past"),
        ),
        _c(
            f"{stem}_smallest_detectable_ratio",
            "1",
            f"the smallest factor of the pool's {what}s that the drift score would show in 95 of "
            "100 of its last day's windows",
            stem,
            off=_PAST,
            needs=("own_past",),
        ),
        _c(
            f"{stem}_calibration",
            "1",
            "whose past the scores are measured in: own, pool or shipped (uncalibrated); of peer "
            "and drift score the less certain",
            stem,
            dtype="string",
        ),
    )


def _length(stem: str, what: str, reference: tuple[Need, ...], *alias: str) -> tuple[Column, ...]:
    rows = [_c(f"{stem}_mean", "tokens", f"mean {what} of finished requests", stem, alias=alias)]
    for q in ("p50", "p95"):
        rows += [
            _c(f"{stem}_{q}", "tokens", f"{q} {what}, linear inside its bucket", stem, alias=alias),
            _c(f"{stem}_{q}_lower", "tokens", "lower edge of the bucket that holds it", stem),
            _c(f"{stem}_{q}_upper", "tokens", "upper edge of the bucket that holds it", stem),
        ]
    rows += [
        _c(
            f"{stem}_mean_ratio",
            "1",
            f"mean {what} over that of the reference",
            *dict.fromkeys((stem, "prompt_tokens")),  # which counts the finished requests
            off=_REF,
            alias=("length drift", *alias),
            needs=reference,
        ),
        _c(
            f"{stem}_mean_2m_ratio",
            "1",
            "the same over the last 2 min",
            stem,
            off=f"{_REF}; fewer than 100 finished requests in the 2 min",
            alias=("length drift", *alias),
            needs=reference,
        ),
        *(
            _c(
                f"{stem}_{name}",
                unit,
                f"{meaning} of {what}, against the reference's distribution",
                stem,
                off=_REF_BUCKETS,
                alias=("distribution shift", "length drift"),
                needs=("baseline",),
            )
            for name, unit, meaning in _DISTANCES
        ),
        _c(
            f"{stem}_moved",
            "1",
            f"which {what}s gained and lost most of the share, against the reference",
            stem,
            off=_REF_BUCKETS,
            dtype="string",
            needs=("baseline",),
        ),
        *_drift(stem, what),
    ]
    return tuple(rows)


_GPU = (
    _c(
        "gpu_count",
        "GPUs",
        "GPUs of this engine; a GPU that pods share counts by their shares",
        "DCGM",
        "NVML",
        off="gpus_per_replica not declared, and no GPU joined to the target",
        alias=("gpus_per_replica",),
        needs=("gpu_count",),
    ),
    _c(
        "gpu_count_source",
        "1",
        "where the GPU count came from, and what contradicts it",
        "DCGM",
        "NVML",
        off="gpus_per_replica not declared, and no GPU joined to the target",
        dtype="string",
        needs=("gpu_count",),
    ),
    _gpu(
        "gpu_utilization_ratio",
        "1",
        "a kernel was resident; not work. Under MIG the share of time its engine was busy",
        "SM utilization",
        "GPU_UTIL",
    ),
    _gpu("gpu_tensor_active_ratio", "1", "tensor pipe active", "tensor cores"),
    _gpu("gpu_dram_active_ratio", "1", "memory interface active", "memory bandwidth"),
    _gpu("gpu_power_watts", "watts", "board power, mean of the target's GPUs", "power draw"),
    _gpu("gpu_sm_clock_hertz", "hertz", "SM clock, mean of the target's GPUs", "throttling"),
    _c(
        "gpu_sm_clock_ratio",
        "1",
        "SM clock over the reference",
        "DCGM",
        "NVML",
        off=_REF,
        needs=("baseline", "gpu_reading"),
    ),
    _c(
        "gpu_clock_event_reasons",
        "1",
        "why the clocks are held down, in NVML's words",
        "DCGM",
        "NVML",
        off="clock events not collected",
        alias=("throttle reasons",),
        dtype="string",
        needs=("gpu_reading",),
    ),
    _c(
        "gpus_lost",
        "GPUs",
        "GPUs of the target that fell off the bus (NVML GPU_IS_LOST, XID 79)",
        "DCGM",
        "NVML",
        off=_NO_GPU,
        alias=("XID 79", "GPU_IS_LOST"),
        needs=("gpu_reading",),
    ),
)

_SPEED = (
    _c(
        "speed_at_equal_load_ratio",
        "1",
        "speed of the engine over that of the pinned load model at this load: median of the last "
        "10 min, or of the minutes since a loss that is younger",
        *_LOAD,
        off=_PIN,
        alias=("equal load", "slower"),
        needs=("speed_pin",),
    ),
    _c(
        "speed_at_equal_load_upper_ratio",
        "1",
        "90 % quantile of the same minutes: nearly every one is at most so fast",
        *_LOAD,
        off=_PIN,
        needs=("speed_pin",),
    ),
    _c(
        "speed_at_equal_demand_ratio",
        "1",
        "the same where the load lies above the tuned range, with what the load model may be too "
        "low by out there: an upper bound",
        *_LOAD,
        off=f"{_PIN}; or the load lies inside the tuned range",
        alias=("equal demand",),
        needs=("speed_pin",),
    ),
    _c(
        "speed_threshold_ratio",
        "1",
        "at or below it the upper ratio counts as slower: what its own past knows, at most 0.87",
        off=_PIN,
        needs=("speed_pin",),
    ),
    _c(
        "speed_change_ratio",
        "1",
        "speed at equal load of nearly every one of the last 8 min over that of the minutes before",
        *_LOAD,
        off=_PIN,
        alias=("sudden", "abrupt"),
        needs=("speed_pin",),
    ),
    _c(
        "speed_change_threshold_ratio",
        "1",
        "at or below it a change counts as sudden loss: what its own past knows, at most 0.915",
        off=_PIN,
        needs=("speed_pin",),
    ),
    _c(
        "slower_at_equal_load",
        "1",
        "the engine is slower than its pin, from a sudden change or a low level on until the speed "
        "is back; at equal load, or at equal demand",
        *_LOAD,
        off=_PIN,
        dtype="bool",
        alias=("slower",),
        needs=("speed_pin",),
    ),
    _c(
        "speed_recovered",
        "1",
        "no loss of speed holds: most of it was regained over 15 min, or by a jump",
        *_LOAD,
        off=_PIN,
        dtype="bool",
        needs=("speed_pin",),
    ),
    _c(
        "speed_smallest_detectable_loss_ratio",
        "1",
        "the smallest share of speed whose loss would be found here in 95 of 100 cases",
        off=_PIN,
        needs=("speed_pin",),
    ),
    _c(
        "speed_reference",
        "1",
        "which reference answered: own pin, pool pin, provisional; equal load or equal demand",
        dtype="string",
    ),
    _c(
        "speed_calibration",
        "1",
        "whose past set the thresholds: own, pool or shipped (uncalibrated)",
        off=_PIN,
        dtype="string",
    ),
    _c(
        "speed_unknown_reason",
        "1",
        "why there is no speed at equal load: arming and what is missing, idle, saturated, outside "
        "the tuned range",
        off="the speed is known",
        dtype="string",
        alias=("arming",),
    ),
    _c(
        "pool_speed_at_equal_load_ratio",
        "1",
        "speed at equal load of the pool's other targets: their median",
        *_LOAD,
        off="a pool of fewer than three, or no load model",
        needs=("pool_of_three",),
    ),
    _c(
        "speed_against_pool_ratio",
        "1",
        "speed at equal load over that of the pool's other targets in the same minutes",
        *_LOAD,
        off="a pool of fewer than three, or no load model",
        alias=("twins", "peers", "replica"),
        needs=("pool_of_three",),
    ),
    _c(
        "speed_against_pool_threshold_ratio",
        "1",
        "at or below it the target counts as slower than its twins",
        off="a pool of fewer than three, or no load model",
        needs=("pool_of_three",),
    ),
    _c(
        "slower_than_pool",
        "1",
        "the engine is slower than its twins at equal load",
        *_LOAD,
        off="a pool of fewer than three, or no load model",
        dtype="bool",
        alias=("twins", "peers", "replica"),
        needs=("pool_of_three",),
    ),
    _c(
        "traffic_shifted",
        "1",
        "the pool's lengths changed against every context",
        "prompt_tokens",
        "generation_tokens",
        off=_PAST,
        dtype="bool",
        alias=("traffic shift",),
        needs=("own_past",),
    ),
    _c(
        "traffic_shift_over",
        "1",
        "the pool's lengths have been usual for 15 min",
        "prompt_tokens",
        "generation_tokens",
        off=_PAST,
        dtype="bool",
        needs=("own_past",),
    ),
    _c(
        "traffic_uneven",
        "1",
        "the target's lengths differ from its twins' while it is not slower than they are",
        "prompt_tokens",
        "generation_tokens",
        off="a pool of fewer than three, or too few finished requests within 60 min",
        dtype="bool",
        alias=("sticky client", "routing"),
        needs=("pool_of_three",),
    ),
    _c(
        "traffic_uneven_over",
        "1",
        "the target's lengths have been those of its twins for 15 min",
        "prompt_tokens",
        "generation_tokens",
        off="a pool of fewer than three, or too few finished requests within 60 min",
        dtype="bool",
        needs=("pool_of_three",),
    ),
    _c(
        "pin_lengths_moved",
        "1",
        "lengths of the last 24 h differ from the pin's beyond what is usual: the tune is stale",
        "prompt_tokens",
        "generation_tokens",
        off="no pin of a whole day with a distribution, or less than 24 h of minutes",
        dtype="bool",
        alias=("stale tune",),
        needs=("baseline", "own_past"),
    ),
    _c(
        "pin_age_seconds",
        "seconds",
        "time since the end of the pinned window",
        off="no pin",
        needs=("baseline",),
    ),
)


def _trend(name: str, what: str, *sources: str) -> tuple[Column, ...]:
    off = "fewer than 7 days with enough minutes (trend_unknown_reason)"
    return (
        _c(
            f"{name}_slope_14d_ratio",
            "1",
            f"Theil-Sen slope of {what} over days, times 14 days",
            *sources,
            off=off,
            alias=("slow drift", "creep"),
            needs=("own_past",),
        ),
        _c(
            f"{name}_slope_14d_lower_ratio",
            "1",
            "lower end of its 95 % interval",
            *sources,
            off=off,
            needs=("own_past",),
        ),
        _c(
            f"{name}_slope_14d_upper_ratio",
            "1",
            "upper end of its 95 % interval",
            *sources,
            off=off,
            needs=("own_past",),
        ),
        _c(
            f"{name}_trend_p_value",
            "1",
            f"Mann-Kendall p of no trend in {what}",
            *sources,
            off=off,
            needs=("own_past",),
        ),
    )


_TRENDS = (
    *_trend("speed", "daily ln speed at equal load", *_LOAD),
    *_trend("e2e_p50", "daily ln p50 end-to-end time at equal lengths", "e2e_seconds"),
    *_trend("e2e_p99", "daily ln p99 end-to-end time at equal lengths", "e2e_seconds"),
    _c(
        "latency_creeps",
        "1",
        "a slow drift of the speed at equal load, or of p50 or p99 end-to-end time at equal "
        "lengths: the 95 % interval excludes 0 and 14 days make 3 % or more",
        "e2e_seconds",
        off="fewer than 7 days with enough minutes",
        dtype="bool",
        alias=("slow drift", "creep"),
        needs=("own_past",),
    ),
    _c(
        "trend_unknown_reason",
        "1",
        "which slow drifts cannot be told, and why: how many days there are, or that their lengths "
        "or load lie too far apart",
        off="all of them are known",
        dtype="string",
        alias=("slow drift",),
    ),
)

_NO_PAST_WINDOW = "no pin, or one whose window did not measure it"
_FACTORS: tuple[tuple[str, str, tuple[Need, ...], str], ...] = (
    ("batch", "the effective batch size", ("baseline",), _NO_PAST_WINDOW),
    (
        "load",
        "what a step has to do: the load model's inter-token latency",
        ("speed_pin",),
        "no speed at equal load (speed_unknown_reason)",
    ),
    (
        "speed",
        "the speed at equal load",
        ("speed_pin",),
        "no speed at equal load (speed_unknown_reason)",
    ),
    ("first_tokens", "first tokens per later token", ("baseline",), _NO_PAST_WINDOW),
    (
        "gpus",
        "the number of GPUs",
        ("baseline", "gpu_count"),
        "no GPU count now, or none in the pinned window",
    ),
)
_ATTRIBUTION = tuple(
    _c(
        f"throughput_factor_{name}_ratio",
        "1",
        "factor of the last 10 min's tokens/s/GPU against the pinned window that comes from "
        f"{meaning}",
        *_LOAD,
        off=off,
        alias=("attribution",),
        needs=needs,
    )
    for name, meaning, needs, off in _FACTORS
)

_NO_RELEASE = (
    "the release is not known: it is on no page, but in /version of a server that is scraped "
    "directly, or in a label vllm_version, image or driver_version"
)
_RELEASE = (
    _c(
        "release_changed",
        "1",
        "the release (vLLM, image, driver) was seen to change in the window",
        off=_NO_RELEASE,
        dtype="bool",
        needs=("release",),
    ),
    _c(
        "release_changed_since_pin",
        "1",
        "the release (vLLM, image, driver) is another than in the pinned window",
        off=f"no pin; or {_NO_RELEASE}",
        dtype="bool",
        alias=("upgrade", "version change"),
        needs=("release", "baseline"),
    ),
)

COLUMNS: tuple[Column, ...] = (
    _c("duration_seconds", "seconds", "how much of the window the scrapes cover", "any"),
    _c("scrapes", "scrapes", "usable scrapes in the window", "any"),
    _c(
        "effective_batch_size",
        "requests",
        "requests decoding, time-weighted, without sampling: rate of the summed inter-token "
        "latency (Little's law)",
        "itl_seconds",
        alias=("batch size", "real concurrency"),
    ),
    _c(
        "requests_per_forward_pass",
        "requests",
        "decode and first-token requests per engine step: (ITL count + TTFT count) / steps; a "
        "lower bound with several API servers, which count a step once each",
        *_STEPS,
        alias=("requests per step", "batch size"),
    ),
    _c(
        "decode_requests_per_forward_pass",
        "requests",
        "ITL count / steps: decoding requests per engine step",
        "itl_seconds",
        "iteration_tokens",
    ),
    _c(
        "running_requests",
        "requests",
        "mean of the gauge over the window's scrapes; up to 2x off under bursts",
        "running_requests",
        alias=("num_requests_running",),
    ),
    _c(
        "batch_estimate_spread_ratio",
        "1",
        "largest over smallest of the three batch estimates",
        "running_requests",
        *_STEPS,
        optional=("running_requests", "ttft_seconds", "iteration_tokens"),
    ),
    _c(
        "tokens_per_forward_pass",
        "tokens",
        "computed tokens per engine step; steps that only prefill are not counted: an upper bound",
        "iteration_tokens",
        alias=("batch tokens",),
    ),
    _c(
        "batch_utilization",
        "1",
        "tokens_per_forward_pass / max_num_batched_tokens (same bound)",
        "iteration_tokens",
        off="max_num_batched_tokens unknown",
        alias=("token budget use",),
        needs=("max_num_batched_tokens",),
    ),
    _c(
        "sequence_utilization",
        "1",
        "running_requests / max_num_seqs",
        "running_requests",
        off="max_num_seqs unknown and not inferred",
        alias=("slot use",),
        needs=("max_num_seqs",),
    ),
    *_length("prompt_tokens", "prompt length", ("prompt_tokens_reference",), "input length"),
    *_length(
        "generation_tokens", "generation length", ("generation_tokens_reference",), "output length"
    ),
    _c(
        "finished_requests",
        "requests",
        "requests finished in the window",
        "prompt_tokens",
        alias=("n",),
    ),
    _c("finished_requests_2m", "requests", "requests finished in the last 2 min", "prompt_tokens"),
    _c(
        "prefill_decode_ratio",
        "1",
        "computed prompt tokens (cache hits excluded) per generated token",
        "prompt_tokens_computed_total",
        "generation_tokens_total",
    ),
    _c(
        "tokens_per_second_per_gpu",
        "tokens/s",
        "generated tokens per second and GPU",
        "generation_tokens_total",
        "DCGM",
        "NVML",
        off="no GPU count: gpus_per_replica not declared, no GPU joined to the target",
        alias=("throughput",),
        needs=("gpu_count",),
    ),
    _c(
        "tokens_per_second_per_gpu_ratio",
        "1",
        "the same over the reference; moves with demand, never pages alone",
        "generation_tokens_total",
        off=_REF,
        alias=("throughput",),
        needs=("baseline", "gpu_count"),
    ),
    _c(
        "generation_tokens_per_second",
        "tokens/s",
        "generated tokens per second, whole target",
        "generation_tokens_total",
        alias=("throughput",),
    ),
    _c(
        "prompt_tokens_per_second",
        "tokens/s",
        "prompt tokens per second, cache hits included",
        "prompt_tokens_total",
    ),
    _c(
        "forward_passes_per_second",
        "steps/s",
        "engine steps with an output per second",
        "iteration_tokens",
        alias=("steps per second",),
    ),
    _c(
        "forward_passes_overcounted",
        "1",
        "steps are counted once per API server: per-step values are lower bounds",
        "several_api_servers",
        dtype="bool",
    ),
    _c(
        "seconds_since_last_token",
        "seconds",
        "how long requests have been present without a token; 0 while none is present",
        "generation_tokens_total",
        "running_requests",
        "waiting_requests",
        alias=("stuck",),
        optional=("waiting_requests",),
    ),
    _c(
        "batch_assembly_wait_seconds",
        "seconds",
        "mean queue time, first queued to first scheduled",
        "queue_seconds",
        alias=("queue wait", "queue time"),
    ),
    _c(
        "batch_assembly_wait_seconds_p95",
        "seconds",
        "p95 queue time, linear inside its bucket (first edge 0.3 s)",
        "queue_seconds",
        alias=("queue wait", "queue time"),
    ),
    _c(
        "batch_assembly_wait_seconds_p95_lower",
        "seconds",
        "lower edge of its bucket",
        "queue_seconds",
    ),
    _c(
        "batch_assembly_wait_seconds_p95_upper",
        "seconds",
        "upper edge of its bucket",
        "queue_seconds",
    ),
    _c(
        "waiting_requests",
        "requests",
        "mean of the gauge",
        "waiting_requests",
        alias=("queue length", "queue depth"),
    ),
    _c(
        "waiting_capacity_requests",
        "requests",
        "waiting for capacity, mean of the gauge",
        "waiting_capacity_requests",
        alias=("queue length", "queue depth"),
    ),
    _c(
        "waiting_deferred_requests",
        "requests",
        "deferred by LoRA slots, KV transfer or grammar",
        "waiting_deferred_requests",
        alias=("queue length", "queue depth"),
    ),
    *_latency("ttft", "time to first token", "latency"),
    *_latency("itl", "inter-token latency", "latency"),
    *_latency("tpot", "time per output token of a request", "latency"),
    *_latency("e2e", "end-to-end time", "latency"),
    _c(
        "queue_share_of_ttft_ratio",
        "1",
        "mean queue time over mean TTFT",
        "queue_seconds",
        "ttft_seconds",
    ),
    _c(
        "prefill_share_of_e2e_ratio",
        "1",
        "mean prefill time over mean end-to-end time",
        "prefill_seconds",
        "e2e_seconds",
    ),
    _c(
        "decode_share_of_e2e_ratio",
        "1",
        "mean decode time over mean end-to-end time",
        "decode_seconds",
        "e2e_seconds",
    ),
    _c(
        "kv_cache_usage_ratio",
        "1",
        "mean of the gauge",
        "kv_cache_usage_ratio",
        alias=("gpu_cache_usage_perc", "KV pressure"),
    ),
    _c(
        "preemptions_per_second",
        "1/s",
        "requests preempted and recomputed",
        "preemptions_total",
        alias=("sequence eviction",),
    ),
    _c(
        "prefix_cache_hit_ratio",
        "1",
        "prompt tokens found in the prefix cache over those looked up",
        "prefix_cache_queries_total",
        "prefix_cache_hits_total",
        alias=("cache efficiency",),
    ),
    _c(
        "reference_prefix_cache_hit_ratio",
        "1",
        "the reference's prefix-cache hit ratio",
        "prefix_cache_queries_total",
        "prefix_cache_hits_total",
        off=_REF,
        needs=("baseline",),
    ),
    _c(
        "requests_per_second",
        "requests/s",
        "finished requests per second",
        "finished_requests_total",
        alias=("request rate", "demand"),
    ),
    _c(
        "requests_per_second_ratio",
        "1",
        "the same over the reference",
        "finished_requests_total",
        off=_REF,
        alias=("request rate", "demand"),
        needs=("baseline",),
    ),
    _c(
        "requests_per_second_low_ratio",
        "1",
        "the same over the lowest tenth of the reference's 10-min rates: below it, demand is lower "
        "than the reference's quiet hours",
        "finished_requests_total",
        off="no reference of several 10-min stretches (a pin)",
        alias=("request rate", "demand"),
        needs=("baseline",),
    ),
    _c(
        "rejected_requests_per_second",
        "requests/s",
        "503 answers of the queue limits",
        "rejected_requests_total",
    ),
    _c(
        "aborted_requests_per_second",
        "requests/s",
        "requests finished by abort",
        "aborted_requests_total",
    ),
    *_GPU,
    *_SPEED,
    *_TRENDS,
    *_ATTRIBUTION,
    _c(
        "pool_idle_ratio",
        "1",
        "share of the pool's other targets with free slots and no queue",
        "running_requests",
        off="a pool of one",
        needs=("pool_of_several",),
    ),
    _c(
        "binding_limit",
        "1",
        "max_num_seqs, max_num_batched_tokens, kv_cache, deferred or none: "
        "what binds in most of the window's queued scrapes, from half of its scrapes on, or from a "
        "quarter on while the TTFT target is missed and most of the TTFT is waiting",
        "running_requests",
        "waiting_capacity_requests",
        "kv_cache_usage_ratio",
        "preemptions_total",
        alias=("what binds",),
        dtype="string",
        optional=("running_requests", "kv_cache_usage_ratio", "preemptions_total"),
    ),
    _c(
        "binding_margin_ratio",
        "1",
        "room under the tightest known limit",
        "running_requests",
        off="no limit known",
        alias=("what binds",),
    ),
    _c(
        "limit_binding_share_10m_ratio",
        "1",
        "share of the last 10 min's scrapes in which a batch "
        "limit binds, cut at restarts and knob changes",
        "running_requests",
        "waiting_capacity_requests",
        "kv_cache_usage_ratio",
        "preemptions_total",
        off="queued scrapes with no limit known",
        optional=("running_requests", "kv_cache_usage_ratio", "preemptions_total"),
    ),
    _c(
        "binding_running_requests",
        "requests",
        "mean running requests over those of the last 10 min's scrapes in which a batch limit "
        "binds",
        "running_requests",
        off="no batch limit binds",
    ),
    _c(
        "binding_waiting_requests",
        "requests",
        "mean requests waiting for capacity over the same scrapes",
        "waiting_capacity_requests",
        off="no batch limit binds",
        alias=("queue length",),
    ),
    _c(
        "scrapes_10m",
        "scrapes",
        "scrapes of the last 10 min since the last restart or knob change that show who waits",
        "waiting_capacity_requests",
    ),
    _c(
        "waiting_deferred_share_10m_ratio",
        "1",
        "share of the last 10 min's scrapes with deferred requests",
        "waiting_deferred_requests",
    ),
    _c(
        "observed_10m_seconds",
        "seconds",
        "how much of the last 10 min was observed since the last restart or knob change",
        "any",
    ),
    _c(
        "batch_assembly_wait_10m_seconds",
        "seconds",
        "mean queue time of the last 10 min",
        "queue_seconds",
    ),
    _c(
        "ttft_10m_seconds", "seconds", "mean time to first token of the last 10 min", "ttft_seconds"
    ),
    _c(
        "queue_share_of_ttft_10m_ratio",
        "1",
        "queue time over TTFT in the last 10 min",
        "queue_seconds",
        "ttft_seconds",
    ),
    _c(
        "queue_wait_estimate_10m_seconds",
        "seconds",
        "what a request that queues now will wait: mean waiting for capacity over first tokens per "
        "second of the last 10 min (Little's law); speaks of those that no histogram has yet seen; "
        "a lower bound where no first token came",
        "waiting_capacity_requests",
        "ttft_seconds",
        alias=("queue wait", "queue time"),
    ),
    _c(
        "deferred_requests_10m",
        "requests",
        "mean deferred requests over those of the last 10 min's scrapes that show any",
        "waiting_deferred_requests",
        off="none is deferred",
    ),
    _c(
        "slo_missed",
        "1",
        "over the last 10 min fewer than the SLO's share of requests met a target",
        "ttft_seconds",
        "tpot_seconds",
        off="no slo in the configuration, or the target lies inside a bucket that decides",
        dtype="bool",
        alias=("slo",),
        needs=("slo",),
        optional=("ttft_seconds", "tpot_seconds"),
    ),
    _c(
        "ttft_in_target_10m_ratio",
        "1",
        "share of requests of the last 10 min within the TTFT "
        "target (lower bound unless the target is a bucket edge)",
        "ttft_seconds",
        off="no slo.ttft_seconds",
        needs=("slo_ttft",),
    ),
    _c(
        "tpot_in_target_10m_ratio",
        "1",
        "share within the TPOT target (lower bound unless the target is a bucket edge)",
        "tpot_seconds",
        off="no slo.tpot_seconds",
        needs=("slo_tpot",),
    ),
    _c(
        "coverage_missing_seconds",
        "seconds",
        "how long inputs that were there in the last 24 h are gone",
        "any",
    ),
    _c("coverage_missing_inputs", "1", "which inputs are gone", "any", dtype="string"),
    _c(
        "pool_coverage_missing_ratio",
        "1",
        "share of the pool's targets with inputs gone for 5 min",
        "any",
    ),
    _c("pool_coverage_missing_targets", "targets", "how many of them", "any"),
    _c(
        "capacity_ratio",
        "1",
        "capacity within the SLO at today's lengths over the reference's, by replay: every 10 min "
        "while lengths moved, a limit binds and no target is known to be missed; on a page, of "
        "its advice",
        off=_NOT_REPLAYED,
        alias=("headroom",),
        needs=("lengths_reference",),
    ),
    _c(
        "utilization_ratio",
        "1",
        "offered rate over that capacity",
        off=_NOT_REPLAYED,
        alias=("headroom", "rho"),
    ),
    _c(
        "capacity_requests_per_second",
        "1/s",
        "that capacity: the highest rate of one engine at which the share of requests in target "
        "is met",
        off=_NOT_REPLAYED,
        alias=("headroom",),
    ),
    _c(
        "capacity_unknown_reason",
        "1",
        "why it was asked and is not known",
        off="the capacity is known, or was not asked",
        dtype="string",
        alias=("headroom",),
    ),
    _c(
        "max_num_seqs",
        "requests",
        "the sequence cap",
        off="not in any metric; inferred from a plateau, else unknown",
        needs=("max_num_seqs",),
    ),
    _c(
        "max_num_seqs_inferred",
        "1",
        "max_num_seqs was inferred from the plateau of running requests",
        "running_requests",
        dtype="bool",
        optional=("running_requests",),
    ),
    _c(
        "max_num_batched_tokens",
        "tokens",
        "the token budget",
        off="not in any metric",
        needs=("max_num_batched_tokens",),
    ),
    _c("kv_cache_tokens", "tokens", "size of the KV cache", "cache_config"),
    _c("configuration_changed", "1", "knobs changed in the window", "cache_config", dtype="bool"),
    *_RELEASE,
    _c(
        "restarted",
        "1",
        "the engine restarted in the window",
        "process_start_time_seconds",
        "generation_tokens_total",
        dtype="bool",
        optional=("process_start_time_seconds", "generation_tokens_total"),
    ),
)

# Columns that detectors with a past add to the minutes; a window has those of its last minute.
DETECTED: tuple[str, ...] = tuple(
    c.name
    for c in (
        *_SPEED,
        *_TRENDS,
        *_ATTRIBUTION,
        _RELEASE[1],
        *_drift("prompt_tokens", "prompt length"),
        *_drift("generation_tokens", "generation length"),
    )
)

BY_NAME: Mapping[str, Column] = {column.name: column for column in COLUMNS}

_PADS_NOTHING = (
    "exists only where batches are padded (static and dynamic batchers); "
    "vLLM batches continuously and pads nothing"
)
NOT_CONTINUOUS: Mapping[str, str] = dict.fromkeys(
    ("batch_efficiency", "padding waste", "bucketing"), _PADS_NOTHING
)


def search(term: str) -> tuple[Column, ...]:
    """Columns whose name, alias or meaning contains ``term`` (case-insensitive)."""
    needle = term.lower().strip()
    plain = needle.replace("_", " ")
    by_name = [
        c
        for c in COLUMNS
        if needle in c.name or any(plain in alias.lower().replace("_", " ") for alias in c.aliases)
    ]
    rest = [c for c in COLUMNS if c not in by_name and plain in c.meaning.lower()]
    return (*by_name, *rest)
