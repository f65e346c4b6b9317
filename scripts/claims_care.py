"""Claims about how to look after a server."""

from __future__ import annotations

from collections.abc import Sequence

from claims_book import Claim, Ran

from driftwatch.notify.numbers import figure

RECORDED = "driftwatch/_demo/run_main.jsonl.gz"
CHANGED = "driftwatch/_demo/run_cap.jsonl.gz"
WINDOW = "--from 2026-11-21T01:41:25Z --to 2026-11-21T01:43:35Z"
BEFORE = "--baseline 2026-11-21T01:35:25Z..2026-11-21T01:37:35Z"


def lengths(ran: Sequence[Ran]) -> tuple[str, str]:
    evidence = ran[0].json["evidence"]
    ratio = float(evidence["generation_tokens_mean_ratio"]["value"])
    mean = float(evidence["generation_tokens_mean"]["value"])
    return "Holds, and a month is too slow", (
        f"On the recorded server answers grow ×{figure(ratio)} (to a mean of {figure(mean)} "
        "tokens) within one minute, and two minutes of scrapes show it."
    )


def version_control(ran: Sequence[Ran]) -> tuple[str, str]:
    (found,) = [ran[0].json] if isinstance(ran[0].json, dict) else ran[0].json
    (what,) = found["change"]["what"]
    ttft = next(e for e in found["effects"] if e["name"] == "ttft_seconds_mean")
    matched = found["matched_minutes"]
    return "Holds, and can be measured", (
        f"A real server restarted with another {what['name']}, {what['before']} → "
        f"{what['after']}: at matched traffic ({matched['before']} minutes before, "
        f"{matched['after']} after) the mean TTFT goes {figure(ttft['before'])} → "
        f"{figure(ttft['after'])} s: {found['verdict']}. Nobody had told driftwatch of the change."
    )


def distribution(ran: Sequence[Ran]) -> tuple[str, str]:
    evidence = ran[0].json["evidence"]
    names = ("requests_per_forward_pass", "running_requests", "effective_batch_size")
    low, *_, high = sorted(float(evidence[name]["value"]) for name in names)
    spread = evidence["batch_estimate_spread_ratio"]["value"]
    return "Holds", (
        f"Even the mean depends on the question: in one window of the recorded server three "
        f"estimates of the batch lie from {figure(low)} to {figure(high)} (spread "
        f"{figure(float(spread))})."
    )


def symptoms(ran: Sequence[Ran]) -> tuple[str, str]:
    leaves = []
    for one in ran:
        path = one.json
        found = path["diagnosis"]["leaf"] if isinstance(path["diagnosis"], dict) else None
        if not found:
            raise ValueError("explain names no leaf")
        leaves.append(found)
    said = f"`{leaves[0]}`" if len(set(leaves)) == 1 else ", ".join(f"`{one}`" for one in leaves)
    verdict = "Holds" if len(set(leaves)) == 1 else "Holds in part"
    return verdict, (
        "A tree begins at each symptom (a moved batch, latency high, throughput low, GPU idle) and "
        f"all end in the same causes. The recorded server with answers ×4: {said}"
        f"{' from every one' if len(set(leaves)) == 1 else ''}."
    )


CLAIMS = (
    Claim(
        "Profile answer lengths monthly",
        "",
        (f"driftwatch evidence --recording {RECORDED} {WINDOW} {BEFORE} --json",),
        lengths,
        "`LengthDrift` compares by the minute; the month stands in the [weekly "
        "report](sre/reports.md).",
        cheap=True,
    ),
    Claim(
        "Batching settings belong in version control",
        "Keep them there, change one knob at a time, and compare A with B.",
        (f"driftwatch verify host:8000 --recording {CHANGED} --json",),
        version_control,
        "driftwatch prints one change with its price and undo, and "
        "[verifies](methods/verification.md) it.",
    ),
    Claim(
        "Know the distribution of the batch",
        "Know the batch's distribution, not only its mean: tuned for 32, it may run at 8.",
        (f"driftwatch evidence --recording {RECORDED} {WINDOW} --json",),
        distribution,
        "all three are columns; the [weekly report](sre/reports.md) has p05, p50 and p95.",
        cheap=True,
    ),
    Claim(
        "Debug by symptom",
        "",
        tuple(
            f"driftwatch explain --recording {RECORDED} --at 2026-11-21T01:43:35Z --window 2m "
            f"{BEFORE} --symptom {symptom} --json"
            for symptom in ("batch", "latency", "throughput", "gpu-idle")
        ),
        symptoms,
        "`driftwatch explain` prints the path with its numbers.",
        cheap=True,
    ),
)
