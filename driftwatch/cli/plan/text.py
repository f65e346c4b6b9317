"""The answer of ``driftwatch plan`` for people, and between tabs for pipes."""

from __future__ import annotations

import sys
import textwrap
from typing import Any

import click

from driftwatch.cli.table import encodable, render
from driftwatch.notify.numbers import count, figure, whole_percent

_GIB = 2**30
_WIDTH = 80
_BY = {
    "capacity_requests_per_second": "largest capacity",
    "in_target_ratio": "largest share in target",
    "e2e_seconds_mean": "shortest mean time to the last token of those that keep up",
}
_LIMITS = {"kv_cache": "the KV cache", "max_num_seqs": "max_num_seqs", "tpot": "the target"}


def print_plan(document: dict[str, Any]) -> None:
    """Memory, ceilings, phases, batches, presets and queue."""
    split = document["tensor_parallel_size"]
    cards = document["gpu"] if split == 1 else f"{split} × {document['gpu']}"
    _heading(
        f"{document['model']} on {cards}, max_num_seqs {document['max_num_seqs']:,}, "
        f"max_num_batched_tokens {document['max_num_batched_tokens']:,}"
    )
    _memory(document, split)
    if document["fits"] is None:
        fewest = document["fitting_tensor_parallel_size"]
        cure = f"--tensor-parallel-size {fewest} does" if fewest else "nor do 64 GPUs of this kind"
        _say(f"DOES NOT FIT: {document['reason']}; {cure}")
        return
    _ceilings(document)
    _phases(document["phases"])
    _batches(document)
    if document["tpot"] is not None:
        _tpot(document["tpot"])
    if document["presets"] is not None:
        _presets(document)
    if document["queue"] is not None:
        _queue(document["queue"], document["demand"])


def print_table(document: dict[str, Any]) -> None:
    """What a measured table says."""
    line, target = document["line"], document["target_seconds"]
    rows = [
        [
            "measured",
            str(row["batch"]),
            figure(1000 * row["seconds_per_token"]),
            figure(1000 * row["fitted_seconds_per_token"]),
            "yes" if row["seconds_per_token"] <= target else "no",
        ]
        for row in document["rows"]
    ]
    _rows(["batch", "ms a token", "fitted ms", f"meets {figure(1000 * target)} ms"], rows)
    _say(
        f"a token takes {figure(1000 * line['c0_seconds'])} ms + "
        f"{figure(1000 * line['c2_seconds'])} ms · batch (median error "
        f"{whole_percent(line['error_ratio'])}); as a power of the batch: exponent "
        f"{figure(line['power'], 2)}, error {whole_percent(line['power_error_ratio'])}"
    )
    measured, fitted = document["largest_batch_measured"], document["largest_batch_fitted"]
    if measured is None:
        smallest = min(row["batch"] for row in document["rows"])
        slowest = max(r["seconds_per_token"] for r in document["rows"] if r["batch"] == smallest)
        fastest = min(row["seconds_per_token"] for row in document["rows"])
        why = f"the fastest row takes {figure(1000 * fastest)} ms"
        if fastest <= target:  # a row met it, but not the smallest batch in all of its rows
            why = f"its smallest batch, {smallest}, takes up to {figure(1000 * slowest)} ms"
        _say(f"NO BATCH of this table meets {figure(1000 * target)} ms a token: {why}")
        return
    more = f"; the line up to {fitted}" if fitted is not None else ""
    last = line["largest_batch"]
    beyond = f" (nothing is known above {last})" if last in (fitted, measured) else ""
    _say(f"batch {measured} meets {figure(1000 * target)} ms a token{more}{beyond}")


