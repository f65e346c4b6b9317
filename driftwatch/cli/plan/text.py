"""The answer of ``driftwatch plan`` for people, and between tabs for pipes."""

from __future__ import annotations

from typing import Any

from driftwatch.cli.simulate import screen
from driftwatch.cli.simulate.screen import number, table, together
from driftwatch.notify.numbers import count, figure, whole_percent

_GIB = 2**30
_BY = {
    "capacity_requests_per_second": "the largest capacity",
    "in_target_ratio": "the largest share in target",
    "e2e_seconds_mean": "the shortest mean time to the last token of those that keep up",
}
_LIMITS = {"kv_cache": "the KV cache", "max_num_seqs": "max_num_seqs", "tpot": "the target"}


def print_plan(document: dict[str, Any]) -> None:
    """Memory, ceilings, phases, batches, presets and queue."""
    split = document["tensor_parallel_size"]
    gpus = document["gpu"] if split == 1 else f"{split} × {document['gpu']}"
    screen.say(
        f"{document['model']} on {gpus}, max_num_seqs {document['max_num_seqs']:,}, "
        f"max_num_batched_tokens {document['max_num_batched_tokens']:,}",
        kind="plan",
    )
    _memory(document, split)
    if document["fits"] is None:
        fewest = document["fitting_tensor_parallel_size"]
        cure = (
            f"It fits with --tensor-parallel-size {fewest}."
            if fewest
            else "64 GPUs of this kind do not hold it either."
        )
        _say(f"DOES NOT FIT: {document['reason']}. {cure}")
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
        (
            str(row["batch"]),
            _ms(row["seconds_per_token"]),
            _ms(row["fitted_seconds_per_token"]),
            "yes" if row["seconds_per_token"] <= target else "no",
        )
        for row in document["rows"]
    ]
    header = ("batch", "ms a token", "fitted ms", f"meets {_ms(target)} ms")
    table(header, rows, kind="measured")
    _say(
        f"The line is {_ms(line['c0_seconds'])} ms + {_ms(line['c2_seconds'])} ms × batch, with a "
        f"median error of {whole_percent(line['error_ratio'])}. A power of the batch fits with "
        f"exponent {figure(line['power'], 2)} and error {whole_percent(line['power_error_ratio'])}."
    )
    measured, fitted = document["largest_batch_measured"], document["largest_batch_fitted"]
    if measured is None:
        smallest = min(row["batch"] for row in document["rows"])
        slowest = max(r["seconds_per_token"] for r in document["rows"] if r["batch"] == smallest)
        fastest = min(row["seconds_per_token"] for row in document["rows"])
        why = f"the fastest row takes {_ms(fastest)} ms"
        if fastest <= target:  # a row met it, but not the smallest batch in all of its rows
            why = f"even batch {smallest} takes up to {_ms(slowest)} ms"
        _say(f"NO BATCH of this table meets {_ms(target)} ms a token in all rows: {why}.")
        return
    more = f"; by the line batch {fitted} does" if fitted is not None else ""
    last = line["largest_batch"]
    beyond = f" The table ends at batch {last}." if last in (fitted, measured) else ""
    _say(f"Batch {measured} meets {_ms(target)} ms a token{more}.{beyond}")


def _memory(document: dict[str, Any], split: int) -> None:
    memory, kv = document["memory"], document["kv"]
    rows = [
        ("weights", memory["weights_bytes"], "" if split == 1 else f"1 of {split} shares"),
        ("activations", memory["activations_bytes"], "estimate"),
        ("CUDA graphs", memory["cuda_graphs_bytes"], "estimate"),
        ("workspaces", memory["other_bytes"], "estimate"),
        (
            "KV cache",
            memory["kv_cache_bytes"],
            f"{memory['num_gpu_blocks']:,} blocks of {document['block_size']}, "
            f"{memory['kv_cache_size_tokens']:,} tokens",
        ),
        (
            "outside vLLM",
            memory["total_bytes"] - memory["requested_bytes"],
            f"gpu_memory_utilization {document['gpu_memory_utilization']:g} of "
            f"{figure(memory['total_bytes'] / _GIB)} GiB",
        ),
    ]
    if memory["missing_bytes"]:
        rows.insert(5, ("missing", memory["missing_bytes"], "beyond what vLLM may take"))
    table(
        ("memory of a GPU", "GiB", ""),
        [(name, figure(size / _GIB), note) for name, size, note in rows],
        kind="memory",
    )
    _say(
        f"The KV cache takes {figure(kv['bytes_per_token'] / 1024)} KiB a token"
        f"{' on each GPU' if split > 1 else ''}: {figure(kv['bytes_per_100_tokens'] / 1e6)} MB for "
        f"100 tokens, {figure(kv['bytes_per_2000_tokens'] / 1e6)} MB for 2,000 tokens."
    )


