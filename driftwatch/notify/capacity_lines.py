"""How much of its capacity a server or its twins use. Pure; reads a page's JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from driftwatch.notify.numbers import figure, percent
from driftwatch.notify.page_values import Page, reference_values, value

_DERIVED_FROM = ("ttft_seconds_p95", "tpot_seconds_p95")


def load_text(page: Page) -> str | None:
    """``load 73 % of capacity 11.0 req/s (pin: 52 %)``; None where no replay said it."""
    used = value(page, "utilization_ratio")
    if used is None:
        return None
    limit = value(page, "capacity_requests_per_second")
    size = "" if limit is None else f" {figure(limit)} req/s"
    before = _before(page, limit)
    then = "" if before is None else f" (reference: {percent(before)})"
    if not _has_target(page):
        # capacity is what a full server serves, and one may wait well below it
        return f"load {percent(used)} of {size.strip() or 'what it serves'} when full{then}"
    return f"load {percent(used)} of capacity{size}{then}"


def _has_target(page: Page) -> bool:
    """A target is configured, or can be derived from the reference's latencies."""
    derived = (reference_values(page).get(name) for name in _DERIVED_FROM)
    return page["slo"] is not None or any(value is not None for value in derived)


def _before(page: Page, limit: float | None) -> float | None:
    """The reference's load: its rate over the capacity at its lengths."""
    rate = reference_values(page).get("requests_per_second")
    ratio = value(page, "capacity_ratio")
    if not limit or not ratio or not isinstance(rate, int | float):
        return None
    return float(rate) * float(ratio) / limit


def room_text(page: Page) -> str | None:
    """``the other 7 at 60 % of capacity (now 52 %)``: what the twins take over when it is drained.

    None where no replay said how much of its capacity a twin uses.
    """
    twins: Mapping[str, Any] | None = page.get("twins")
    if not twins or twins.get("utilization_ratio") is None:
        return None
    others = round(twins["of_targets"]) - 1
    if others < 1:
        return None
    now = twins["utilization_ratio"]
    then = now * (others + 1) / others
    who = "the other one" if others == 1 else f"the other {others}"
    over = "" if then <= 1 else "; they cannot take it"
    return f"{who} at {percent(then)} of capacity (now {percent(now)}){over}"
