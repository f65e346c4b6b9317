"""Phrases of speed, GPUs and missing inputs. Pure; None = does not apply."""

from __future__ import annotations

import re
from typing import Any

from driftwatch.collect.registry import BY_COLUMN
from driftwatch.notify.engine_words import gpus_text
from driftwatch.notify.page import Page
from driftwatch.numbers import (
    brief,
    clean,
    count,
    figure,
    is_as_before,
    percent,
    percent_range,
    plural,
    tenth_percent,
)

_NAMED_METRICS = 2
_KEEPS_SPEED = 0.95  # of its usual speed: the accuracy of equal load, as in the trees


def slower(page: Page) -> str:
    """``19 % slower at equal load``, ``back at its usual speed``."""
    is_back = page.value("slower_at_equal_load") is False
    return "back at its usual speed" if is_back else _slower(page)


def _slower(page: Page) -> str:
    ratio, up_to = _judged_ratio(page), "up to " if page.is_of_many else ""
    if ratio is not None and ratio < 1:
        return f"{up_to}{percent(1 - ratio)} slower at equal load"
    ratio = page.value("speed_against_pool_ratio")
    if ratio is not None and page.value("slower_than_pool"):
        return f"{up_to}{percent(1 - ratio)} slower than its peers at equal load"
    return "slower at equal load"


def _judged_ratio(page: Page) -> float | None:
    """The speed at equal load; None where it is not judged, and where a server is slower than its
    peers at work that its baseline does not have: they say it better.
    """
    evidence = page.evidence
    unknown = {name for name, amount in evidence.items() if amount.value is None}
    is_unlike = "speed_threshold_ratio" in unknown and page.value("slower_than_pool")
    is_judged = "slower_at_equal_load" not in unknown and not is_unlike
    return page.value("speed_at_equal_load_ratio") if is_judged else None


def slower_than_peers(page: Page) -> str:
    """``19 % slower at equal load``; against its peers where its baseline does not show it; once
    it is as fast as they are, that.
    """
    if page.value("slower_than_pool") is False:
        return "as fast as its peers again"
    ratio, own = page.value("speed_against_pool_ratio"), _judged_ratio(page)
    if own is not None and own < 1 and (ratio is None or page.value("slower_at_equal_load")):
        return _slower(page)
    by = f"{percent(1 - ratio)} " if ratio is not None and ratio < 1 else ""
    return f"{by}slower than its peers at equal load"


def capacity_lost(page: Page) -> str | None:
    """``2.4 % of the pool's capacity lost``, by the slow servers; None for a server alone."""
    ratio = _judged_ratio(page) or page.value("speed_against_pool_ratio")
    concerned, of = page.servers.concerned, page.servers.of
    if ratio is None or ratio >= 1 or of < 2:
        return None
    at_most = "up to " if page.is_of_many else ""
    return f"{at_most}{percent((1 - ratio) * concerned / of)} of the pool's capacity lost"


def step_time(page: Page) -> str | None:
    """The measured and the expected step, and the larger batch that hides it in the throughput."""
    itl, ratio = page.value("itl_seconds_mean"), _judged_ratio(page)
    if ratio is None:
        against = page.value("speed_against_pool_ratio")
        if against is None:
            return None
        runs = "they are" if page.is_of_many else "it is"
        return f"{runs} {percent(1 - against)} slower than its peers in the same minutes"
    if itl is None or ratio > _KEEPS_SPEED:
        return None
    text = f"a step takes {figure(itl * 1000)} ms where this load used to take "
    text += f"{figure(itl * ratio * 1000)} ms"
    before = page.baseline_values
    batch, was_batch = page.value("effective_batch_size"), before.get("effective_batch_size")
    for column, unit in (
        ("tokens_per_second_per_gpu", "tokens/s/GPU"),
        ("generation_tokens_per_second", "tokens/s"),
    ):
        now, was = page.value(column), before.get(column)
        if not (now and was and batch and was_batch) or not is_as_before(now / was):
            continue
        if batch / was_batch > 1 and not is_as_before(batch / was_batch):
            text += f". Throughput looks normal ({brief(now)} {unit}) only because the batch grew "
            return text + f"from {count(was_batch)} to {count(batch)} requests"
    return text


