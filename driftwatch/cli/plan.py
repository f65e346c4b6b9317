"""``driftwatch plan``: memory, batch and speed of one server before it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from driftwatch.cli.engine_options import engine_of, lab_command
from driftwatch.cli.engine_options import mix_of as requests_of
from driftwatch.cli.options import SLO, option
from driftwatch.cli.printer import print_answer
from driftwatch.errors import UsageError
from driftwatch.lab.plan import is_problem, mix_of, plan
from driftwatch.model import Slo
from driftwatch.numbers import count, figure, milliseconds

_GIB = 2**30
_MIX_SIZE = 2000  # requests of a mix that is given by its means
_MOST_READ = 50_000  # of a file: more change no figure by 1 %
_LIMITS = {"kv_cache": "the KV cache", "max_num_seqs": "max_num_seqs", "tpot": "the target"}
_HEADER = ("batch", "tokens/s", "a user", "ITL ms", "KV GiB", "GPU GiB", "fits")


@lab_command(
    "plan",
    option("--slo", SLO, "Target of the time per output token: tpot=50ms."),
)
def command(slo: Slo | None, as_json: bool, **flags: Any) -> int:
    """How many requests fit a server's memory, and how fast it is with them.

    Memory and speed come from datasheets: an estimate before the server runs. Exit code 1: it does
    not fit, or no batch meets the target.
    """
    if slo is not None and (slo.tpot_seconds is None or slo.ttft_seconds is not None):
        raise UsageError(
            "--slo: plan does not forecast TTFT",
            help_text="--slo tpot=50ms; driftwatch simulate has the TTFT of a rate",
        )
    engine = engine_of(flags, is_simulated=False)
    if engine.server is None:
        raise UsageError(
            "--gpu and --model are not given",
            help_text="driftwatch plan --gpu H100-80GB --model llama-3.1-8b",
        )
    requests, notes = requests_of(flags, _MOST_READ if flags["file"] else _MIX_SIZE)
    most = engine.server.max_model_len
    fits = requests.prompt_tokens + requests.generation_tokens <= most
    if not fits.any():
        raise UsageError(
            f"every request is longer than max_model_len {most:,}",
            help_text="raise --max-model-len, or lower --prompt-tokens and --generation-tokens",
        )
    if (requests.shared_prefix_tokens > 0).any() or (requests.cached_tokens > 0).any():
        notes.append("every prompt is computed and held whole, also where it has a common prefix")
    if not fits.all():
        notes.append(f"{(~fits).sum():,} requests are longer than max_model_len and left out")
    kept, hinge = requests.take(fits), engine.step_time.hinge_tokens
    mix = mix_of(kept.prompt_tokens, kept.generation_tokens, hinge)
    document = plan(engine.server, mix, None if slo is None else slo.tpot_seconds)
    table = (_HEADER, [_row(row) for row in document.get("batches", ())])
    notes = [*engine.notes, *notes]
    print_answer(as_json, _line(document), table, _details(document), document, notes)
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
    seqs = document["configuration"]["max_num_seqs"]
    tpot, most = document["tpot"], min(fits["running"], seqs)
    if tpot is None:
        row = max((r for r in document["batches"] if r["batch"] <= most), key=lambda r: r["batch"])
        limit = "the KV cache" if fits["running"] < seqs else f"max_num_seqs {seqs:,}"
        return (
            f"{where}: {most:,} requests run at once, the limit is {limit}. Batch "
            f"{row['batch']:,} gives {figure(row['tokens_per_second'])} tokens/s, "
            f"{figure(row['tokens_per_second_per_user'])} a user."
        )
    target = milliseconds(tpot["target_seconds"])
    if tpot["largest_batch"] is None:
        least = milliseconds(tpot["smallest_itl_seconds"])
        return f"{where}: NO BATCH meets {target} a token, a single request takes {least}."
    return (
        f"{where}: a batch of {tpot['largest_batch']:,} at most: "
        f"{milliseconds(tpot['itl_seconds'])} a token, the target is {target}. "
        f"The limit is {_LIMITS[tpot['limited_by']]}."
    )


def _row(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{row['batch']:,}",
        figure(row["tokens_per_second"]),
        figure(row["tokens_per_second_per_user"]),
        figure(1000 * row["itl_seconds"]),
        figure(row["kv_bytes"] / _GIB),
        figure(row["memory_bytes"] / _GIB),
        "yes" if row["fits"] else "no",
    )


def _details(document: Mapping[str, Any]) -> Iterator[str]:
    memory, fits = document["memory"], document["fits"]
    gib = {name: figure(value / _GIB) for name, value in memory.items() if name.endswith("_bytes")}
    missing = f", {gib['missing_bytes']} GiB missing" if memory["missing_bytes"] else ""
    yield (
        f"Memory of a GPU: {gib['total_bytes']} GiB, vLLM takes {gib['requested_bytes']} GiB: "
        f"weights {gib['weights_bytes']}, KV cache {gib['kv_cache_bytes']}; estimated: activations "
        f"{gib['activations_bytes']}, CUDA graphs {gib['cuda_graphs_bytes']}, workspaces "
        f"{gib['other_bytes']}{missing}."
    )
    kib = figure(memory["kv_bytes_per_token"] / 1024)
    holds = f"The KV cache has {memory['kv_cache_size_tokens']:,} tokens of {kib} KiB"
    if fits is None:
        yield f"{holds}."
        return
    mix, last = document["mix"], document["batches"][-1]
    yield (
        f"{holds}: {fits['running']:,} requests at a random point of their life "
        f"({count(fits['resident_tokens'])} tokens each), {fits['mean_full']:,} of mean length at "
        f"their end ({count(mix['prompt_tokens_mean'])} + {count(mix['generation_tokens_mean'])}), "
        f"{fits['longest_full']:,} as the longest ({mix['longest_tokens']:,}: no preemption)."
    )
    is_roofline = document["step_time_source"] == "roofline"
    origin = "roofline at max_num_seqs, for simulate" if is_roofline else "given"
    yield (
        "ITL includes the prompts that are computed in between. "
        f"--step-time {document['step_time']} ({origin})."
    )
    if is_roofline:
        low, high = (
            last[f"tokens_per_second_{end}"] / last["tokens_per_second"] for end in ("low", "high")
        )
        yield f"No server was measured: a real one reaches {low:.2g} to {high:.2g} times these."