def _memory(document: dict[str, Any], split: int) -> None:
    memory, kv = document["memory"], document["kv"]
    guess = "estimate"
    rows = [
        ("weights, once", memory["weights_bytes"], "" if split == 1 else f"1 of {split} shares"),
        ("activations", memory["activations_bytes"], guess),
        ("CUDA graphs", memory["cuda_graphs_bytes"], guess),
        ("workspaces", memory["other_bytes"], guess),
        (
            "KV cache",
            memory["kv_cache_bytes"],
            f"{memory['num_gpu_blocks']:,} blocks of {document['block_size']}, "
            f"{memory['kv_cache_size_tokens']:,} tokens",
        ),
        (
            "not vLLM's",
            memory["total_bytes"] - memory["requested_bytes"],
            f"gpu_memory_utilization {document['gpu_memory_utilization']:g} of "
            f"{figure(memory['total_bytes'] / _GIB)} GiB",
        ),
    ]
    if memory["missing_bytes"]:
        rows.insert(5, ("missing", memory["missing_bytes"], "beyond what vLLM may take"))
    _rows(
        ["memory of a GPU", "GiB", ""],
        [["memory", name, figure(size / _GIB), note] for name, size, note in rows],
    )
    _say(
        f"KV {figure(kv['bytes_per_token'] / 1024)} KiB a token"
        f"{' and GPU' if split > 1 else ''}: 100 tokens "
        f"{figure(kv['bytes_per_100_tokens'] / 1e6)} MB, 2,000 tokens "
        f"{figure(kv['bytes_per_2000_tokens'] / 1e6)} MB"
    )


def _ceilings(document: dict[str, Any]) -> None:
    fits, mix = document["fits"], document["mix"]
    longest, limit = mix["longest_tokens"], document["max_model_len"]
    rows = [
        [
            "together",
            "running, each at its own point",
            f"{fits['running']:,}",
            f"{count(fits['resident_tokens'])} tokens each",
        ],
        [
            "together",
            "all at their end, of mean length",
            f"{fits['mean_full']:,}",
            f"{count(mix['prompt_tokens_mean'])} + {count(mix['generation_tokens_mean'])} tokens",
        ],
        [
            "together",
            "all as the longest, at its end",
            f"{fits['longest_full']:,}",
            f"{longest:,} tokens: no preemption",
        ],
        [
            "together",
            "without paging",
            f"{fits['reserved']:,}",
            f"each reserves {limit:,}, {whole_percent(fits['reserved_unused_ratio'])} unused",
        ],
    ]
    _rows(["the KV cache holds together", "batch", ""], rows)
    seqs = document["max_num_seqs"]
    sizes = [min(fits[name], seqs) for name in ("longest_full", "mean_full", "running")]
    ceiling = "KV arithmetic" if fits["running"] < seqs else f"max_num_seqs {seqs:,}"
    _say(
        f"safe batch {sizes[0]:,} whatever runs, {sizes[1]:,} of mean length, {sizes[2]:,} as they "
        f"run; the ceiling is {ceiling}"
    )
    if not document["max_model_len_fits"]:
        most = document["memory"]["kv_cache_size_tokens"]
        _say(
            f"WILL NOT START: one request of max_model_len {limit:,} does not fit; "
            f"--max-model-len {most} at most"
        )


def _phases(phases: dict[str, Any]) -> None:
    rows = []
    for row in phases["rows"]:
        what = (
            f"prefill of {row['prompt_tokens']:,}"
            if row["phase"] == "prefill"
            else f"decode, batch {row['batch']}, context {row['context_tokens']:,}"
        )
        rows.append(["phase", what, figure(row["flops_per_byte"]), row["bound_by"]])
    _rows(["phase", "FLOPs a byte", "bound by"], rows)
    batch, bare = (phases[f"compute_bound_decode_batch{end}"] for end in ("", "_without_context"))
    ratio = f"the GPU does {figure(phases['ridge_flops_per_byte'])} FLOPs a byte"
    if batch is not None:
        _say(f"{ratio}: decode is compute-bound from batch {batch:,} with this context")
    else:
        without = "no batch" if bare is None else f"batch {bare:,}"
        _say(
            f"{ratio}: with this context decode is memory-bound at every batch (from {without} "
            "without a context)"
        )


