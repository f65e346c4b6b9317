"""The *Limit* line of a page: which limit binds, its numbers, the state of the others. Pure."""

from __future__ import annotations

from driftwatch.diagnose.thresholds import CAP_BAND_RATIO
from driftwatch.notify.numbers import count, figure, knob, percent
from driftwatch.notify.page_values import Page, value
from driftwatch.notify.wording import seen_of, waiting_requests

_DEFERRED_IS = "LoRA slots, KV transfer or grammar"


def limit_text(page: Page) -> str | None:
    """Which limit binds, its numbers, then the state of the others."""
    if page["alert"] == "DeferredAdmission":
        deferred = value(page, "deferred_requests_10m")
        return None if deferred is None else f"{count(deferred)} deferred: {_DEFERRED_IS}"
    limits = (page["diagnosis"] or {}).get("limits", [])
    bound = [x["name"] for x in limits if x["binds"]]
    if not bound:
        return None
    writers = {
        "max_num_seqs": _sequences,
        "max_num_batched_tokens": _budget,
        "kv_cache": _kv,
    }
    # "KV 4 %" is short enough beside others; where it binds it is named in full
    first = " and ".join(
        f"KV cache: {_kv_while_bound(page)} in use" if name == "kv_cache" else writers[name](page)
        for name in bound
        if name in writers
    )
    if value(page, "binding_running_requests") is not None and bound != ["max_num_seqs"]:
        own = bound == ["kv_cache"] and value(page, "binding_kv_cache_usage_ratio") is not None
        window = (
            "" if own else f" ({page_window(page)})"
        )  # of the scrapes in which it bound, or all
        first += f"{window}; {count(value(page, 'binding_running_requests'))} running"
    waiting = waiting_requests(page)
    if waiting is not None:
        first += f", {count(waiting)} waiting"
    first += _bound_when(page)
    others = [write(page) for name, write in writers.items() if name not in bound]
    preempted = value(page, "preemptions_per_second")
    if preempted is not None:
        others.append("no preemption" if preempted == 0 else preemptions(preempted))
    return "; ".join((first, ", ".join(text for text in others if text)))


def _bound_when(page: Page) -> str:
    """Which scrapes the numbers before it are of: those in which the limit bound, or all."""
    share = value(page, "limit_binding_share_10m_ratio")
    if share is None:
        return ""
    of = _of_scrapes(share, value(page, "scrapes_10m"))
    if value(page, "binding_running_requests") is not None:
        return f" while it bound ({of})"
    return f" (means of the {seen_of(value(page, 'observed_10m_seconds'))}; bound in {of})"


def _of_scrapes(share: float, scrapes: float | None) -> str:
    return f"{percent(share)} of {'' if scrapes is None else count(scrapes) + ' '}scrapes"


def _sequences(page: Page) -> str:
    cap, running = value(page, "max_num_seqs"), value(page, "binding_running_requests")
    bound = running is not None
    if running is None:
        running = value(page, "running_requests")
    if cap is None or running is None:
        return "max_num_seqs unknown" if cap is None else f"max_num_seqs {knob(cap)}"
    inferred = " (inferred)" if value(page, "max_num_seqs_inferred") else ""
    if value(page, "binding_limit") == "max_num_seqs" and bound and not near_cap(running, cap):
        told = f"of {knob(cap)}{inferred} on average {count(running)} running"
        return f"max_num_seqs: full at times; {told}"
    return f"max_num_seqs: {count(running)} of {knob(cap)}{inferred} running"


def near_cap(running: float, cap: float) -> bool:
    """Whether so many running requests fill a cap, as the limits model has it."""
    return running >= min(CAP_BAND_RATIO * cap, cap - 1)


def _budget(page: Page) -> str:
    budget, used = value(page, "max_num_batched_tokens"), value(page, "tokens_per_forward_pass")
    if budget is None:
        return "token budget unknown"
    if used is None:
        return f"token budget {knob(budget)}"
    return f"token budget: {count(used)} of {knob(budget)} tokens a step"


def _kv(page: Page) -> str:
    used = value(page, "kv_cache_usage_ratio")
    return "KV unknown" if used is None else f"KV {percent(used)}"


def _kv_while_bound(page: Page) -> str:
    """Of the scrapes in which it bound: preemption empties it in between."""
    used = value(page, "binding_kv_cache_usage_ratio")
    return _kv(page)[3:] if used is None else percent(used)


def preemptions(rate: float) -> str:
    """``0 preemptions``, ``0.83 preemptions/s``."""
    return "0 preemptions" if rate == 0 else f"{figure(rate, 2)} preemptions/s"


def page_window(page: Page) -> str:
    """The window of the page's row, as far as it was seen."""
    return seen_of(value(page, "duration_seconds"))