def _ceilings(document: dict[str, Any]) -> None:
    fits, mix = document["fits"], document["mix"]
    longest, limit = mix["longest_tokens"], document["max_model_len"]
    lengths = f"{count(mix['prompt_tokens_mean'])} + {count(mix['generation_tokens_mean'])} tokens"
    unused = whole_percent(fits["reserved_unused_ratio"])
    rows = (
        (
            "at a random point of their life",
            "running",
            f"{count(fits['resident_tokens'])} tokens each, in whole blocks",
        ),
        ("of mean length, at their end", "mean_full", lengths),
        ("as the longest, at its end", "longest_full", f"{longest:,} tokens: no preemption"),
        ("without paging", "reserved", f"each reserves {limit:,}, {unused} unused"),
    )
    table(
        ("requests in the KV cache", "batch", ""),
        [(what, f"{fits[name]:,}", note) for what, name, note in rows],
        kind="together",
    )
    seqs = document["max_num_seqs"]
    sizes = [min(fits[name], seqs) for name in ("longest_full", "mean_full", "running")]
    ceiling = "the KV cache" if fits["running"] < seqs else f"max_num_seqs {seqs:,}"
    _say(
        f"Largest batch: {sizes[0]:,} requests if all are as long as the longest, {sizes[1]:,} of "
        f"mean length, {sizes[2]:,} at a random point of their life. The limit is {ceiling}."
    )
    if not document["max_model_len_fits"]:
        most = document["memory"]["kv_cache_size_tokens"]
        _say(
            f"vLLM WILL NOT START: one request of max_model_len {limit:,} does not fit the KV "
            f"cache. Set --max-model-len {most} or less."
        )


def _phases(phases: dict[str, Any]) -> None:
    rows = []
    for row in phases["rows"]:
        what = (
            f"prefill of {row['prompt_tokens']:,} tokens"
            if row["phase"] == "prefill"
            else f"decode, batch {row['batch']}, context {row['context_tokens']:,}"
        )
        rows.append((what, figure(row["flops_per_byte"]), row["bound_by"]))
    table(("phase", "FLOPs a byte", "bound by"), rows, kind="phase")
    batch, bare = (phases[f"compute_bound_decode_batch{end}"] for end in ("", "_without_context"))
    ratio = f"The GPU does {figure(phases['ridge_flops_per_byte'])} FLOPs a byte."
    if batch is not None:
        _say(f"{ratio} With this context decode is compute-bound from batch {batch:,}.")
    else:
        without = "none is" if bare is None else f"batch {bare:,} is"
        _say(
            f"{ratio} With this context decode is memory-bound at every batch; without a context "
            f"{without} compute-bound."
        )


def _batches(document: dict[str, Any]) -> None:
    rows = [
        (
            f"{row['batch']:,}",
            figure(row["tokens_per_second"]),
            figure(row["tokens_per_second_per_user"]),
            _ms(row["itl_seconds"]),
            _ms(row["decode_only_seconds"]),
            figure(row["kv_bytes"] / _GIB),
            figure(row["memory_bytes"] / _GIB),
            "" if row["fits"] else "above the KV cache",
        )
        for row in document["batches"]
    ]
    header = ("batch", "tokens/s", "each", "ITL ms", "decode ms", "KV GiB", "all GiB", "")
    table(header, rows, kind="batch")
    _say(
        "ITL includes the prompts that such a server computes in between; decode is a step "
        f"without prompts. Step time: {document['step_time']} ({document['step_time_source']}): "
        "seconds of a step, of a prefill token, of a decoding request and of a KV token read."
    )
    if document["step_time_source"] != "roofline":
        return
    last, split = document["batches"][-1], document["tensor_parallel_size"]
    low, high = (
        last[f"tokens_per_second_{end}"] / last["tokens_per_second"] for end in ("low", "high")
    )
    links = f"; {split} GPUs pass rows over PCIe or over NVLink" if split > 1 else ""
    _say(
        f"No server was measured: a real one reaches {low:.2g} to {high:.2g} times these tokens/s "
        f"(55 to 95 % of the bandwidth, 35 to 85 % of the operations{links})."
    )


def _tpot(tpot: dict[str, Any]) -> None:
    target = f"{_ms(tpot['target_seconds'])} ms a token"
    if tpot["largest_batch"] is None:
        least = _ms(tpot["smallest_itl_seconds"])
        _say(f"NO BATCH meets {target}: a single request takes {least} ms.")
        return
    _say(
        f"Batch {tpot['largest_batch']:,} meets {target} with {_ms(tpot['itl_seconds'])} ms. "
        f"The limit is {_LIMITS[tpot['limited_by']]}."
    )


