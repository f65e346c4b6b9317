"""Phrases of latency, limits and room. Pure; None = the page does not hold it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driftwatch.diagnose.thresholds import CAP_BAND_RATIO
from driftwatch.knobs import COLUMN_KNOBS, KNOBS
from driftwatch.notify.numbers import (
    count,
    figure,
    knob,
    milliseconds,
    percent,
    percent_range,
    plural,
    queue_wait,
    seconds,
)
from driftwatch.notify.page_values import (
    Page,
    reference_values,
    value,
)

LIMIT_WORDS: Mapping[str, str] = {
    **{name: KNOBS[name].words for name in COLUMN_KNOBS},
    "kv_cache": "KV cache",
}


def missed(page: Page) -> str | None:
    """``99 % of requests miss TTFT 1.0 s``: a range where the target lies inside a bucket."""
    if value(page, "slo_missed") is not True:
        return None
    slo, targets = page["slo"] or {}, []
    for stem, write in (("ttft", seconds), ("tpot", milliseconds)):
        column = f"{stem}_in_target_10m_ratio"
        least, target = value(page, column), slo.get(f"{stem}_seconds")
        if least is None or target is None:
            continue
        most = page["evidence"][column].get("upper", least)
        if most < slo["share"]:
            share = percent_range(1 - most, 1 - least)
            targets.append((most, f"{share} of requests miss {stem.upper()} {write(target)}"))
    return min(targets)[1] if targets else "the latency target is missed"


def queueing(page: Page) -> str | None:
    """``first token takes 2.5 s, all of it queueing``."""
    wait = value(page, "batch_assembly_wait_10m_seconds")
    if wait is None:
        wait = value(page, "batch_assembly_wait_seconds")
    queued = value(page, "queue_wait_estimate_10m_seconds")
    if queued is not None and queued >= 1 and (wait is None or queued > 2 * wait):
        # what has finished waited little; what queues now is in no histogram yet
        return f"requests queue for {queue_wait(queued)}"
    if wait is None or wait < 0.1:
        return None
    ttft = value(page, "ttft_10m_seconds")
    if not ttft:
        return f"requests queue for {seconds(wait)}"
    share = percent(min(wait / ttft, 1.0))
    part = "all" if share in ("100 %", ">99 %") else share
    return f"first token takes {seconds(ttft)}, {part} of it queueing"


def _full_limits(page: Page) -> list[str]:
    limits = (page["diagnosis"] or {}).get("limits", ())
    return [x["name"] for x in limits if x["binds"] and x["name"] in LIMIT_WORDS]


def _article(name: str) -> str:
    return name if name == "max_num_seqs" else f"the {LIMIT_WORDS[name]}"


def full(page: Page) -> str | None:
    """``the token budget is full, 28 requests queue``."""
    names = _full_limits(page)
    if not names:
        return None
    waiting = waiting_requests(page)
    queue = f", {plural(waiting, 'request')} queue" if waiting else ""
    return f"{_article(names[0])} is full{queue}"


def limit(page: Page) -> str | None:
    """Which limit is full and how often, its numbers; then how full the others are."""
    names = _full_limits(page)
    if not names:
        return None
    running, waiting = value(page, "binding_running_requests"), waiting_requests(page)
    share, scrapes = value(page, "limit_binding_share_10m_ratio"), value(page, "scrapes_10m")
    numbers = [text for name in names if (text := _use(page, name, own=True))]
    if running is not None and names != ["max_num_seqs"]:
        numbers.append(f"{plural(running, 'request')} run")
    if waiting is not None:
        numbers.append(
            f"{count(waiting)} queue" if numbers else f"{plural(waiting, 'request')} queue"
        )
    often = ""
    if share is not None:
        of = "the scrapes" if scrapes is None else f"{count(scrapes)} scrapes"
        often = f" in {percent(share)} of {of}"
    sentence = (
        f"{' and '.join(map(_article, names))} {'is' if len(names) == 1 else 'are'} full{often}"
    )
    others = [text for name in LIMIT_WORDS if name not in names and (text := _use(page, name))]
    preempted = value(page, "preemptions_per_second")
    if preempted is not None:
        others.append(preemptions(preempted))
    sentence += f": {', '.join(numbers)}" if numbers else ""
    return f"{sentence}. {', '.join(others)}" if others else sentence


def _use(page: Page, name: str, *, own: bool = False) -> str | None:
    """How full a limit is; ``own``: as it was in the scrapes in which it was full."""
    if name == "kv_cache":
        used = value(page, "binding_kv_cache_usage_ratio") if own else None
        used = value(page, "kv_cache_usage_ratio") if used is None else used
        return (
            None
            if used is None
            else f"{percent(used)} in use"
            if own
            else f"KV cache {percent(used)}"
        )
    if name == "max_num_batched_tokens":
        budget, used = value(page, name), value(page, "tokens_per_forward_pass")
        if budget is None or used is None:
            return None
        part = f"{count(used)} of {knob(budget)} tokens a step"
        return part if own else f"token budget {part}"
    cap, running = value(page, name), value(page, "binding_running_requests")
    running = value(page, "running_requests") if running is None else running
    if cap is None or running is None:
        return None
    inferred = " (inferred)" if value(page, "max_num_seqs_inferred") else ""
    part = f"{count(running)} of {knob(cap)}{inferred}"
    if not own:
        return f"max_num_seqs {part}"
    return f"{part} requests run" if near_cap(running, cap) else f"on average {part} requests run"


def near_cap(running: float, cap: float) -> bool:
    """Whether so many running requests fill a cap, as the limits model has it."""
    return running >= min(CAP_BAND_RATIO * cap, cap - 1)


def preemptions(rate: float) -> str:
    """``no preemptions``, ``0.83 preemptions/s``."""
    return "no preemptions" if rate == 0 else f"{figure(rate, 2)} preemptions/s"


def waiting_requests(page: Page) -> float | None:
    """How many requests wait: while the limit was full where that is known, else the mean."""
    bound = value(page, "binding_waiting_requests")
    waiting = value(page, "waiting_requests") if bound is None else bound
    return None if waiting is None else float(waiting)


def present(page: Page) -> str | None:
    """``12 requests present``."""
    requests = (value(page, "running_requests") or 0) + (value(page, "waiting_requests") or 0)
    return f"{plural(requests, 'request')} present" if requests else None


def load(page: Page) -> str | None:
    """``load 73 % of the capacity of 8.70 req/s (baseline 52 %)``; None without a replay."""
    used, size = value(page, "utilization_ratio"), value(page, "capacity_requests_per_second")
    if used is None:
        return None
    of = "" if size is None else f" of {figure(size)} req/s"
    rate, ratio = reference_values(page).get("requests_per_second"), value(page, "capacity_ratio")
    has_baseline = size and ratio and isinstance(rate, int | float)
    before = f" (baseline {percent(float(rate) * ratio / size)})" if has_baseline and rate else ""
    return f"load {percent(used)} of the capacity{of}{before}"


def room(page: Page) -> str | None:
    """``the other 7 replicas have room: 52 → 60 % of capacity``, once this one is drained."""
    peers: Mapping[str, Any] | None = page.get("peers")
    if not peers or peers.get("utilization_ratio") is None:
        return None
    others = round(peers["of_targets"]) - 1
    if others < 1:
        return None
    now = peers["utilization_ratio"]
    then = now * (others + 1) / others
    who = "the other replica has" if others == 1 else f"the other {others} replicas have"
    return (
        f"{who} {'' if then <= 1 else 'no '}room: {percent(now)[:-2]} → {percent(then)} of capacity"
    )


def target_kept(page: Page) -> str | None:
    """Whether the latency targets are kept."""
    missed = value(page, "slo_missed")
    if missed is None:
        return None
    return "a latency target is missed" if missed else "all requests in target"


def no_limit_full(page: Page) -> str | None:
    """``no limit is full, all requests in target``; None where one is, or nobody knows."""
    limits = (page["diagnosis"] or {}).get("limits", ())
    is_measured = any(x["binds"] is False for x in limits) or value(page, "binding_limit") == "none"
    if not is_measured or any(x["binds"] for x in limits) or value(page, "slo_missed"):
        return None
    in_target = target_kept(page)
    return f"no limit is full{'' if in_target is None else f', {in_target}'}"
