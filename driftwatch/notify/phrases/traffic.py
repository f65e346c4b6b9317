"""Phrases of lengths, rates and times. Pure; None = the page does not hold it."""

from __future__ import annotations

from datetime import datetime, timedelta

from driftwatch.notify.page_values import (
    Page,
    evaluated,
    form_of,
    instant,
    is_over,
    reference_values,
    value,
    verb,
)
from driftwatch.numbers import is_as_before, moment, percent, plural, times, tokens

_STEMS = ("prompt", "generation")


def length_ratio(page: Page, stem: str) -> float | None:
    """A mean length over the one that the rule compares with."""
    ratio = value(page, f"{stem}_tokens_{form_of(page)['lengths']}_ratio")
    return None if ratio is None else float(ratio)


def _ratios(page: Page) -> dict[str, float]:
    """Each length that is compared, the one that the rule is about first."""
    signal = page["target"].get("signal", "")
    stems = sorted(_STEMS, key=lambda stem: not signal.startswith(stem))
    return {stem: ratio for stem in stems if (ratio := length_ratio(page, stem)) is not None}


def _moved(page: Page) -> dict[str, float]:
    return {stem: ratio for stem, ratio in _ratios(page).items() if not is_as_before(ratio)}


def _rate(page: Page) -> str | None:
    ratio = value(page, "requests_per_second_ratio")
    if ratio is None or is_as_before(ratio):
        return None
    return (
        f"requests fell by {percent(1 - ratio)}" if ratio < 1 else f"requests grew {times(ratio)}"
    )


def moved(page: Page) -> str | None:
    """``prompts are ×2.3 longer``; the rate where no length moved."""
    parts = [
        f"{stem}s {verb(page, 'are', 'were')} {times(ratio)} {'longer' if ratio > 1 else 'as long'}"
        for stem, ratio in _moved(page).items()
    ]
    return " and ".join(parts) or _rate(page)


def unchanged(page: Page) -> str | None:
    """``generations unchanged``."""
    same = [f"{stem}s" for stem, ratio in _ratios(page).items() if is_as_before(ratio)]
    return f"{' and '.join(same)} unchanged" if same else None


def means(page: Page) -> str | None:
    """``211 → 338 tokens``, of the first length that moved."""
    for stem, ratio in _moved(page).items():
        if (before := reference_values(page).get(f"{stem}_tokens_mean")) is not None:
            return f"{tokens(before)} → {tokens(before * ratio)} tokens"
    return None


def lengths(page: Page) -> str | None:
    """``prompts grew ×2.3 (mean 512 → 1,200 tokens in 87,000 requests)``; the rate if it moved."""
    parts: list[str] = []
    for stem, ratio in _moved(page).items():
        before = reference_values(page).get(f"{stem}_tokens_mean")
        now, n = value(page, f"{stem}_tokens_mean"), value(page, "finished_requests")
        detail = []
        if now is not None:
            was = "" if before is None else f"{tokens(before)} → "
            detail.append(f"mean {was}{tokens(now)} tokens")
        if n and not parts:
            detail.append(f"in {plural(n, 'request')}")
        verb_ = "grew" if ratio > 1 else "shrank to"
        parts.append(f"{stem}s {verb_} {times(ratio)}" + f" ({' '.join(detail)})" * bool(detail))
    return ", ".join(filter(None, (*parts, _rate(page)))) or unchanged(page)


def baseline(page: Page) -> str | None:
    """The day of the baseline."""
    since = (page["reference"] or {}).get("from")
    return None if since is None else f"{datetime.fromisoformat(since):%Y-%m-%d}"


def began(page: Page) -> str | None:
    """When it began; None once it is over, when line 1 says it."""
    at = instant(page, "started_at")
    return None if at is None or is_over(page) else moment(at, evaluated(page).date())


def began_14d(page: Page) -> str:
    """The day 14 days ago, ``4 Nov``."""
    day = evaluated(page) - timedelta(days=14)
    return f"{day.day} {day:%b}"