def _presets(document: dict[str, Any]) -> None:
    demand = document["demand"]
    aimed = any(row.get("in_target_ratio") is not None for row in document["presets"])
    rows = []
    for row in document["presets"]:
        if "reason" in row:
            rows.append([row["name"], *[""] * (8 if aimed else 7), row["reason"]])
            continue
        share = row["in_target_ratio"]
        rows.append(
            [
                row["name"],
                f"{row['max_num_seqs']:,}",
                f"{row['max_num_batched_tokens']:,}",
                number(row["capacity_requests_per_second"]),
                number(row["generation_tokens_per_second"]),
                "behind" if row["overloaded"] else number(row["ttft_seconds_p95"]),
                number(row["tpot_seconds_p95"], 1000),
                f"{row['num_gpu_blocks']:,}",
                *([("" if share is None else whole_percent(share))] if aimed else []),
            ]
        )
    header = ["preset", "seqs", "tokens", "req/s", "tokens/s", "TTFT s", "TPOT ms", "blocks"]
    reasons = any("reason" in row for row in document["presets"])
    header += [*(["in target"] if aimed else []), *(["not possible"] if reasons else [])]
    table(header, [row + [""] * (len(header) - len(row)) for row in rows], kind="preset")
    source = {"assumed": ", 70 % of the capacity of your settings", "file": ", the file's rate"}
    _say(
        f"Simulated at {figure(demand['requests_per_second'])} requests/s"
        f"{source.get(demand['source'], '')}, each with the step time of your settings: "
        "tokens/s, TTFT (p95) and TPOT (p95) at that rate. req/s is the capacity."
    )
    if any(row.get("overloaded") for row in document["presets"]):
        _say("behind: the demand is above the capacity, so waits grow as long as requests come.")
    if not aimed and not any(row.get("overloaded") for row in document["presets"]):
        _say("Give --ttft-seconds or --tpot-seconds for the share in target.")
    best, objective = document["best_preset"], document["objective"]
    if not best["names"]:
        _say(f"Best for {objective}: none ({best['reason']}).")
    else:
        same = ", within 5 % of each other" if len(best["names"]) > 1 else ""
        _say(f"Best for {objective}: preset {together(best['names'])} ({_BY[best['by']]}{same}).")


def _queue(queue: dict[str, Any], demand: dict[str, Any]) -> None:
    rate, load = figure(demand["requests_per_second"]), queue["utilisation_ratio"]
    if load is None:
        _say("Load unknown: too few requests to measure a capacity.")
    else:
        most = figure(demand["capacity_requests_per_second"])
        share = figure(100 * load)
        _say(f"Load {share} % of capacity: {rate} of {most} requests/s (simulated).")
    if queue["mm1_wait_seconds"] is not None:
        _say(
            f"An M/M/1 queue of this capacity: wait {_time(queue['mm1_wait_seconds'])}, time in "
            f"the system {_time(queue['mm1_time_seconds'])}, of it "
            f"{_time(queue['mm1_service_seconds'])} of service."
        )
    elif load is not None:
        _say("An M/M/1 queue has no steady state at a load of 100 % or more: it grows without end.")
    _say(
        "A batch server is no M/M/1 queue: without batching "
        f"({_time(queue['request_alone_seconds'])} a request) its load would be "
        f"{figure(100 * queue['one_at_a_time_utilisation_ratio'])} % of capacity."
    )
    if queue["replayed_queue_seconds_mean"] is None:
        _say(f"Simulated wait unknown: {queue['replayed_reason'] or 'no request finished'}.")
    else:
        _say(
            f"Simulated with {queue['replayed_requests']:,} requests: wait "
            f"{_time(queue['replayed_queue_seconds_mean'])}, TTFT mean "
            f"{_time(queue['replayed_ttft_seconds_mean'])}, p95 "
            f"{_time(queue['replayed_ttft_seconds_p95'])}."
        )
    spare, alone = queue["wait_budget_seconds"], _time(queue["ttft_alone_seconds"])
    target = None if spare is None else spare + queue["ttft_alone_seconds"]
    if spare is not None and spare >= 0:
        _say(
            f"Left for queueing: {_time(spare)} of the TTFT target of {_time(target)}; prefill "
            f"alone takes {alone}."
        )
    elif spare is not None:
        _say(
            f"NO TIME LEFT FOR QUEUEING: prefill alone takes {alone}, the TTFT target is "
            f"{_time(target)}."
        )
    if queue["in_target_ratio"] is not None:
        _say(f"In target: {whole_percent(queue['in_target_ratio'])} of requests.")


def _ms(seconds: float) -> str:
    return figure(1000 * seconds)


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    return f"{_ms(seconds)} ms" if seconds < 1 else f"{figure(seconds)} s"


def _say(text: str) -> None:
    screen.say(text, kind="text")
