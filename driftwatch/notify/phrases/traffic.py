"""Phrases of lengths, rates and times. Pure; None = the page does not hold it."""

from __future__ import annotations

from datetime import datetime

from driftwatch.notify.numbers import (
    change,
    is_as_before,
    moment,
    plural,
    times,
    tokens,
)
from driftwatch.notify.page_values import (
    Page,
    evaluated,
    form_of,
    instant,
    reference_values,
    value,
)

_STEMS = ("prompt", "generation")


def length_ratio(page: Page, stem: str) -> float | None:
    """A mean length over the one that the rule compares with."""
    ratio = value(page, f"{stem}_tokens_{form_of(page)['lengths']}_ratio")
    return None if ratio is None else float(ratio)


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
    every = [(stem, length_ratio(page, stem)) for stem in _stems(page)]
    ratios = [(stem, ratio) for stem, ratio in every if ratio is not None and _is_moved(ratio)]
    parts = []
    for longer in (True, False):
        these = [f"{stem}s are {times(r)}" for stem, r in ratios if (r > 1) is longer]
        if these:
            both = " and ".join((these[0], *(text.replace("s are", "s") for text in these[1:])))
            parts.append(f"{both} {'longer' if longer else 'as long'}")
    return ", ".join(parts) or _rate(page)


def unchanged(page: Page) -> str | None:
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
    parts += [text for text in (unchanged(page), _rate(page)) if text]
    return ", ".join(parts) or None


def baseline(page: Page) -> str | None:
    """The day of the baseline."""
    since = (page["reference"] or {}).get("from")
    return None if since is None else f"{datetime.fromisoformat(since):%Y-%m-%d}"


def began(page: Page) -> str | None:
    """When it began."""
    at = instant(page, "started_at")
    return None if at is None else moment(at, evaluated(page).date())
