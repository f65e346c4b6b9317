"""Claims about what the metrics say: measured on recorded servers and on replays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from claims_book import FOLDER, ROOT, TRACE, Claim, Ran, RequestFile

from driftwatch.notify.numbers import figure, percent, times

RECORDED = "driftwatch/_demo/run_main.jsonl.gz"
SERVEGEN = "driftwatch/fleet/traffic_data/servegen_rates.parquet"
LENGTHS = "driftwatch/fleet/traffic_data/servegen_lengths.parquet"
H100 = "--gpu H100-80GB --model llama-3.1-8b"
DAYS = 1


def window(since: str, until: str) -> str:
    """One window of the recorded run, its first 15 seconds left out."""
    day = "2026-11-21T01:"
    return (
        f"driftwatch evidence --recording {RECORDED} --from {day}{since}Z --to {day}{until}Z --json"
    )


BASELINE = window("35:25", "37:35")
PROMPTS = window("37:55", "40:05")
ANSWERS = window("41:25", "43:35")
DEMAND = window("44:56", "46:35")


def value(ran: Ran, column: str) -> float:
    """An evidence column of a window."""
    return float(ran.json["evidence"][column]["value"])


def requests_per_pass(ran: Sequence[Ran]) -> tuple[str, str]:
    found = [
        (
            value(r, "requests_per_forward_pass"),
            value(r, "running_requests"),
            value(r, "effective_batch_size"),
        )
        for r in ran
    ]
    off = max(max(gauge / counted, counted / gauge) for counted, gauge, _ in found)
    told = "; ".join(f"{figure(c)} a pass, gauge {figure(g)}" for c, g, _ in found)
    verdict = "Does not hold" if off > 1.15 else "Holds"
    return verdict, (
        f"On a real server at four loads: {told}. The gauge is read after a step and counts idle "
        f"time as zero: up to {times(off)} off. The time-weighted batch, rate(ITL_sum), is "
        f"{', '.join(figure(e) for _, _, e in found)}."
    )


def batch_shrinks(ran: Sequence[Ran]) -> tuple[str, str]:
    running = [value(r, "running_requests") for r in ran]
    speed = [value(r, "generation_tokens_per_second") for r in ran]
    verdict = "Does not hold unless a limit binds" if min(running[1:]) > running[0] else "Holds"
    return verdict, (
        f"The same server with no limit near: running {figure(running[0])} → {figure(running[1])} "
        f"with prompts ×4, and → {figure(running[2])} with answers ×4. Generated tokens/s "
        f"{figure(speed[0])} → {figure(speed[1])} and {figure(speed[2])}."
    )


def raw_throughput(ran: Sequence[Ran]) -> tuple[str, str]:
    rows = [json.loads(line) for line in (ROOT / FOLDER / "day.jsonl").read_text().splitlines()]
    tokens = np.diff([row["generation_tokens"] for row in rows])
    below = np.array([tokens[i] < 0.85 * tokens[i - 6 : i].mean() for i in range(6, len(tokens))])
    pages = int((below & ~np.append(False, below[:-1])).sum())
    month = pages * 30 / DAYS
    busy = ran[0].json["batch"]["busy_ratio"]
    verdict = "Does not hold" if month > 1 else "Holds"
    return verdict, (
        f"A server that never changes under a day of recorded production traffic "
        f"(busy {percent(min(1.0, busy))} of the time, fixed step times) falls 15 % below "
        f"the hour before for 10 minutes {pages:,} times: about {figure(month)} false pages a "
        "server-month. At equal load: [truth](truth.md)."
    )


def utilisation(ran: Sequence[Ran]) -> tuple[str, str]:
    capacity = max(level["requests_per_second"] for level in ran[0].json["levels"])
    parts = []
    busy_at_low = 1.0
    for run in ran[1:]:
        offered = run.json["throughput"]["requests_per_second"]
        busy = run.json["batch"]["busy_ratio"]
        batch = run.json["batch"]["decode_seqs_per_step"]
        busy_at_low = min(busy_at_low, busy)
        parts.append(
            f"{figure(offered)} requests/s ({percent(offered / capacity)} of capacity): busy "
            f"{percent(busy)}, {figure(batch)} decoding a step"
        )
    verdict = "Does not hold" if busy_at_low > 0.8 else "Holds in part"
    return verdict, (
        f"GPU_UTIL is the share of time in which a kernel is resident; it does not show the room "
        f"that is left. One H100 that can serve {figure(capacity)} requests/s of this trace: "
        f"{'; '.join(parts)}."
    )


def columns(ran: Sequence[Ran]) -> tuple[str, str]:
    names = [[column["name"] for column in r.json["columns"]] for r in ran]
    wanted = ("batch_utilization", "waiting_requests", "prefill_decode_ratio")
    if any(name not in found for name, found in zip(wanted, names, strict=True)):
        raise ValueError(f"{wanted} are not all columns: {names}")
    return "Holds", (
        "All three are evidence columns under these words: "
        + ", ".join(f"`{name}`" for name in wanted)
        + ". Rules on queue spikes and on the mix of phases do not ship yet."
    )


def grouping(ran: Sequence[Ran]) -> tuple[str, str]:
    text = (ROOT / FOLDER / "queue-order.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    first = [row["first_scheduled_seconds"] for row in rows]
    turned = sum(1 for a, b in pairwise(first) if b < a)
    waits = [row["queue_seconds"] for row in rows]
    short = [w for w, row in zip(waits, rows, strict=True) if row["prompt_tokens"] < 1000]
    long = [w for w, row in zip(waits, rows, strict=True) if row["prompt_tokens"] >= 1000]
    verdict = "Does not hold" if turned == 0 else "Holds in part"
    return verdict, (
        f"{len(rows):,} requests, every tenth forty times as long as the others, at a server that "
        f"queues: {turned} were scheduled before one that came earlier. Short ones wait "
        f"{figure(float(np.mean(short)))} s, long ones {figure(float(np.mean(long)))} s: "
        "first come, first served; running requests first in each step, then prefill."
    )


def mixed() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(11)
    at = np.cumsum(rng.exponential(1 / 40, 2000))
    long = np.arange(2000) % 10 == 9
    return {
        "arrival_seconds": at,
        "prompt_tokens": np.where(long, 8000, 200),
        "generation_tokens": np.full(2000, 100),
    }


FILES = {
    "mixed.csv": RequestFile(
        "2,000 requests, Poisson at 40/s (seed 11), prompts of 200 tokens, every tenth 8,000; "
        "answers of 100",
        mixed,
    )
}

CLAIMS = (
    Claim(
        "Requests per forward pass are num_requests_running",
        "",
        (BASELINE, PROMPTS, ANSWERS, DEMAND),
        requests_per_pass,
        "`requests_per_forward_pass` comes from counters; `batch_estimate_spread_ratio` shows the "
        "disagreement.",
        cheap=True,
    ),
    Claim(
        "Longer prompts or answers shrink the batch",
        "",
        (BASELINE, PROMPTS, ANSWERS),
        batch_shrinks,
        "the tree compares the batch with what the waiting demand would fill.",
        cheap=True,
    ),
    Claim(
        "Page on tokens per second",
        "Page when tokens/s/GPU is 15 % down for 10 minutes.",
        (
            f"driftwatch simulate run --requests {SERVEGEN} --servegen-lengths {LENGTHS} "
            f"--from-seconds 0 --to-seconds {DAYS * 86400} --rate-scale 0.005 {H100} "
            f"--scrapes {FOLDER}/day.jsonl --scrape-interval 600 --json",
        ),
        raw_throughput,
        "`ThroughputDown` ships switched off.",
    ),
    Claim(
        "GPU utilisation should exceed 80 %",
        "",
        (
            f"driftwatch sweep {H100} --requests {TRACE} --concurrency 128,256 "
            "--requests-per-level 1536 --json",
            f"driftwatch simulate run {H100} --requests {TRACE} --json",
            f"driftwatch simulate run {H100} --requests {TRACE} --arrival-scale 0.4 --json",
        ),
        utilisation,
        "no rule has a threshold on GPU_UTIL.",
    ),
    Claim(
        "The metrics to track",
        "Track batch_utilization, queue_length and prefill_decode_ratio.",
        (
            "driftwatch evidence batch_utilization --json",
            'driftwatch evidence "queue length" --json',
            "driftwatch evidence prefill_decode_ratio --json",
        ),
        columns,
        "rules can use them; each is unknown with a reason where vLLM does not export its inputs.",
        cheap=True,
    ),
    Claim(
        "vLLM groups requests by length",
        "",
        (
            f"driftwatch simulate run --requests {FOLDER}/mixed.csv {H100} --max-num-seqs 64 "
            f"--max-num-batched-tokens 2048 --per-request {FOLDER}/queue-order.jsonl --json",
        ),
        grouping,
        "the simulator schedules as vLLM does; only batchers that pad group by length.",
        files=("mixed.csv",),
    ),
)
