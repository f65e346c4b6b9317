"""``driftwatch plan``: memory, batch and speed of one server before it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.answer import Answer, check_plot, publish
from driftwatch.cli.engine_options import (
    OUTPUT,
    batch_of,
    dtype_bytes_of,
    hardware_options,
    lengths_options,
    mix_of,
    option,
    with_all,
)
from driftwatch.cli.finite import COUNT, SECONDS, Finite
from driftwatch.errors import UsageError
from driftwatch.notify.numbers import count, figure, whole_percent

if TYPE_CHECKING:
    from driftwatch.lab.plan import Question
    from driftwatch.plots.plot import Plot

_GIB = 2**30
_MIX_SIZE = 2000  # requests of a mix that is given by its means
_MOST_READ = 50_000  # of a file: more change no figure by 1 %
_EXIT_PROBLEM = 1
_CACHE_DTYPES = (
    *("auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla", "nvfp4_ds_mla"),
)
_LIMITS = {"kv_cache": "the KV cache", "max_num_seqs": "max_num_seqs", "tpot": "the target"}
_HEADER = (
    *("batch", "tokens/s", "a user", "ITL ms", "decode ms", "bound by"),
    *("KV GiB", "all GiB", "fits"),
)


@click.command(name="plan")
@hardware_options
@option(
    "--kv-cache-dtype",
    click.Choice(_CACHE_DTYPES),
    "Type of the KV cache; auto: 16 bit.",
    default="auto",
)
@option(
    "--gpu-memory-utilization",
    Finite(0, 1, min_open=True),
    "Share of the GPU's memory that vLLM takes.",
    default=0.92,
)
@option("--max-num-seqs", COUNT, "Running requests, at most (default: vLLM's on this GPU).")
@option("--max-num-batched-tokens", COUNT, "Tokens of a step, at most (default: vLLM's).")
@option("--max-model-len", COUNT, "Default: the model's.")
@option("--block-size", COUNT, "Tokens of a KV block.", default=16)
@lengths_options(256, "Take the lengths from this request log or trace.")
@option("--tpot-seconds", SECONDS, "Target of the time per output token.")
@with_all(OUTPUT)
def command(plot: Path | None, as_json: bool, **options: Any) -> int:
    """How many requests fit a server's memory, and how fast it is with them.

    Memory and speed come from datasheets: an estimate before the server runs. Exit code 1: it does
    not fit, or no batch meets the target.
    """
    from driftwatch.lab.plan import is_problem, plan

    check_plot(plot)
    question, notes = _question(**options)
    document = plan(question)
    batches = document.get("batches", ())
    answer = Answer(
        _line(document),
        _HEADER,
        [_row(row) for row in batches],
        list(_details(document)),
        document,
        notes,
        lambda: _plots(batches),
    )
    publish(answer, as_json=as_json, plot=plot)
    return _EXIT_PROBLEM if is_problem(document) else 0


def _question(
    *,
    gpu: str | None,
    model: str | None,
    hardware: Path | None,
    max_model_len: int | None,
    file: Path | None,
    seed: int,
    **options: Any,
) -> tuple[Question, list[str]]:
    """The question with every default taken, and notes on what was assumed.

    Raises UsageError: no GPU or model, settings that vLLM refuses, or every request is too long;
    WorkloadError: the file cannot be read as requests.
    """
    from driftwatch.lab.plan import Question
    from driftwatch.simulate.hardware import with_hardware
    from driftwatch.simulate.step_time import parse_step_time

    if gpu is None or model is None:
        missing = [flag for flag, name in (("--gpu", gpu), ("--model", model)) if name is None]
        raise UsageError(
            f"{' and '.join(missing)} is not given",
            help_text="driftwatch plan --gpu H100-80GB --model llama-3.1-8b",
        )
    tables = with_hardware(hardware)
    card, shapes = tables.gpu(gpu), tables.model(model)
    longest = max_model_len or shapes.max_position_embeddings
    budget, seqs, notes = batch_of(
        card, options.pop("max_num_batched_tokens"), options.pop("max_num_seqs"), longest
    )
    if budget < seqs:
        raise UsageError(
            f"max_num_batched_tokens {budget} is below max_num_seqs {seqs}: vLLM refuses to start",
            help_text="lower --max-num-seqs, or raise --max-num-batched-tokens",
        )
    means = (options.pop("prompt_tokens"), options.pop("generation_tokens"))
    most = _MIX_SIZE if file is None else _MOST_READ
    requests, unused = mix_of(file, means, options.pop("length_cv"), seed, most)
    fits = requests.prompt_tokens + requests.generation_tokens <= longest
    if not fits.any():
        raise UsageError(
            f"every request is longer than max_model_len {longest:,}",
            help_text="raise --max-model-len, or lower --prompt-tokens and --generation-tokens",
        )
    measured = options.pop("step_time")
    question = Question(
        gpu=card,
        model=shapes,
        tensor_parallel=options.pop("tensor_parallel_size"),
        dtype_bytes=dtype_bytes_of(shapes, options.pop("dtype")),
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
        max_model_len=longest,
        requests=requests.take(fits),
        measured_step_time=None if measured is None else parse_step_time(measured),
        **options,
    )
    return question, [*notes, *unused, *_assumed(question, int((~fits).sum()))]


def _assumed(question: Question, dropped: int) -> Iterator[str]:
    requests = question.requests
    if question.measured_step_time is None:
        yield (
            f"step time: the roofline of the datasheet at {question.max_num_seqs:,} decoding "
            "requests (max_num_seqs), an estimate that is too slow for far fewer; on two recorded "
            "GPUs its end-to-end times were 3 and 24 % off. Give --step-time where it is measured"
        )
    if (requests.shared_prefix_tokens > 0).any() or (requests.cached_tokens > 0).any():
        yield (
            "the batch table and the KV ceilings compute and hold every prompt whole, also where "
            "the file has common prefixes"
        )
    if question.dtype_bytes < 2 and question.gpu.dense_tflops.fp8 is None:
        yield f"{question.gpu.name} has no fp8 units: the weights are fp8, it computes in 16 bit"
    if dropped:
        yield f"{dropped:,} requests are longer than max_model_len and left out"


def _line(document: Mapping[str, Any]) -> str:
    split = document["tensor_parallel_size"]
    gpus = document["gpu"] if split == 1 else f"{split} × {document['gpu']}"
    where = f"{document['model']} on {gpus}"
    if document["fits"] is None:
        fewest = document["fitting_tensor_parallel_size"]
        cure = (
            f"It fits with --tensor-parallel-size {fewest}."
            if fewest
            else "64 GPUs of this kind do not hold it either."
        )
        return f"{where} DOES NOT FIT: {document['reason']}. {cure}"
    if not document["max_model_len_fits"]:
        most = document["memory"]["kv_cache_size_tokens"]
        return (
            f"{where} WILL NOT START: one request of max_model_len "
            f"{document['max_model_len']:,} does not fit the KV cache. Set --max-model-len {most} "
            "or less."
        )
    tpot, most = document["tpot"], min(document["fits"]["running"], document["max_num_seqs"])
    if tpot is None:
        row = max((r for r in document["batches"] if r["batch"] <= most), key=lambda r: r["batch"])
        limit = (
            "the KV cache"
            if document["fits"]["running"] < document["max_num_seqs"]
            else (f"max_num_seqs {document['max_num_seqs']:,}")
        )
        return (
            f"{where}: {most:,} requests run at once, the limit is {limit}. Batch "
            f"{row['batch']:,} gives {figure(row['tokens_per_second'])} tokens/s, "
            f"{figure(row['tokens_per_second_per_user'])} a user."
        )
    target = f"{_ms(tpot['target_seconds'])} ms a token"
    if tpot["largest_batch"] is None:
        least = _ms(tpot["smallest_itl_seconds"])
        return f"{where}: NO BATCH meets {target}, a single request takes {least} ms."
    return (
        f"{where}: batch {tpot['largest_batch']:,} meets {target} with "
        f"{_ms(tpot['itl_seconds'])} ms. The limit is {_LIMITS[tpot['limited_by']]}."
    )


def _row(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{row['batch']:,}",
        figure(row["tokens_per_second"]),
        figure(row["tokens_per_second_per_user"]),
        _ms(row["itl_seconds"]),
        _ms(row["decode_only_seconds"]),
        row["decode_bound_by"],
        figure(row["kv_bytes"] / _GIB),
        figure(row["memory_bytes"] / _GIB),
        "yes" if row["fits"] else "no",
    )


def _details(document: Mapping[str, Any]) -> Iterator[str]:
    yield from _memory(document)
    if document["fits"] is None:
        return
    fits, mix, phases = document["fits"], document["mix"], document["phases"]
    yield (
        f"The KV cache holds {fits['running']:,} requests at a random point of their life "
        f"({count(fits['resident_tokens'])} tokens each, in whole blocks), "
        f"{fits['mean_full']:,} of mean length at their end "
        f"({count(mix['prompt_tokens_mean'])} + {count(mix['generation_tokens_mean'])} tokens), "
        f"{fits['longest_full']:,} as the longest ({mix['longest_tokens']:,} tokens: no "
        f"preemption), {fits['reserved']:,} without paging "
        f"({whole_percent(fits['reserved_unused_ratio'])} of each reservation unused)."
    )
    bound = phases["compute_bound_decode_batch"]
    decode = "at no batch" if bound is None else f"from batch {bound:,}"
    yield (
        f"The GPU does {figure(phases['ridge_flops_per_byte'])} FLOPs a byte. A prefill of "
        f"{phases['prefill_prompt_tokens']:,} tokens needs "
        f"{figure(phases['prefill_flops_per_byte'])} and is bound by "
        f"{phases['prefill_bound_by']}; decode with this context is compute-bound {decode}."
    )
    yield (
        "ITL includes the prompts that such a server computes in between; decode is a step "
        f"without prompts. Step time: {document['step_time']} ({document['step_time_source']}): "
        "seconds of a step, of a prefill token, of a decoding request and of a KV token read."
    )
    if document["step_time_source"] == "roofline":
        last, split = document["batches"][-1], document["tensor_parallel_size"]
        low, high = (last[f"tokens_per_second_{end}"] / last["tokens_per_second"]
                     for end in ("low", "high"))  # fmt: skip
        links = f"; {split} GPUs pass rows over PCIe or over NVLink" if split > 1 else ""
        yield (
            f"No server was measured: a real one reaches {low:.2g} to {high:.2g} times these "
            f"tokens/s (55 to 95 % of the bandwidth, 35 to 85 % of the operations{links})."
        )


def _memory(document: Mapping[str, Any]) -> Iterator[str]:
    memory, kv, split = document["memory"], document["kv"], document["tensor_parallel_size"]
    parts = [("weights", "weights"), ("activations", "activations (estimate)"),
             ("cuda_graphs", "CUDA graphs (estimate)"), ("other", "workspaces (estimate)"),
             ("kv_cache", "KV cache")]  # fmt: skip
    texts = [f"{figure(memory[f'{name}_bytes'] / _GIB)} GiB {label}" for name, label in parts]
    if memory["missing_bytes"]:
        texts.append(f"{figure(memory['missing_bytes'] / _GIB)} GiB missing")
    yield (
        f"Memory of a GPU: {figure(memory['total_bytes'] / _GIB)} GiB, vLLM takes "
        f"{figure(memory['requested_bytes'] / _GIB)} GiB (gpu_memory_utilization "
        f"{document['gpu_memory_utilization']:g}): {', '.join(texts)}."
    )
    yield (
        f"The KV cache has {memory['num_gpu_blocks']:,} blocks of {document['block_size']}, "
        f"{memory['kv_cache_size_tokens']:,} tokens. It takes "
        f"{figure(kv['bytes_per_token'] / 1024)} KiB a token"
        f"{' on each GPU' if split > 1 else ''}: {figure(kv['bytes_per_100_tokens'] / 1e6)} MB for "
        f"100 tokens, {figure(kv['bytes_per_2000_tokens'] / 1e6)} MB for 2,000 tokens."
    )


def _plots(batches: Sequence[Mapping[str, Any]]) -> Sequence[Plot]:
    from driftwatch.plots.plot import Series, plot
    from driftwatch.plots.scales import Axis

    if not batches:
        return ()
    sizes = [float(row["batch"]) for row in batches]

    def drawn(title: str, unit: str, key: str) -> Plot:
        line = Series("line", "", sizes, [row[key] for row in batches])
        return plot(title, [line], Axis("batch, log scale", is_log=True), Axis(unit))

    return (
        drawn("All users together", "tokens/s", "tokens_per_second"),
        drawn("One user", "tokens/s", "tokens_per_second_per_user"),
    )


def _ms(value: float) -> str:
    return figure(1000 * value)
