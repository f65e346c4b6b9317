"""Claims about memory, speed and queues: measured with the planner."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from claims_book import FOLDER, Claim, Ran, RequestFile

from driftwatch.notify.numbers import figure, percent, times

GB, KIB, MB = 1e9, 1024.0, 1e6
H100 = "--gpu H100-80GB --model llama-3.1-8b"
RATES = (28, 34)  # requests/s
LLAMA_2 = "--gpu A100-40GB --model llama-2-7b --max-model-len 4096"


def latency_table() -> dict[str, np.ndarray]:
    batch = np.array([1, 2, 4, 8, 16, 32, 64, 128])
    return {
        "batch": batch,
        "seconds": 0.59 * (batch / 128) ** 0.6,
        "tokens": np.full(len(batch), 100),
    }


FILES = {
    "latency-table.csv": RequestFile(
        "a latency table, not requests: 100 tokens take 590 ms · (batch / 128)^0.6, batch 1, 2, 4 "
        "to 128",
        latency_table,
    )
}


def batches(ran: Ran) -> dict[int, dict[str, Any]]:
    """The planner's rows by batch."""
    return {int(row["batch"]): row for row in ran.json["batches"]}


def total_and_per_user(ran: Sequence[Ran]) -> tuple[str, str]:
    document = ran[0].json
    rows = batches(ran[0])
    told = ", ".join(
        f"{n}: {figure(rows[n]['tokens_per_second'])} and "
        f"{figure(rows[n]['tokens_per_second_per_user'])}"
        for n in (1, 8, 32)
    )
    claimed = {1: 95, 8: 620, 32: 2400}
    off = max(
        max(rows[n]["tokens_per_second"] / c, c / rows[n]["tokens_per_second"])
        for n, c in claimed.items()
    )
    ceiling = document["fits"]["running"]
    falls = rows[32]["tokens_per_second_per_user"] / rows[1]["tokens_per_second_per_user"]
    verdict = "Holds in part" if off < 2 else "Does not hold on this GPU"
    return verdict, (
        f"Llama-3.1-8B on one H100 at prompts of 512 and answers of 256, tokens/s in all and for "
        f"each user by batch: {told}, within {times(off)} of the figures claimed. One user's share "
        f"falls to {percent(falls)} at batch 32. The ceiling is KV arithmetic, here "
        f"{ceiling:,} requests at once, no constant of 32 to 64."
    )


def vram(ran: Sequence[Ran]) -> tuple[str, str]:
    document = ran[0].json
    memory, fits = document["memory"], document["fits"]
    full = document["kv"]["bytes_per_token"] * document["max_model_len"]
    verdict = "Does not hold" if fits["running"] > 2 * fits["reserved"] else "Holds in part"
    return verdict, (
        f"Weights are held once: {figure(memory['weights_bytes'] / GB)} GB, "
        f"{figure(memory['activations_bytes'] / GB)} GB of activations and "
        f"{figure(memory['cuda_graphs_bytes'] / GB)} GB of graphs (estimates), and "
        f"{figure(memory['kv_cache_bytes'] / GB)} GB of cache. A sequence of the full length would "
        f"take {figure(full / GB)} GB: reserved so, {fits['reserved']} fit, and "
        f"{percent(fits['reserved_unused_ratio'])} of the room would stay empty on this mix; in "
        f"blocks {fits['running']} run together."
    )


def per_token(ran: Sequence[Ran]) -> tuple[str, str]:
    kv = ran[0].json["kv"]
    verdict = "Does not hold" if kv["bytes_per_token"] / 40e3 > 2 else "Holds"
    return verdict, (
        f"{figure(kv['bytes_per_token'] / KIB)} KiB a token in 16 bit (K and V, 32 layers, 32 "
        f"heads of 128): 100 tokens {figure(kv['bytes_per_100_tokens'] / MB)} MB, 2,000 tokens "
        f"{figure(kv['bytes_per_2000_tokens'] / MB, 4)} MB: "
        f"{times(kv['bytes_per_token'] / 40e3, 3)} what is claimed."
    )


