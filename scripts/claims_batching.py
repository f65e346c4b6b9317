"""Claims about ways of batching: measured on one clock and one step-time model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from claims_book import Claim, Ran

from driftwatch.notify.numbers import figure, percent, times


def used(ran: Sequence[Ran]) -> tuple[str, str]:
    ratios = ran[0].json["used_ratios"]
    short, middle = ratios[0], ratios[2]
    verdict = "Holds in part" if abs(middle - 0.10) > 0.02 else "Holds"
    return verdict, (
        f"Padded to the longest, the short one uses {percent(short)} of its row, the middle one "
        f"{percent(middle)}."
    )


def waste(ran: Sequence[Ran]) -> tuple[str, str]:
    plain = ran[0].json["without_buckets"]["waste_ratio"]
    fine, coarse = (r.json["with_buckets"]["waste_ratio"] for r in ran)
    verdict = "Holds" if abs(plain - 0.67) < 0.02 else "Holds in part"
    return verdict, (
        f"{percent(plain)} of the padded tokens are waste; in buckets of 128, 256, 512, 1024 and "
        f"2048 {percent(fine)}, of 128, 512 and 1024 {percent(coarse)}."
    )


def capacities(ran: Ran) -> dict[str, float]:
    """Requests a second of each policy while there is always more to do."""
    found = ran.json["policies"]
    return {name: one["capacity_requests_per_second"] for name, one in found.items()}


def point(ran: Ran, policy: str, load: float) -> dict[str, Any]:
    """One policy under one load."""
    for row in ran.json["policies"][policy]["points"]:
        if load in (row.get("requests_per_second"), row.get("concurrency")):
            return dict(row)
    raise ValueError(f"{policy} was not run at {load}")


def classic(ran: Sequence[Ran]) -> tuple[str, str]:
    rate = capacities(ran[0])
    told = []
    for name in ("static", "dynamic", "continuous"):
        kept = [p for p in ran[0].json["policies"][name]["points"] if p.get("keeps_up")]
        top = max(kept, key=lambda p: p["requests_per_second"]) if kept else None
        late = (
            f"p99 {figure(top['e2e']['p99'])} s at {figure(top['requests_per_second'])}, the "
            "highest load without a backlog"
            if top
            else "a backlog at every load"
        )
        told.append(f"{name} {figure(rate[name])} requests/s, {late}")
    apart = rate["continuous"] / rate["dynamic"]
    steps = [v for v in ran[1].json["variants"] if v["capacity_factor"]]
    rungs = ", ".join(f"{v['name']} {times(v['capacity_factor'], 3)}" for v in steps)
    verdict = "Holds in part" if 3 <= apart <= 10 else "Does not hold here"
    return verdict, (
        f"One workload and step-time model: {'; '.join(told)}. Continuous has {times(apart, 3)} "
        f"the capacity of dynamic and {times(rate['continuous'] / rate['static'], 3)} that of "
        "static batching. "
        f"The factor, a cause at a time: {rungs}."
    )


def efficiency(ran: Sequence[Ran]) -> tuple[str, str]:
    static = [
        p["batch_efficiency_ratio"]
        for p in ran[0].json["policies"]["static"]["points"]
        if p["batch_efficiency_ratio"] is not None
    ]
    reason = ran[0].json["policies"]["continuous"]["points"][0]["batch_reason"]
    defined = any(
        p["batch_efficiency_ratio"] is not None
        for p in ran[0].json["policies"]["continuous"]["points"]
    )
    verdict = "Holds for batches that pad" if not defined else "Holds"
    return verdict, (
        f"Static batching has {figure(sum(static) / len(static), 2)} on this mix. "
        f"For continuous batching there is none: {reason}."
    )


def unused(ran: Sequence[Ran]) -> tuple[str, str]:
    told, gaps = [], []
    for users in (64, 96, 128):
        mine, other = point(ran[0], "dynamic", users), point(ran[0], "continuous", users)
        gaps.append(1 - mine["batch_efficiency_ratio"])
        share = mine["throughput_requests_per_second"] / other["throughput_requests_per_second"]
        told.append(f"{users} users {percent(gaps[-1])} and {percent(share)}")
    verdict = "Holds" if all(0.15 <= gap <= 0.35 for gap in gaps) else "Does not hold here"
    return verdict, (
        f"Dynamic batches of 64, share of unused token slots and of the throughput of continuous "
        f"batching: at {'; '.join(told)}."
    )


def split(ran: Sequence[Ran]) -> tuple[str, str]:
    told, gains = [], []
    for run, share in zip(ran, ("80/20", "20/80"), strict=True):
        rate = capacities(run)
        gains.append(rate["hybrid"] / rate["continuous"])
        told.append(
            f"{share} (prompts/answers) {figure(rate['hybrid'])} against "
            f"{figure(rate['continuous'])} requests/s, {times(gains[-1], 3)}"
        )
    verdict = "Holds" if max(gains) >= 1.3 else "Does not hold here"
    return verdict, f"Against chunked prefill, at capacity: {'; '.join(told)}."


def cancelled(ran: Sequence[Ran]) -> tuple[str, str]:
    told = []
    worst = 1.0
    for policy, load in (("static", 20), ("continuous", 150)):
        freed, kept = (point(run, policy, load) for run in ran)
        ratio = kept["e2e"]["p99"] / freed["e2e"]["p99"]
        worst = max(worst, ratio)
        told.append(
            f"{policy} at {load} requests/s: p99 {figure(freed['e2e']['p99'])} s freed, "
            f"{figure(kept['e2e']['p99'])} s worked on"
        )
    verdict = "Holds" if worst < 1.1 else "Does not hold"
    return verdict, (
        f"5 % of the clients cancel, after 0.5 s on average: {'; '.join(told)}: at most "
        f"{times(worst, 3)} if nobody frees them."
    )


def rejecting(ran: Sequence[Ran]) -> tuple[str, str]:
    told, better = [], []
    for load in (150, 220):
        plain, push = point(ran[0], "continuous", load), point(ran[0], "back-pressure", load)
        good, kept = plain["goodput_requests_per_second"], push["goodput_requests_per_second"]
        better.append(kept / good if good else float("inf"))
        told.append(
            f"at {load} requests/s {figure(good)} in time without and {figure(kept)} with it"
        )
    verdict = "Holds under overload" if better[1] > 1.05 else "Does not hold here"
    return verdict, (f"Requests/s that end within 5 s, clients giving up then: {'; '.join(told)}.")


MIX = (
    "--gpu H100-80GB --model llama-3.1-8b --prompt-tokens 200 --prompt-cv 1 "
    "--generation-tokens 20 --generation-cv 0.5"
)
COMPARE = f"driftwatch simulate compare {MIX}"
TABLE = f"{COMPARE} --policies static,dynamic,continuous --rates 10,20,30,60,120,150,180 --json"
CANCEL = (
    f"{COMPARE} --policies static,continuous --rates 20,150 --cancel-ratio 0.05 "
    "--cancel-after-seconds 0.5"
)
CLAIMS = (
    Claim(
        "What padding leaves of a short prompt",
        "Padding prompts of 10, 1,000 and 50 tokens to 1,000 uses 1 % and 10 % of the short rows.",
        ("driftwatch simulate compare --padding --lengths 10,1000,50 --json",),
        used,
        "vLLM does not pad; only the classic batchers of the simulator do.",
        cheap=True,
    ),
    Claim(
        "Padding waste and bucketing",
        "Prompts of 64, 128, 256, 512 and 1,024 tokens, two of each, waste 67 % when padded; "
        "bucketing brings 25 to 35 %.",
        tuple(
            "driftwatch simulate compare --padding "
            f"--lengths 64,64,128,128,256,256,512,512,1024,1024 --buckets {buckets} --json"
            for buckets in ("128,256,512,1024,2048", "128,512,1024")
        ),
        waste,
        "`driftwatch simulate compare --padding` computes both for your lengths.",
        cheap=True,
    ),
    Claim(
        "Static, dynamic, continuous",
        "Static batching of 32 gives about 30 requests/s at a p99 of 8 to 10 s, dynamic with 50 ms "
        "about 60 at 2 to 3 s, continuous 150 to 200 under 0.5 s: 3 to 5 times dynamic, 5 to 10 "
        "times static.",
        (TABLE, f"{COMPARE} --causes --json"),
        classic,
        "`driftwatch simulate compare` gives the table for your traffic.",
    ),
    Claim(
        "Batch efficiency",
        "batch_efficiency = Σ generated / (batch × longest); above 0.7 is good, below 0.3 padding "
        "waste.",
        (TABLE,),
        efficiency,
        "the simulator gives it for batchers that pad.",
    ),
    Claim(
        "Dynamic batching above 64 users",
        "",
        (
            f"{COMPARE} --policies dynamic,continuous --batch-size 64 --concurrency 64,96,128 "
            "--json",
        ),
        unused,
        "nothing to watch in vLLM: the next step fills a free slot.",
    ),
    Claim(
        "A hybrid split of prefill and decode",
        "Splitting prefill and decode 80/20 gains 30 to 40 %.",
        (
            f"{COMPARE} --policies continuous,hybrid --rates 60,120,150 --json",
            f"{COMPARE} --policies continuous,hybrid --rates 60,120,150 --prefill-share 0.2 --json",
        ),
        split,
        "no page advises it.",
    ),
    Claim(
        "Cancellations cost little",
        "",
        (f"{CANCEL} --json", f"{CANCEL} --keep-given-up --json"),
        cancelled,
        "`aborted_requests_per_second` is evidence.",
    ),
    Claim(
        "Reject at 80 % of the queue",
        "Reject above 80 % of the queue, and let clients come back after 0.5 s.",
        (
            f"{COMPARE} --policies continuous,back-pressure --rates 150,220 --timeout-seconds 5 "
            "--slo-p99-seconds 5 --json",
        ),
        rejecting,
        "vLLM has max_num_queued_reqs and max_num_queued_tokens; `rejected_requests_per_second` "
        "counts them.",
    ),
)
