"""A target's engine: its settings, model and GPU, from all sources."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from driftwatch.baselines.in_force import fingerprint
from driftwatch.collect.startup import NOT_QUANTIZED, from_cache_config, merge
from driftwatch.errors import UsageError
from driftwatch.knobs import assumed_budget
from driftwatch.model import Fingerprint, Serving, Setting, Target
from driftwatch.pipeline.plan import Plan
from driftwatch.recommend.server import Server
from driftwatch.recommend.window import undisturbed
from driftwatch.signals.rows import EXCEEDED_RATIO
from driftwatch.simulate.hardware import is_file, shipped_hardware
from driftwatch.simulate.model_config import DTYPE_BYTES, QUANTIZED_BYTES

_FLAGS = (
    "async_scheduling",
    "scheduling_policy",
    "enable_chunked_prefill",
    "long_prefill_token_threshold",
    "enforce_eager",
    "cudagraph_mode",
)
# Without speculative decoding a request gets one token a step, so each token but the first has one
# inter-token time. A tenth more tokens than times is more than rounding.
_TOKENS_A_STEP = 1.1
_ENOUGH_TOKENS = 1_000
_BLOCK_TOKENS = 16
_MODELS = "/v1/models"


def server_of(
    target: Target,
    plan: Plan,
    minutes: pl.DataFrame,
    *,
    row: Mapping[str, Any] | None = None,
    model: str | None = None,
    gpu: str | None = None,
) -> Server:
    """One engine as it ran in the minutes.

    Precedence: ``model`` and ``gpu``, the pool's settings, reports of the server or its log, its
    metrics; for max_model_len the server's report comes first. Settings in the minutes override
    those of today's plan.

    Args:
        minutes: of this engine, in order: :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`, also
            ``cache_config``, ``gpu_model`` and ``model_name`` if stored.
        row: the evidence row of the window; None = from the minutes alone.
    """
    row = row or {}
    pool = plan.pool_of(target)
    labels_json = row.get("cache_config") or _last(minutes, "cache_config")
    cache = _labels(labels_json)
    ran = fingerprint(target, plan, _last(minutes, "gpu_model"), labels_json)
    count = _number(row.get("gpu_count")) or _number(_last(minutes, "gpu_count"))
    length, labels = _reported_length(plan, target), _from_labels(labels_json)
    serving = _settings_of_minutes(merge(length, plan.serving_of(target), labels), minutes, row)
    blocks, block = _blocks(serving, cache)
    names = (
        ran.identity.get("model"),
        row.get("model_name"),
        ran.identity.get("model_name"),
        _last(minutes, "model_name"),
    )
    switch = cache.get("enable_prefix_caching") or ran.knobs.get("enable_prefix_caching")
    memory = cache.get("gpu_memory_utilization") or ran.knobs.get("gpu_memory_utilization")
    return Server(
        serving=serving,
        model=model or pool.model or _known_model(*names),
        gpu=gpu or pool.gpu or _unless_file(ran.identity.get("gpu")),
        gpus=count or pool.gpus_per_replica,
        tensor_parallel=_tensor_parallel(ran, count or pool.gpus_per_replica),
        weight_bytes=_weight_bytes(ran),
        kv_cache_dtype=cache.get("cache_dtype") or ran.knobs.get("kv_cache_dtype"),
        num_gpu_blocks=blocks,
        block_size=block,
        gpu_memory_utilization=_number(memory),
        prefix_caching=_switch(switch),
        release=ran.release.get("vllm"),
        unsupported=tuple(_unsupported(ran, minutes)),
        flags={name: ran.knobs[name] for name in _FLAGS if name in ran.knobs},
    )


def _known_model(*names: str | None) -> str | None:
    """The first reported name in the shipped tables, else the first one; never a file."""
    reported = list(dict.fromkeys(name for name in names if _unless_file(name)))
    if len(reported) < 2:
        return reported[0] if reported else None
    tables = shipped_hardware()
    in_tables = (name for name in reported if tables.find_model(name)[0] is not None)
    return next(in_tables, reported[0])


def _unless_file(name: str | None) -> str | None:
    return None if name is None or is_file(name) else name


def _last(minutes: pl.DataFrame, name: str) -> Any:
    """The last known value of a column; None without one."""
    if name not in minutes.columns:
        return None
    values = minutes[name].drop_nulls()
    return values[-1] if len(values) else None


def _labels(text: str | None) -> dict[str, str]:
    """The labels of ``vllm:cache_config_info`` that have a value."""
    try:
        labels = json.loads(text or "{}")
    except ValueError:
        return {}
    if not isinstance(labels, dict):
        return {}
    return {k: v for k, v in labels.items() if isinstance(v, str) and v not in ("", "None")}


def _reported_length(plan: Plan, target: Target) -> Serving:
    """max_model_len as the server reports it."""
    reported = plan.reported.get(target.key.instance, Fingerprint()).knobs.get("max_model_len")
    length = _number(reported)
    return Serving(max_model_len=None if length is None else Setting(length, "server", _MODELS))


def _from_labels(labels_json: str | None) -> Serving:
    try:
        return Serving() if not labels_json else from_cache_config(labels_json)
    except UsageError:  # no labels
        return Serving()


STEP_TOKENS, RUNNING = "step_tokens_max_of_process", "running_requests_max_of_process"


def _settings_of_minutes(now: Serving, minutes: pl.DataFrame, row: Mapping[str, Any]) -> Serving:
    """The settings that the minutes show, else those of the plan."""
    cap, inferred = _number(row.get("max_num_seqs")), row.get("max_num_seqs_inferred")
    budget = _number(row.get("max_num_batched_tokens"))
    given = [
        name
        for name in ("max_num_seqs", "max_num_batched_tokens")
        if (setting := getattr(now, name)) is not None and setting.provenance == "command line"
    ]
    usable = undisturbed(minutes).rows if (minutes["scrapes"] > 0).any() else minutes.tail(1)
    if cap is None:
        of_cap = usable.filter(pl.col("max_num_seqs").is_not_null())
        cap, inferred = _last(of_cap, "max_num_seqs"), _last(of_cap, "max_num_seqs_inferred")
    then = now
    if budget is None:
        budget = _last(usable, "max_num_batched_tokens")
    if cap is not None and inferred:
        plateau = Setting(cap, "inferred", "plateau of running requests")
        if (configured := _running_cap(now)) is None or configured < cap:
            then = replace(then, max_num_seqs=plateau)
    elif cap is not None and cap != _running_cap(now):
        limit = Setting(cap, "config", "as it was then")
        then = replace(then, max_num_seqs=limit, max_num_active_seqs=None)
    cache = _number(_last(usable, "kv_cache_tokens"))
    if cache is not None and then.kv_cache_tokens is None:
        then = replace(then, kv_cache_tokens=Setting(cache, "metrics", "kv_cache_size_tokens"))
    before = then.max_num_batched_tokens
    if budget is not None and (before is None or before.value != budget):
        limit = Setting(budget, "config", "as it was then")
        then = replace(then, max_num_batched_tokens=limit)
    most = _number(row.get(STEP_TOKENS) or _last(usable, STEP_TOKENS))
    running = _number(row.get(RUNNING) or _last(usable, RUNNING))
    if then.max_num_seqs is not None and (running or 0.0) > then.max_num_seqs.value:
        then = replace(then, max_num_seqs=None)  # another one is in force
    # settings on the command line override those of the minutes
    then = replace(then, **{name: getattr(now, name) for name in given})
    return replace(then, max_num_batched_tokens=_budget_of_steps(then.max_num_batched_tokens, most))


def _budget_of_steps(budget: Setting | None, most: float | None) -> Setting | None:
    """A token budget; where measured steps exceed it, an assumed one.

    ``most``: largest tokens a step since the engine's start.
    """
    if budget is None or most is None or most <= EXCEEDED_RATIO * budget.value:
        return budget
    why = f"configured {budget.value:.0f}, but steps took up to {most:,.0f} tokens since the start"
    assumed = assumed_budget(most, budget.value)
    return None if assumed is None else Setting(assumed, "inferred", why)


def _running_cap(serving: Serving) -> float | None:
    caps = [s.value for s in (serving.max_num_active_seqs, serving.max_num_seqs) if s is not None]
    return min(caps) if caps else None


def _blocks(serving: Serving, cache: Mapping[str, str]) -> tuple[int | None, int | None]:
    """KV blocks and tokens a block, from the token count if known: KV groups share blocks."""
    block = None if serving.kv_block_tokens is None else int(serving.kv_block_tokens.value)
    count = _number(cache.get("num_gpu_blocks"))
    tokens = serving.kv_cache_tokens
    if tokens is not None and block is not None:
        return int(tokens.value // block), block
    if tokens is not None:  # vLLM's default block, as in replays
        return int(tokens.value // _BLOCK_TOKENS), None
    return None if count is None else int(count), block


def _tensor_parallel(ran: Fingerprint, gpus: float | None) -> int | None:
    """The reported size; else all GPUs of a pipeline stage, if known."""
    reported = _number(ran.identity.get("tensor_parallel_size"))
    if reported is not None:
        return int(reported)
    stages = _number(ran.identity.get("pipeline_parallel_size")) or 1.0
    whole = None if gpus is None else gpus / stages
    return int(whole) if whole is not None and whole >= 1 and whole == int(whole) else None


def _weight_bytes(ran: Fingerprint) -> float | None:
    quantization = ran.identity.get("quantization")
    if quantization is not None and quantization != NOT_QUANTIZED:
        return QUANTIZED_BYTES.get(quantization)
    return DTYPE_BYTES.get(ran.identity.get("dtype", ""))


def _unsupported(ran: Fingerprint, minutes: pl.DataFrame) -> list[str]:
    """Features that the simulator lacks, by reports and counters."""
    unsupported = []
    if ran.knobs.get("speculative_config"):
        unsupported.append("speculative decoding")
    elif (several := tokens_a_step(minutes)) is not None and several > _TOKENS_A_STEP:
        unsupported.append(f"speculative decoding ({several:.3g} tokens a step and request)")
    if _switch(ran.knobs.get("enable_lora")):
        unsupported.append("LoRA")
    stages = _number(ran.identity.get("pipeline_parallel_size"))
    if stages is not None and stages > 1:
        unsupported.append(f"pipeline parallelism ({stages:.0f} stages)")
    return unsupported


def tokens_a_step(minutes: pl.DataFrame) -> float | None:
    """Tokens that a decoding request gets in a step; None = too few to tell.

    vLLM (v1/metrics/stats.py) observes one inter-token time per request and step, however many
    tokens the step brought; the first token has none.
    """
    counts = minutes.select(
        "generation_tokens_total", "ttft_seconds_count", "itl_seconds_count"
    ).drop_nulls()
    tokens, first, times = counts.sum().row(0) if len(counts) else (0.0, 0.0, 0.0)
    if times < _ENOUGH_TOKENS:
        return None
    return float((tokens - first) / times)


def _number(value: Any) -> float | None:
    """A finite number above 0; None otherwise."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and number > 0 else None


def _switch(text: str | None) -> bool | None:
    return None if text is None else text.strip().lower() in ("true", "1", "yes")