def safe_batch(ran: Sequence[Ran]) -> tuple[str, str]:
    fits = ran[0].json["fits"]
    verdict = "Does not hold" if fits["longest_full"] < 120 else "Holds"
    return verdict, (
        f"Llama-2-7B on 40 GB, every sequence at its full 512 tokens: {fits['longest_full']} fit "
        f"beside the weights; {fits['running']} fit while each is somewhere in its answer."
    )


def table(ran: Sequence[Ran]) -> tuple[str, str]:
    fitted = ran[0].json
    line = fitted["line"]
    rows = batches(ran[1])
    sizes = sorted(n for n in rows if n <= 128)
    low, high = sizes[0], sizes[-1]
    ratio = rows[high]["itl_seconds"] / rows[low]["itl_seconds"]
    power = math.log(ratio) / math.log(high / low)
    best = fitted["largest_batch_measured"]
    verdict = "Does not hold" if abs(power - 0.6) > 0.1 else "Holds"
    return verdict, (
        f"A step takes c0 + c2·n. For Llama-3.1-8B on an H100 a token takes "
        f"{figure(1000 * rows[low]['itl_seconds'])} ms at batch {low} and "
        f"{figure(1000 * rows[high]['itl_seconds'])} ms at {high}: over that range a power of "
        f"{figure(power, 2)}, no 0.6. The text's own 590 ms for 100 tokens at 128 miss its 500 ms; "
        f"where the rule held below that, {best} would be the largest batch that meets them (a "
        f"power of {figure(line['power'], 2)} fits that table to "
        f"{percent(line['power_error_ratio'])}, a line to {percent(line['error_ratio'])})."
    )


def bound_by(ran: Sequence[Ran]) -> tuple[str, str]:
    phases = ran[0].json["phases"]
    prefill, *decode = phases["rows"]
    turn = phases["compute_bound_decode_batch_without_context"]
    with_context = phases["compute_bound_decode_batch"]
    told = ", ".join(
        f"{figure(row['flops_per_byte'])} at batch {row['batch']} ({row['bound_by']}-bound)"
        for row in decode
    )
    turned = prefill["bound_by"] == "compute" and {row["bound_by"] for row in decode} == {"memory"}
    return ("Does not hold" if turned else "Holds in part"), (
        f"The GPU turns at {figure(phases['ridge_flops_per_byte'])} FLOPs a byte. Prefill of "
        f"{prefill['prompt_tokens']} tokens has {figure(prefill['flops_per_byte'])} "
        f"({prefill['bound_by']}-bound), decoding {told}. Decoding turns compute-bound at batch "
        f"{'never' if turn is None else turn} without its context, and "
        f"{'never' if with_context is None else f'at {with_context}'} with it."
    )


def queueing(ran: Sequence[Ran]) -> tuple[str, str]:
    parts = []
    faster = []
    for run in ran:
        queue = run.json["queue"]
        rho, service, wait = (
            queue["utilisation_ratio"],
            queue["mm1_service_seconds"],
            queue["mm1_wait_seconds"],
        )
        seen = queue["replayed_queue_seconds_mean"]
        faster.append(seen < wait / 2)
        parts.append(
            f"at ρ {figure(rho)} M/M/1 waits {figure(1000 * wait)} ms ({figure(wait / service)} "
            f"services), the replay {figure(1000 * seen)} ms"
        )
    budget = ran[0].json["queue"]["wait_budget_seconds"]
    verdict = "Holds for M/M/1, not for a batch server" if all(faster) else "Holds in part"
    told = "; ".join(parts)
    return verdict, (
        f"{told[:1].upper()}{told[1:]}. A batch server serves many at once, and what it waits for "
        f"is a slot, the budget or blocks. The wait budget for a first token in 1 s is "
        f"{figure(budget)} s: the target less a prompt alone in the server."
    )