def _batches(document: dict[str, Any]) -> None:
    rows = [
        [
            "batch",
            f"{row['batch']:,}",
            figure(row["tokens_per_second"]),
            figure(row["tokens_per_second_per_user"]),
            figure(1000 * row["itl_seconds"]),
            figure(1000 * row["decode_only_seconds"]),
            figure(row["kv_bytes"] / _GIB),
            figure(row["memory_bytes"] / _GIB),
            "" if row["fits"] else "above the KV cache",
        ]
        for row in document["batches"]
    ]
    header = [
        "batch",
        "tokens/s",
        "each",
        "ITL ms",
        "decode ms",
        "KV GiB",
        "all GiB",
        "",
    ]
    _rows(header, rows)
    _say(
        "ITL with the prompts that such a server computes in between; decode: a step without. "
        f"Step time {document['step_time']} ({document['step_time_source']})"
    )
    if document["step_time_source"] == "roofline":
        _datasheet(document)


def _datasheet(document: dict[str, Any]) -> None:
    """How far servers lie from what is stated, and what of it is the link between GPUs."""
    row, split = document["batches"][-1], document["tensor_parallel_size"]
    stated = row["tokens_per_second"]
    low, high = (row[f"tokens_per_second_{end}"] / stated for end in ("low", "high"))
    links = f"; {split} GPUs pass rows over PCIe or over NVLink" if split > 1 else ""
    _say(
        f"No server was measured: one may reach {low:.2g} to {high:.2g} times these tokens/s "
        f"(55 to 95 % of the bandwidth, 35 to 85 % of the operations{links})"
    )


def _tpot(tpot: dict[str, Any]) -> None:
    target = f"{figure(1000 * tpot['target_seconds'])} ms a token"
    if tpot["largest_batch"] is None:
        least = figure(1000 * tpot["smallest_itl_seconds"])
        _say(f"NO BATCH meets {target}: a single request takes {least} ms")
        return
    _say(
        f"batch {tpot['largest_batch']:,} meets {target} "
        f"({figure(1000 * tpot['itl_seconds'])} ms); the limit is {_LIMITS[tpot['limited_by']]}"
    )


def _presets(document: dict[str, Any]) -> None:
    demand = document["demand"]
    aimed = any(row.get("in_target_ratio") is not None for row in document["presets"])
    rows = []
    for row in document["presets"]:
        if "reason" in row:
            rows.append(["preset", row["name"], *[""] * (8 if aimed else 7), row["reason"]])
            continue
        late = "behind" if row["overloaded"] else _maybe(row["ttft_seconds_p95"])
        share = row["in_target_ratio"]
        rows.append(
            [
                "preset",
                row["name"],
                f"{row['max_num_seqs']:,}",
                f"{row['max_num_batched_tokens']:,}",
                _maybe(row["capacity_requests_per_second"]),
                _maybe(row["generation_tokens_per_second"]),
                late,
                _maybe(row["tpot_seconds_p95"], 1000),
                f"{row['num_gpu_blocks']:,}",
                *([("" if share is None else whole_percent(share))] if aimed else []),
            ]
        )
    header = ["preset", "seqs", "tokens", "req/s", "tokens/s", "TTFT s", "TPOT ms", "blocks"]
    reasons = any("reason" in row for row in document["presets"])
    header += [*(["in target"] if aimed else []), *(["not possible"] if reasons else [])]
    _rows(header, [row + [""] * (len(header) + 1 - len(row)) for row in rows])
    assumed = {"assumed": ", 70 % of the capacity as given", "file": ", as in the file"}
    _say(
        f"replayed at {figure(demand['requests_per_second'])} req/s"
        f"{assumed.get(demand['source'], '')}, all with the step time of the settings as given; "
        "req/s: capacity, saturated; TTFT and TPOT: p95"
    )
    if any(row.get("overloaded") for row in document["presets"]):
        _say("behind: the demand is above the capacity, waits grow as long as requests come")
    if not aimed:
        _say("share in target: give --ttft-seconds or --tpot-seconds")
    best, objective = document["best_preset"], document["objective"]
    if not best["names"]:
        _say(f"for {objective}: none ({best['reason']})")
    else:
        same = ", within 5 % of each other" if len(best["names"]) > 1 else ""
        _say(f"for {objective}: {' and '.join(best['names'])} ({_BY[best['by']]}{same})")