def peers(page: Page) -> str | None:
    """``1 of 8 replicas, the others run at 99 to 101 % of their usual speed``."""
    speeds, concerned = page.peers, page.servers.concerned
    if 1 < page.servers.of <= concerned or page.value("slower_at_equal_load") is False:
        return None  # the incident has all servers, or the speed is back
    if not speeds or "slower" not in speeds:
        return None
    slow = max(concerned, round(speeds["slower"]))
    text = f"{slow} of {round(speeds['of_targets'])} replicas"
    if slow >= speeds["of_targets"] or "speed_low_ratio" not in speeds:
        return text
    low, high = (speeds[f"speed_{end}_ratio"] for end in ("low", "high"))
    only = round(speeds["of_targets"]) - slow == 1
    if high <= _KEEPS_SPEED:
        others = "the other is" if only else "the others are"
        loss = percent_range(1 - high, 1 - low)
        return f"{text} by more than the threshold; {others} {loss} slower at equal load"
    span = f"{100 * low:.0f} to {100 * high:.0f}".removeprefix(f"{100 * high:.0f} to ")
    others = (
        f"the other runs at {span} % of its" if only else f"the others run at {span} % of their"
    )
    return f"{text}, {others} usual speed"


def drift_14d(page: Page) -> str | None:
    """``4.2 % slower at equal load over 14 days``; None where the drift may be 0."""
    slope, least = page.value("speed_slope_14d_ratio"), least_drift_14d(page)
    if slope is None or least is None:
        return None
    return f"{tenth_percent(slope).lstrip('+-')} slower at equal load over 14 days"


def least_drift_14d(page: Page) -> str | None:
    """``2.5 %``, the lower bound of :func:`drift_14d`."""
    least = page.value("speed_slope_14d_upper_ratio")
    return None if least is None or least >= 0 else tenth_percent(least).lstrip("+-")


def missing_reason(page: Page) -> str | None:
    """Why all inputs of the page's servers are missing; None where only some are."""
    entry = page.evidence.get("coverage_missing_inputs")
    if entry is None or not entry.value or not entry.reason:
        return None
    # name the source by its place in the configuration
    return re.sub(r"\bprometheus (\d+)", r"Prometheus sources[\1]", clean(entry.reason))


def _missing(page: Page) -> list[str]:
    names = filter(None, clean(page.value("coverage_missing_inputs") or "").split(", "))
    return [BY_COLUMN[name].wire_name if name in BY_COLUMN else name for name in names]


def missing_count(page: Page) -> str | None:
    """``3 metrics``."""
    names = _missing(page)
    return plural(len(names), "metric") if names else None


def missing_metrics(page: Page) -> str | None:
    """``vllm:request_queue_time_seconds and 2 more``."""
    names = _missing(page)
    more = len(names) - _NAMED_METRICS
    text = ", ".join(names[:_NAMED_METRICS])
    return (f"{text} and {more} more" if more > 0 else text) or None


def gpus(page: Page) -> str | None:
    """The GPUs' readings."""
    now: dict[str, Any] = {column: entry.value for column, entry in page.evidence.items()}
    counted = page.evidence.get("gpu_count")
    now["gpu_count_source"] = None if counted is None else counted.source
    text = gpus_text(now, page.baseline_values, on_page=True)
    if text is None:
        return None
    if lost := now.get("gpus_lost"):
        of = page.evidence["gpus_lost"].of
        return None if of is not None and of <= lost else f"its other GPUs, on average: {text}"
    return f"{clean(page.servers.first[0])}: {text}" if page.is_of_many else text


def gpu_names(page: Page) -> str | None:
    """``GPU 2 on node-1 (UUID GPU-6f1c)``, for the person who drains the server."""
    entry = page.evidence.get("gpus_lost")
    names = None if entry is None else entry.names
    parts = [name.partition(", ") for name in clean(names or "").split("; ") if name]
    gpus = [f"GPU {name}" + (f" (UUID {uuid})" if uuid else "") for name, _, uuid in parts]
    return " and ".join(gpus) or None


def gpus_of_server(page: Page) -> str | None:
    """``1 of 8 GPUs``."""
    lost = page.value("gpus_lost")
    of = page.evidence["gpus_lost"].of if lost else None
    if of is not None and of > 1:
        return f"{count(lost)} of {count(of)} GPUs"
    return plural(lost, "GPU") if lost else None


def meaning(page: Page) -> str | None:
    """The leaf's meaning."""
    text = None if page.diagnosis is None else page.diagnosis.meaning
    return clean(text) if text else None