def presets(ran: Sequence[Ran]) -> tuple[str, str]:
    document = ran[0].json
    rows = {row["name"]: row for row in document["presets"]}
    told = []
    first = document["presets"][0]
    for name, row in ((r["name"], r) for r in document["presets"]):
        if row.get("reason"):
            told.append(f"{name}: {row['reason']}")
            continue
        late = row["ttft_seconds_p95"]
        waits = "overloaded" if row["overloaded"] else f"TTFT p95 {figure(late)} s"
        told.append(
            f"{name} (max_num_seqs {row['max_num_seqs']}, max_num_batched_tokens "
            f"{row['max_num_batched_tokens']}): capacity "
            f"{figure(row['capacity_requests_per_second'])} requests/s, {waits}, TPOT p95 "
            f"{figure(1000 * row['tpot_seconds_p95'])} ms"
        )
    latency = rows["latency"]
    dear = latency["capacity_requests_per_second"] / first["capacity_requests_per_second"]
    kept = not latency["overloaded"] and latency["ttft_seconds_p95"] <= first["ttft_seconds_p95"]
    return ("Holds" if kept else "Holds in part"), (
        f"Replayed at {figure(document['demand']['requests_per_second'])} requests/s of prompts of "
        f"512 and answers of 256: {'; '.join(told)}. The latency preset leaves "
        f"{percent(dear)} of the capacity. All on the step time of the settings as given, so that "
        "what differs is the scheduling alone."
    )


CLAIMS = (
    Claim(
        "Tokens per second by batch size",
        "Llama-3.1-8B gives about 95, 620 and 2,400 tokens/s at batch 1, 8 and 32, about 75 for "
        "each user, with a ceiling of 32 to 64.",
        (f"driftwatch plan {H100} --json",),
        total_and_per_user,
        "`driftwatch plan` prints both by batch for your GPU.",
        cheap=True,
    ),
    Claim(
        "VRAM is batch times model and cache",
        "VRAM = batch × (model + cache); 32 sequences of 4 GB are 128 GB.",
        (f"driftwatch plan {H100} --max-model-len 32768 --json",),
        vram,
        "`driftwatch plan` counts weights once, and blocks that a mix holds.",
        cheap=True,
    ),
    Claim(
        "The KV cache takes 40 KB a token",
        "Llama-2-7B needs about 40 KB of KV cache a token: 100 tokens 10.5 MB, 2,000 tokens "
        "209 MB.",
        (f"driftwatch plan {LLAMA_2} --json",),
        per_token,
        "KV bytes come from layers, KV heads, head size, type and split.",
        cheap=True,
    ),
    Claim(
        "A safe batch of 120 to 160",
        "A 7B model on 40 GB serves a batch of 120 to 160 at 512 tokens safely.",
        (
            f"driftwatch plan {LLAMA_2} --prompt-tokens 384 --generation-tokens 128 "
            "--length-cv 0 --json",
        ),
        safe_batch,
        "`driftwatch plan` prints all three.",
        cheap=True,
    ),
    Claim(
        "The batch from a latency table",
        "Take the first batch size whose 100 tokens take at most 500 ms; time grows with "
        "batch^0.6.",
        (
            f"driftwatch plan --table {FOLDER}/latency-table.csv --tpot-seconds 0.005 --json",
            f"driftwatch plan {H100} --json",
        ),
        table,
        "`driftwatch plan --table` fits both, with their errors, and names the measured batch "
        "that meets the target.",
        files=("latency-table.csv",),
        cheap=True,
    ),
    Claim(
        "Memory-bound below a batch of 16 to 32",
        "Small batches, below 16 to 32, are memory-bound; some texts call prefill memory-bound and "
        "decode compute-bound.",
        (f"driftwatch plan {H100} --json",),
        bound_by,
        "`driftwatch plan` judges each phase by its FLOPs per byte.",
        cheap=True,
    ),
    Claim(
        "At 80 % utilisation waits explode",
        "By M/M/1 waits explode at 80 % utilisation and collapse at 95 %.",
        tuple(f"driftwatch plan {H100} --rate {rate} --ttft-seconds 1 --json" for rate in RATES),
        queueing,
        "`driftwatch plan --rate` prints both waits.",
    ),
    Claim(
        "Presets for throughput and latency",
        "For throughput max_num_seqs 512 and max_num_batched_tokens 16384, for latency 16 and "
        "2048.",
        (f"driftwatch plan {H100} --objective latency --json",),
        presets,
        "`driftwatch plan --objective` replays both on your mix.",
    ),
)