def _queue(queue: dict[str, Any], demand: dict[str, Any]) -> None:
    rate = figure(demand["requests_per_second"])
    ratio = queue["utilisation_ratio"]
    if ratio is None:
        _say("ρ unknown: too few requests to measure a capacity")
    else:
        _say(
            f"ρ {figure(ratio)}: {rate} req/s of {figure(demand['capacity_requests_per_second'])} "
            "(saturated replay)"
        )
    if queue["mm1_wait_seconds"] is not None:
        _say(
            f"M/M/1 of this capacity: wait {_time(queue['mm1_wait_seconds'])}, in the system "
            f"{_time(queue['mm1_time_seconds'])} = service {_time(queue['mm1_service_seconds'])} "
            "/ (1 - ρ)"
        )
    elif ratio is not None:
        _say("M/M/1: no steady state, the queue grows without end (ρ ≥ 1)")
    served = queue["one_at_a_time_utilisation_ratio"]
    _say(
        "a batch server is no M/M/1: with one request at a time "
        f"({_time(queue['request_alone_seconds'])} each) ρ would be {figure(served)}"
    )
    if queue["replayed_queue_seconds_mean"] is None:
        _say(f"replayed wait: none to tell ({queue['replayed_reason'] or 'no request finished'})")
    else:
        _say(
            f"replayed, {queue['replayed_requests']:,} requests: wait "
            f"{_time(queue['replayed_queue_seconds_mean'])}, TTFT "
            f"{_time(queue['replayed_ttft_seconds_mean'])}, p95 "
            f"{_time(queue['replayed_ttft_seconds_p95'])}"
        )
    if queue["wait_budget_seconds"] is not None:
        spare = queue["wait_budget_seconds"]
        alone = _time(queue["ttft_alone_seconds"])
        sentence = (
            f"wait budget {_time(spare)}: the TTFT target less the prompt alone, {alone}"
            if spare >= 0
            else f"NO WAIT BUDGET: the prompt alone takes {alone}, more than the TTFT target"
        )
        _say(sentence)
    if queue["in_target_ratio"] is not None:
        _say(f"in target: {whole_percent(queue['in_target_ratio'])}")


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    return f"{figure(1000 * seconds)} ms" if seconds < 1 else f"{figure(seconds)} s"


def _maybe(value: float | None, times: float = 1) -> str:
    return "unknown" if value is None else figure(times * value)


def _heading(text: str) -> None:
    if sys.stdout.isatty():
        for line in textwrap.wrap(text, _WIDTH, subsequent_indent="  "):
            click.echo(encodable(line))
    else:
        click.echo(encodable(f"plan\t{text}"))


def _say(text: str) -> None:
    """A sentence: wrapped for a terminal, one row for a pipe."""
    if sys.stdout.isatty():
        for line in textwrap.wrap(text, _WIDTH, subsequent_indent="  "):
            click.echo(encodable(line))
    else:
        click.echo(encodable(f"said\t{text}"))


def _rows(header: list[str], rows: list[list[str]]) -> None:
    """A table; piped, each row begins with the name of its table, the row of headers too."""
    if sys.stdout.isatty():
        click.echo()
        for line in render(header, [row[1:] for row in rows], width=_WIDTH):
            click.echo(encodable(line))
    else:
        kind = [rows[0][0]] if rows else []
        for row in [kind + header, *rows]:
            click.echo(encodable("\t".join(row)))
