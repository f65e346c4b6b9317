"""The phrases that templates of a rule's page name (``rulebook/page_form.py``). Pure.

Each is a function of a page's JSON; None = the page does not hold what it says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from driftwatch.diagnose.thresholds import CAP_BAND_RATIO
from driftwatch.evidence import BY_NAME
from driftwatch.knobs import COLUMN_KNOBS, KNOBS
from driftwatch.notify.columns import evidence_value
from driftwatch.notify.engine_words import gpus_text
from driftwatch.notify.numbers import (
    change,
    clean,
    count,
    figure,
    is_as_before,
    knob,
    milliseconds,
    moment,
    percent,
    percent_range,
    plural,
    queue_wait,
    seconds,
    tenth_percent,
    times,
    tokens,
)
from driftwatch.notify.page_values import (
    Page,
    evaluated,
    form_of,
    instant,
    many,
    reference_values,
    value,
)

LIMIT_WORDS: Mapping[str, str] = {
    **{name: KNOBS[name].words for name in COLUMN_KNOBS},
    "kv_cache": "KV cache",
}
_STEMS = ("prompt", "generation")
_TRENDS = (
    ("speed", "speed at equal load", -1),
    ("e2e_p99", "p99 end-to-end time at equal lengths", 1),
    ("e2e_p50", "p50 end-to-end time at equal lengths", 1),
)


def fill(page: Page, templates: Iterable[str]) -> Iterator[str]:
    """The templates whose names all have a value on this page, filled, in their order."""
    for template in templates:
        texts = {name: _text(page, name) for name in re.findall(r"\{(\w+)\}", template)}
        if None not in texts.values():
            yield re.sub(r"\{(\w+)\}", lambda m, t=texts: str(t[m[1]]), template)  # type: ignore[misc]


def _text(page: Page, name: str) -> str | None:
    if name in PHRASES:
        return PHRASES[name](page)
    found = value(page, name) if name in BY_NAME else None
    return None if found is None else evidence_value(name, found)


# -- latency and limits --------------------------------------------------------------------------


def missed(page: Page) -> str | None:
    """``99 % of requests miss TTFT 1.0 s``: a range where the target lies inside a bucket."""
    if value(page, "slo_missed") is not True:
        return None
    slo, known = page["slo"] or {}, []
    for stem, write in (("ttft", seconds), ("tpot", milliseconds)):
        column = f"{stem}_in_target_10m_ratio"
        least, target = value(page, column), slo.get(f"{stem}_seconds")
        if least is None or target is None:
            continue
        most = page["evidence"][column].get("upper", least)
        if most < slo["share"]:
            share = percent_range(1 - most, 1 - least)
            known.append((most, f"{share} of requests miss {stem.upper()} {write(target)}"))
    return min(known)[1] if known else "the latency target is missed"


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
    said = f"{' and '.join(map(_article, names))} {'is' if len(names) == 1 else 'are'} full{often}"
    others = [text for name in LIMIT_WORDS if name not in names and (text := _use(page, name))]
    preempted = value(page, "preemptions_per_second")
    if preempted is not None:
        others.append(preemptions(preempted))
    said += f": {', '.join(numbers)}" if numbers else ""
    return f"{said}. {', '.join(others)}" if others else said


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
    found = value(page, "waiting_requests") if bound is None else bound
    return None if found is None else float(found)


def present(page: Page) -> str | None:
    """``12 requests present``."""
    found = (value(page, "running_requests") or 0) + (value(page, "waiting_requests") or 0)
    return f"{plural(found, 'request')} present" if found else None


def load(page: Page) -> str | None:
    """``load 73 % of the capacity of 8.70 req/s (baseline 52 %)``; None without a replay."""
    used, size = value(page, "utilization_ratio"), value(page, "capacity_requests_per_second")
    if used is None:
        return None
    of = "" if size is None else f" of {figure(size)} req/s"
    rate, ratio = reference_values(page).get("requests_per_second"), value(page, "capacity_ratio")
    known = size and ratio and isinstance(rate, int | float)
    before = f" (baseline {percent(float(rate) * ratio / size)})" if known and rate else ""
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
    known = any(x["binds"] is False for x in limits) or value(page, "binding_limit") == "none"
    if not known or any(x["binds"] for x in limits) or value(page, "slo_missed"):
        return None
    kept = target_kept(page)
    return f"no limit is full{'' if kept is None else f', {kept}'}"


# -- traffic -------------------------------------------------------------------------------------


def length_ratio(page: Page, stem: str) -> float | None:
    """A mean length over the one that the rule compares with."""
    found = value(page, f"{stem}_tokens_{form_of(page)['lengths']}_ratio")
    return None if found is None else float(found)


def _stems(page: Page) -> list[str]:
    """The two lengths, the one that the rule is about first."""
    signal = page["target"].get("signal", "")
    return sorted(_STEMS, key=lambda stem: not signal.startswith(stem))


def _is_moved(ratio: float | None) -> bool:
    return ratio is not None and not is_as_before(ratio)


def _rate(page: Page) -> str | None:
    ratio = value(page, "requests_per_second_ratio")
    return f"completed requests {change(ratio)}" if _is_moved(ratio) else None


def moved(page: Page) -> str | None:
    """``prompts are ×2.3 longer``; the rate where no length moved."""
    known = [(stem, length_ratio(page, stem)) for stem in _stems(page)]
    ratios = [(stem, ratio) for stem, ratio in known if ratio is not None and _is_moved(ratio)]
    parts = []
    for longer in (True, False):
        these = [f"{stem}s are {times(r)}" for stem, r in ratios if (r > 1) is longer]
        if these:
            both = " and ".join((these[0], *(text.replace("s are", "s") for text in these[1:])))
            parts.append(f"{both} {'longer' if longer else 'as long'}")
    return ", ".join(parts) or _rate(page)


def kept(page: Page) -> str | None:
    """``generations unchanged``."""
    same = [stem for stem in _stems(page) if length_ratio(page, stem) is not None]
    same = [f"{stem}s" for stem in same if not _is_moved(length_ratio(page, stem))]
    return f"{' and '.join(same)} unchanged" if same else None


def means(page: Page) -> str | None:
    """``211 → 338 tokens``, of the first length that moved."""
    for stem in _stems(page):
        ratio, before = length_ratio(page, stem), reference_values(page).get(f"{stem}_tokens_mean")
        if ratio is not None and before is not None and _is_moved(ratio):
            return f"{tokens(before)} → {tokens(before * ratio)} tokens"
    return None


def lengths(page: Page) -> str | None:
    """``prompts grew ×2.34 (mean 512 → 1,200 tokens, 87,000 requests), generations unchanged``."""
    parts = []
    for stem in _stems(page):
        ratio = length_ratio(page, stem)
        if ratio is None or not _is_moved(ratio):
            continue
        before = reference_values(page).get(f"{stem}_tokens_mean")
        now, n = value(page, f"{stem}_tokens_mean"), value(page, "finished_requests")
        detail = []
        if now is not None:
            was = "" if before is None else f"{tokens(before)} → "
            detail.append(f"mean {was}{tokens(now)} tokens")
        if n:
            detail.append(plural(n, "request"))
        verb = "grew" if ratio > 1 else "shrank to"
        parts.append(f"{stem}s {verb} {times(ratio, 3)}" + f" ({', '.join(detail)})" * bool(detail))
    parts += [text for text in (kept(page), _rate(page)) if text]
    return ", ".join(parts) or None


def baseline(page: Page) -> str | None:
    """The day of the baseline."""
    since = (page["reference"] or {}).get("from")
    return None if since is None else f"{datetime.fromisoformat(since):%Y-%m-%d}"


def began(page: Page) -> str | None:
    """When it began."""
    at = instant(page, "started_at")
    return None if at is None else moment(at, evaluated(page).date())


# -- speed ---------------------------------------------------------------------------------------


def slower(page: Page) -> str:
    """``19 % slower at equal load``."""
    ratio = value(page, "speed_at_equal_load_ratio")
    demand = value(page, "speed_at_equal_demand_ratio")
    if ratio is not None and ratio < 1:
        return f"{'up to ' if many(page) else ''}{percent(1 - ratio)} slower at equal load"
    if demand is not None and demand < 1:
        return f"at least {percent(1 - demand)} slower at equal demand"
    return "slower at equal load"


def slower_than_peers(page: Page) -> str:
    """``19 % slower than its peers at equal load``."""
    ratio, own = value(page, "speed_against_pool_ratio"), value(page, "speed_at_equal_load_ratio")
    if ratio is not None and ratio < 1:
        return f"{percent(1 - ratio)} slower than its peers at equal load"
    if own is not None and own < 1:
        return slower(page)
    return "slower than its peers at equal load"


def step_time(page: Page) -> str | None:
    """The step now and expected, and the batch that hides it in the throughput."""
    itl, ratio = value(page, "itl_seconds_mean"), value(page, "speed_at_equal_load_ratio")
    if ratio is None:
        demand = value(page, "speed_at_equal_demand_ratio")
        return (
            demand and f"this demand is served at {percent(demand)} of the expected speed at most"
        )
    if itl is None:
        return f"the engine runs at {percent(ratio)} of the speed expected at this load"
    said = f"a step takes {figure(itl * 1000)} ms where this load used to take "
    said += f"{figure(itl * ratio * 1000)} ms"
    before = reference_values(page)
    batch, was_batch = value(page, "effective_batch_size"), before.get("effective_batch_size")
    for column, unit in (
        ("tokens_per_second_per_gpu", "tokens/s/GPU"),
        ("generation_tokens_per_second", "tokens/s"),
    ):
        now, was = value(page, column), before.get(column)
        if not (now and was and batch and was_batch) or not is_as_before(now / was):
            continue
        if batch / was_batch > 1 and not is_as_before(batch / was_batch):
            said += f". Throughput looks normal ({figure(now)} {unit}) only because its batch grew "
            return said + f"from {figure(was_batch)} to {figure(batch)}"
    return said


def peers(page: Page) -> str | None:
    """``1 of 8 replicas; the others run at 99 to 101 % of the expected speed``."""
    found: Mapping[str, Any] | None = page.get("peers")
    concerned = page.get("concerned")
    if concerned is not None and concerned["targets"] >= concerned["of_targets"]:
        return None  # there are no others, and line 1 counts the targets
    if not found:
        median = value(page, "pool_speed_at_equal_load_ratio")
        return median and f"the others run at {percent(median)} of the expected speed"
    slow = found["slower"] if concerned is None else concerned["targets"]
    said = f"{slow} of {found['of_targets']} replicas"
    if slow >= found["of_targets"]:
        return said
    low, high = (f"{found[f'speed_{end}_ratio'] * 100:.0f}" for end in ("low", "high"))
    span = low if low == high else f"{low} to {high}"
    return f"{said}; the others run at {span} % of the expected speed"


def drift_14d(page: Page) -> str | None:
    """``speed at equal load -4.2 % in 14 days``, the worst first."""
    return next(_trends(page), (None,))[0]


def drift_interval(page: Page) -> str | None:
    """The same with its interval."""
    found = next(_trends(page), None)
    return found and f"{found[0]} (95 % interval {found[1]})"


def _trends(page: Page) -> Iterator[tuple[str, str]]:
    """Drifts in the bad direction whose interval excludes 0, each with its interval."""
    for name, word, bad in _TRENDS:
        slope, low, high = (
            value(page, f"{name}_slope_14d_{part}ratio") for part in ("", "lower_", "upper_")
        )
        if slope is None or low is None or high is None or not (low > 0 if bad > 0 else high < 0):
            continue
        interval = f"{tenth_percent(low)[:-2]} to {tenth_percent(high)}"
        yield f"{word} {tenth_percent(slope)} in 14 days", interval


# -- what is missing, GPUs -----------------------------------------------------------------------


def gone(page: Page) -> str | None:
    """Why nothing is seen of any target of the page; None where a part is seen.

    A reason stands beside the names of the missing inputs only where those are all there were.
    """
    entry = page["evidence"].get("coverage_missing_inputs") or {}
    return clean(entry["reason"]) if entry.get("value") and entry.get("reason") else None


def first_gone(page: Page) -> str | None:
    """``queue_seconds and 2 more``."""
    names = clean(value(page, "coverage_missing_inputs") or "").split(", ")
    if not names[0]:
        return None
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def gpus(page: Page) -> str | None:
    """What the target's GPUs did."""
    now = {column: entry["value"] for column, entry in page["evidence"].items()}
    return gpus_text(now, reference_values(page), stuck=bool(now.get("seconds_since_last_token")))


def gpu_names(page: Page) -> str | None:
    """Which GPUs are lost: what the person who drains the server looks for."""
    names = (page["evidence"].get("gpus_lost") or {}).get("names")
    return f"lost: {clean(names)}" if names else None


def gpus_of_server(page: Page) -> str | None:
    """``1 of 8 GPUs``."""
    lost = value(page, "gpus_lost")
    of = page["evidence"]["gpus_lost"].get("of") if lost else None
    if of is not None and of > 1:
        return f"{count(lost)} of {count(of)} GPUs"
    return plural(lost, "GPU") if lost else None


def meaning(page: Page) -> str | None:
    """What the leaf means."""
    found = (page["diagnosis"] or {}).get("meaning")
    return clean(found) if found else None


PHRASES: Mapping[str, Callable[[Page], str | None]] = {
    function.__name__: function
    for function in (
        began, missed, queueing, limit, full, present, moved, kept, means, lengths, slower,
        slower_than_peers, step_time, peers, drift_14d, drift_interval, gone, first_gone, gpus,
        gpu_names, gpus_of_server, load, meaning, target_kept, baseline, no_limit_full,
    )
}  # fmt: skip
