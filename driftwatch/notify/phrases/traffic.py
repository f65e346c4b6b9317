"""Phrases of lengths, rates and times. Pure; None = does not apply."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from driftwatch.notify.page import Page
from driftwatch.notify.phrases.limits import MANY_GAVE_UP, limits_of
from driftwatch.numbers import is_as_before, moment, percent, plural, times, tokens

_STEMS = ("prompt", "generation")


def length_ratio(page: Page, stem: str) -> float | None:
    """A mean length over the one that the rule compares it with."""
    ratio = page.value(f"{stem}_tokens_{page.lengths}_ratio")
    return None if ratio is None else float(ratio)


def _ratios(page: Page) -> dict[str, float]:
    """Length → ratio; the rule's own length first."""
    signal = page.labels.get("signal", "")
    stems = sorted(_STEMS, key=lambda stem: not signal.startswith(stem))
    known = {stem: ratio for stem in stems if (ratio := length_ratio(page, stem)) is not None}
    if known.get("generation", 1.0) < 1 and many_never_finish(page.value):
        del known["generation"]  # only short ones finished: no drift
    return known


def many_never_finish(value: Callable[[str], Any]) -> bool:
    """Whether many requests never finish, so that finished ones are the short ones.

    ``value``: evidence column → its value, None where unknown.
    """
    return (value("given_up_10m_low_ratio") or 0.0) >= MANY_GAVE_UP or any(
        (value(f"{name}_in_target_10m_ratio") or 1.0) < 0.5 and value("slo_missed")
        for name in ("ttft", "tpot")
    )


def _moved(page: Page) -> dict[str, float]:
    return {stem: ratio for stem, ratio in _ratios(page).items() if not is_as_before(ratio)}


def rate(page: Page) -> str | None:
    """``requests grew ×1.9``; None where they are as in the baseline, or unknown."""
    ratio = _requests_ratio(page)
    if ratio is None or is_as_before(ratio):
        return None
    return (
        f"requests fell by {percent(1 - ratio)}" if ratio < 1 else f"requests grew {times(ratio)}"
    )


def _requests_ratio(page: Page) -> float | None:
    """The arrival rate over the baseline's; None = unknown. While a limit is full, others finish
    than arrive: then count the arrivals of fresh advice, else finished plus given-up requests.
    """
    ratio, done = page.value("requests_per_second_ratio"), page.value("requests_per_second")
    if not ratio or not done or not any(one.binds for one in limits_of(page)):
        return None if ratio is None else float(ratio)
    advice, seconds = page.advice, page.value("observed_10m_seconds")
    lost = (page.value("given_up_requests_10m") or 0.0) / max(page.servers.concerned, 1)
    arrived = done + lost / seconds if seconds and lost else None
    offered = None if advice is None else advice.offered_requests_per_second
    if advice is not None and offered and advice.at is not None:
        is_fresh = advice.at + timedelta(minutes=2) >= page.times.measured_at
        arrived = offered if is_fresh else arrived
    return None if arrived is None else float(ratio * arrived / done)


def moved(page: Page) -> str | None:
    """``prompts are ×2.3 as long``; the rate where no length moved."""
    parts = [f"{stem}s are {times(ratio)} as long" for stem, ratio in _moved(page).items()]
    return " and ".join(parts) or rate(page)


def unchanged(page: Page) -> str | None:
    """``generations unchanged``; None where nothing moved: then ``lengths`` has it."""
    return _same(page) if moved(page) else None


def _same(page: Page) -> str | None:
    same = [f"{stem}s" for stem, ratio in _ratios(page).items() if is_as_before(ratio)]
    return f"{' and '.join(same)} unchanged" if same else None


def means(page: Page) -> str | None:
    """``211 → 338 tokens``, of the first length that moved."""
    for stem, ratio in _moved(page).items():
        if (before := page.baseline_values.get(f"{stem}_tokens_mean")) is not None:
            return f"{tokens(before)} → {tokens(before * ratio)} tokens"
    return None


def lengths(page: Page) -> str | None:
    """``prompts grew ×2.3 (mean 512 → 1,200 tokens in 87,000 requests)``; the rate if it moved."""
    parts: list[str] = []
    for stem, ratio in _moved(page).items():
        before = page.baseline_values.get(f"{stem}_tokens_mean")
        now, n = page.value(f"{stem}_tokens_mean"), page.value("finished_requests")
        detail = []
        if now is not None:
            was = "" if before is None else f"{tokens(before)} → "
            detail.append(f"mean {was}{tokens(now)} tokens")
        if n and not parts:
            detail.append(f"in {plural(n, 'request')}")
        verb_ = "grew" if ratio > 1 else "shrank to"
        at = page.lengths_moved_at.get(stem, page.times.started_at)
        day = page.times.evaluated_at.date()
        when = f" at {moment(at, day)}" if at < page.times.started_at else ""
        detail_text = f" ({' '.join(detail)})" if detail else ""
        parts.append(f"{stem}s {verb_} {times(ratio)}{when}{detail_text}")
    # fewer requests do not explain longer ones: a night is quieter than the baseline's day
    demand = None if parts and (_requests_ratio(page) or 1.0) < 1 else rate(page)
    return ", ".join(filter(None, (*parts, demand))) or _same(page)


def baseline(page: Page) -> str | None:
    """The baseline's day."""
    since = None if page.baseline is None else page.baseline.since
    return None if since is None else f"{since:%Y-%m-%d}"


def began(page: Page) -> str | None:
    """The incident's start."""
    return moment(page.times.started_at, page.times.evaluated_at.date())


def began_14d(page: Page) -> str:
    """The day 14 days ago, ``4 Nov``."""
    day = page.times.evaluated_at - timedelta(days=14)
    return f"{day.day} {day:%b}"
