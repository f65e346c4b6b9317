"""``driftwatch plan``: memory, batch and speed of one server before it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from driftwatch.cli.engine_options import (
    SECONDS,
    Finite,
    checked,
    hardware_options,
    lengths_options,
    option,
    server_of,
)
from driftwatch.cli.engine_options import mix_of as requests_of
from driftwatch.cli.history_options import json_option
from driftwatch.cli.output import publish
from driftwatch.errors import UsageError
from driftwatch.lab.plan import is_problem, mix_of, plan
from driftwatch.notify.numbers import count, figure, milliseconds, whole_percent
from driftwatch.simulate.kv_cache import CACHE_DTYPES

_GIB = 2**30
_MIX_SIZE = 2000  # requests of a mix that is given by its means
_MOST_READ = 50_000  # of a file: more change no figure by 1 %
_LIMITS = {"kv_cache": "the KV cache", "max_num_seqs": "max_num_seqs", "tpot": "the target"}
_HEADER = (
    *("batch", "tokens/s", "a user", "ITL ms", "decode ms", "bound by"),
    *("KV GiB", "all GiB", "fits"),
)


@click.command(name="plan")
@hardware_options
@option("--kv-cache-dtype", click.Choice(CACHE_DTYPES), "auto: 16 bit.", default="auto")
@option(
    "--gpu-memory-utilization",
    Finite(0, 1, min_open=True),
    "Share of the GPU's memory that vLLM takes.",
    default=0.92,
)
@lengths_options(256, "Take the lengths from this request log or trace.")
@option("--tpot-seconds", SECONDS, "Target of the time per output token.")
@json_option
def command(tpot_seconds: float | None, as_json: bool, **flags: Any) -> int:
    """How many requests fit a server's memory, and how fast it is with them.

    Memory and speed come from datasheets: an estimate before the server runs. Exit code 1: it does
    not fit, or no batch meets the target.
    """
    server, limits, notes = server_of(
        flags, **{name: flags[name] for name in ("kv_cache_dtype", "gpu_memory_utilization")}
    )
    if server is None:
        raise UsageError(
            "--gpu and --model are not given",
            help_text="driftwatch plan --gpu H100-80GB --model llama-3.1-8b",
        )
    checked(limits, {})
    requests, unused = requests_of(flags, _MOST_READ if flags["file"] else _MIX_SIZE)
    fits = requests.prompt_tokens + requests.generation_tokens <= server.max_model_len
    if not fits.any():
        raise UsageError(
            f"every request is longer than max_model_len {server.max_model_len:,}",
            help_text="raise --max-model-len, or lower --prompt-tokens and --generation-tokens",
        )
    notes += unused
    if (requests.shared_prefix_tokens > 0).any() or (requests.cached_tokens > 0).any():
        notes.append("every prompt is computed and held whole, also where it has a common prefix")
    if not fits.all():
        notes.append(f"{(~fits).sum():,} requests are longer than max_model_len and left out")
    kept = requests.take(fits)
    document = plan(server, mix_of(kept.prompt_tokens, kept.generation_tokens), tpot_seconds)
    table = (_HEADER, [_row(row) for row in document.get("batches", ())])
    publish(as_json, _line(document), table, _details(document), document, notes)
    return 1 if is_problem(document) else 0


def _line(document: Mapping[str, Any]) -> str:
    split = document["tensor_parallel_size"]
    gpus = document["gpu"] if split == 1 else f"{split} × {document['gpu']}"
    where = f"{document['model']} on {gpus}"
    if (fits := document["fits"]) is None:
        fewest = document["fitting_tensor_parallel_size"]
        cure = "64 GPUs of this kind do not hold it either."
        if fewest:
            cure = f"It fits with --tensor-parallel-size {fewest}."
        return f"{where} DOES NOT FIT: {document['reason']}. {cure}"
    if not document["max_model_len_fits"]:
        return (
            f"{where} WILL NOT START: one request of max_model_len "
            f"{document['max_model_len']:,} does not fit the KV cache. Set --max-model-len "
            f"{document['memory']['kv_cache_size_tokens']} or less."
        )
    seqs = document["max_num_seqs"]
    tpot, most = document["tpot"], min(fits["running"], seqs)
    if tpot is None:
        row = max((r for r in document["batches"] if r["batch"] <= most), key=lambda r: r["batch"])
        limit = "the KV cache" if fits["running"] < seqs else f"max_num_seqs {seqs:,}"
        return (
            f"{where}: {most:,} requests run at once, the limit is {limit}. Batch "
            f"{row['batch']:,} gives {figure(row['tokens_per_second'])} tokens/s, "
            f"{figure(row['tokens_per_second_per_user'])} a user."
        )
    target = f"{milliseconds(tpot['target_seconds'])} a token"
    if tpot["largest_batch"] is None:
        least = milliseconds(tpot["smallest_itl_seconds"])
        return f"{where}: NO BATCH meets {target}, a single request takes {least}."
    return (
        f"{where}: batch {tpot['largest_batch']:,} meets {target} with "
        f"{milliseconds(tpot['itl_seconds'])}. The limit is {_LIMITS[tpot['limited_by']]}."
    )


def _row(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{row['batch']:,}",
        figure(row["tokens_per_second"]),
        figure(row["tokens_per_second_per_user"]),
        figure(1000 * row["itl_seconds"]),
        figure(1000 * row["decode_only_seconds"]),
        row["decode_bound_by"],
        figure(row["kv_bytes"] / _GIB),
        figure(row["memory_bytes"] / _GIB),
        "yes" if row["fits"] else "no",
    )


def _details(document: Mapping[str, Any]) -> Iterator[str]:
    memory, kv, fits = document["memory"], document["kv"], document["fits"]
    gib = {name: figure(value / _GIB) for name, value in memory.items() if name.endswith("_bytes")}
    missing = f", {gib['missing_bytes']} GiB missing" if memory["missing_bytes"] else ""
    yield (
        f"Memory of a GPU: {gib['total_bytes']} GiB, vLLM takes {gib['requested_bytes']} GiB: "
        f"weights {gib['weights_bytes']}, KV cache {gib['kv_cache_bytes']}; estimated: activations "
        f"{gib['activations_bytes']}, CUDA graphs {gib['cuda_graphs_bytes']}, workspaces "
        f"{gib['other_bytes']}{missing}."
    )
    yield (
        f"The KV cache has {memory['num_gpu_blocks']:,} blocks of {document['block_size']}, "
        f"{memory['kv_cache_size_tokens']:,} tokens. On each GPU it takes "
        f"{figure(kv['bytes_per_token'] / 1024)} KiB a token: "
        f"{figure(kv['bytes_per_100_tokens'] / 1e6)} MB for 100 tokens, "
        f"{figure(kv['bytes_per_2000_tokens'] / 1e6)} MB for 2,000 tokens."
    )
    if fits is None:
        return
    mix, last = document["mix"], document["batches"][-1]
    yield (
        f"The KV cache holds {fits['running']:,} requests at a random point of their life "
        f"({count(fits['resident_tokens'])} tokens each, in whole blocks), "
        f"{fits['mean_full']:,} of mean length at their end "
        f"({count(mix['prompt_tokens_mean'])} + {count(mix['generation_tokens_mean'])} tokens), "
        f"{fits['longest_full']:,} as the longest ({mix['longest_tokens']:,} tokens: no "
        f"preemption), {fits['reserved']:,} without paging "
        f"({whole_percent(fits['reserved_unused_ratio'])} of each reservation unused)."
    )
    yield (
        "ITL includes the prompts that are computed in between; decode is a step without prompts. "
        f"--step-time {document['step_time']} ({document['step_time_source']})."
    )
    if document["step_time_source"] == "roofline":
        low, high = (
            last[f"tokens_per_second_{end}"] / last["tokens_per_second"] for end in ("low", "high")
        )
        yield f"No server was measured: a real one reaches {low:.2g} to {high:.2g} times these."
