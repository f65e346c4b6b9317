"""Claims about how to look after a server; some are for later releases, and say so."""

from __future__ import annotations

from collections.abc import Sequence

from claims_book import Claim, Ran

from driftwatch.notify.numbers import figure

RECORDED = "driftwatch/_demo/run_main.jsonl.gz"
WINDOW = "--from 2026-11-21T01:41:25Z --to 2026-11-21T01:43:35Z"
BEFORE = "--baseline 2026-11-21T01:35:25Z..2026-11-21T01:37:35Z"


def lengths(ran: Sequence[Ran]) -> tuple[str, str]:
    evidence = ran[0].json["evidence"]
    ratio = float(evidence["generation_tokens_mean_ratio"]["value"])
    mean = float(evidence["generation_tokens_mean"]["value"])
    return "Holds, and a month is too slow", (
        f"On the recorded server answers grow ×{figure(ratio)} (to a mean of {figure(mean)} "
        "tokens) within one minute, and two minutes of scrapes show it. The month's roll-up "
        "belongs to the weekly report, which is not built yet."
    )


def version_control(ran: Sequence[Ran]) -> tuple[str, str]:
    return "Not measured", (
        "Comparing matched traffic before and after a change, with PASS, FAIL or INCONCLUSIVE, is "
        "not built yet. Restarts and changed settings are seen, and incidents say so."
    )


def distribution(ran: Sequence[Ran]) -> tuple[str, str]:
    evidence = ran[0].json["evidence"]
    names = ("requests_per_forward_pass", "running_requests", "effective_batch_size")
    low, *_, high = sorted(float(evidence[name]["value"]) for name in names)
    spread = evidence["batch_estimate_spread_ratio"]["value"]
    return "Holds", (
        f"Even the mean depends on the question: in one window of the recorded server three "
        f"estimates of the batch lie from {figure(low)} to {figure(high)} (spread "
        f"{figure(float(spread))}). Its p10, p50 and p90 against the tuned value, from stored "
        "minutes, come with the report, which is not built yet."
    )


def symptoms(ran: Sequence[Ran]) -> tuple[str, str]:
    path = ran[0].json
    found = path["diagnosis"]["leaf"] if isinstance(path["diagnosis"], dict) else None
    if not found:
        raise ValueError("explain names no leaf")
    return "Holds in part", (
        f"One tree ships; over the recorded server with answers ×4 it ends in `{found}`. Trees by "
        "symptom (latency high, throughput low, GPU idle) over the same evidence are not built "
        "yet."
    )


CLAIMS = (
    Claim(
        "Profile answer lengths monthly",
        "Profile the lengths of answers every month against what was provisioned.",
        (f"driftwatch evidence --recording {RECORDED} {WINDOW} {BEFORE} --json",),
        lengths,
        "`LengthDrift` compares with `tuned_for` or a reference by the minute.",
        cheap=True,
    ),
    Claim(
        "Batching settings belong in version control",
        "Keep them there, change one knob at a time, and compare A with B.",
        (),
        version_control,
        "driftwatch never changes a server: it prints one change, its price, how to undo it and "
        "what would prove it wrong.",
    ),
    Claim(
        "Know the distribution of the batch",
        "Know the batch's distribution, not only its mean: tuned for 32, it may run at 8.",
        (f"driftwatch evidence --recording {RECORDED} {WINDOW} --json",),
        distribution,
        "the three estimates are columns, and a page counts requests by the pass.",
        cheap=True,
    ),
    Claim(
        "Debug by symptom",
        "Start from the symptom: latency high, throughput low, or GPU idle.",
        (
            f"driftwatch explain --recording {RECORDED} --at 2026-11-21T01:43:35Z --window 2m "
            f"{BEFORE} --json",
        ),
        symptoms,
        "`driftwatch explain` prints the path with its numbers, and what was not asked, with the "
        "reason.",
        cheap=True,
    ),
)
