"""Phrases of speed, GPUs and missing inputs. Pure; None = the page does not hold it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from driftwatch.notify.engine_words import gpus_text
from driftwatch.notify.numbers import (
    clean,
    count,
    figure,
    is_as_before,
    percent,
    plural,
    tenth_percent,
)
from driftwatch.notify.page_values import (
    Page,
    many,
    reference_values,
    value,
)

_TRENDS = (
    ("speed", "speed at equal load", -1),
    ("e2e_p99", "p99 end-to-end time at equal lengths", 1),
    ("e2e_p50", "p50 end-to-end time at equal lengths", 1),
)


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
    text = f"a step takes {figure(itl * 1000)} ms where this load used to take "
    text += f"{figure(itl * ratio * 1000)} ms"
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
            text += f". Throughput looks normal ({figure(now)} {unit}) only because its batch grew "
            return text + f"from {figure(was_batch)} to {figure(batch)}"
    return text


def peers(page: Page) -> str | None:
    """``1 of 8 replicas; the others run at 99 to 101 % of the expected speed``."""
    speeds: Mapping[str, Any] | None = page.get("peers")
    concerned = page.get("concerned")
    if concerned is not None and concerned["targets"] >= concerned["of_targets"]:
        return None  # there are no others, and line 1 counts the targets
    if not speeds:
        median = value(page, "pool_speed_at_equal_load_ratio")
        return median and f"the others run at {percent(median)} of the expected speed"
    slow = speeds["slower"] if concerned is None else concerned["targets"]
    text = f"{slow} of {speeds['of_targets']} replicas"
    if slow >= speeds["of_targets"]:
        return text
    low, high = (f"{speeds[f'speed_{end}_ratio'] * 100:.0f}" for end in ("low", "high"))
    span = low if low == high else f"{low} to {high}"
    return f"{text}; the others run at {span} % of the expected speed"


def drift_14d(page: Page) -> str | None:
    """``speed at equal load -4.2 % in 14 days``, the worst first."""
    return next(_trends(page), (None,))[0]


def drift_interval(page: Page) -> str | None:
    """The same with its interval."""
    trend = next(_trends(page), None)
    return trend and f"{trend[0]} (95 % interval {trend[1]})"


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


def missing_reason(page: Page) -> str | None:
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
    text = (page["diagnosis"] or {}).get("meaning")
    return clean(text) if text else None
