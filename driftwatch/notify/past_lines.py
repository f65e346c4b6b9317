"""Lines of a page that need a past: speed, what throughput is made of, what would be seen. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from typing import Any

from driftwatch.notify.attribution import attribution_text, lengths_text, signals_text
from driftwatch.notify.detectable import EVERYTHING, detectable_text
from driftwatch.notify.line import Line
from driftwatch.notify.numbers import clean, is_as_before
from driftwatch.notify.page_values import Page, reference_values, value
from driftwatch.notify.speed_lines import (
    SPEED_ALERTS,
    calibration_text,
    hidden_text,
    seen_text,
    trend_lines,
)
from driftwatch.notify.wording import moved

_STEMS = ("prompt", "generation")
# of a change in line 1, in logarithms: so much of it must be in the window whose mass is named
_MOST_OF_IT = 0.5
# what the end of an alert says is as before
_OF = {
    **dict.fromkeys((*SPEED_ALERTS, "LatencyCreep"), ("speed",)),
    **dict.fromkeys(
        ("LengthDrift", "TrafficShift", "UnevenTraffic", "RetuneAdvised"),
        ("prompts", "generations"),
    ),
}


def speed_lines(page: Page) -> Iterator[Line]:
    """Of slowness: the step now and expected, what hides it, whose past judged it."""
    if page["alert"] == "LatencyCreep":
        for text in trend_lines(page):
            yield Line("Seen", text, weight=7)
    if page["alert"] not in SPEED_ALERTS:
        return
    for label, said, weight in (
        ("Seen", seen_text(page), 8),
        ("Hidden", hidden_text(page), 7),
        ("Judged", calibration_text(page), 2),
    ):
        if said:
            yield Line(label, said, weight=weight)


def made_of(page: Page) -> Iterator[Line]:
    """What the change of throughput is made of, and which lengths gained and lost."""
    if page["alert"] in ("CoverageLost", "GpuLost", "EngineStuck", "LatencyCreep", "RetuneAdvised"):
        return
    now, reasons = _row(page)
    before = reference_values(page)
    if before:
        lengths = f"{lengths_text(now)}; " if page["alert"] in SPEED_ALERTS else ""
        yield Line("Signals", lengths + signals_text(now, before, reasons), weight=1)
    yield from as_before(page)
    yield Line("Made of", attribution_text(now, before, reasons), weight=1)
    yield from moved_mass(page)


def moved_mass(page: Page) -> Iterator[Line]:
    """Which lengths gained and lost most of the share, where that is of the change in line 1.

    Line 1 may be of the last 2 min or against another past: the mass is of the page's window
    against the reference, and most of that may still be from before the change.
    """
    for stem in _STEMS:
        mass, factor = value(page, f"{stem}_tokens_moved"), moved(page, stem) or 1.0
        if not mass or is_as_before(factor):
            continue
        of_window = value(page, f"{stem}_tokens_mean_ratio")
        if of_window is None or log(of_window) / log(factor) >= _MOST_OF_IT:
            yield Line("Moved", f"{stem}s: {clean(mass)}", weight=1)


def as_before(page: Page) -> Iterator[Line]:
    """Beside "as before" on a page that fires: how small a change of it would not be seen."""
    known = {stem: moved(page, stem) for stem in _STEMS}
    still = [f"{stem}s" for stem, ratio in known.items() if ratio and is_as_before(ratio)]
    if still:
        yield Line("Not seen", detectable_text(*_row(page), still), weight=1)


def not_seen(page: Page) -> Iterator[Line]:
    """Beside "it is over": how small a change would still not be seen."""
    if page["alert"] in ("CoverageLost", "GpuLost", "EngineStuck", "DeferredAdmission"):
        return
    if page.get("resolved_reason"):
        return
    now, reasons = _row(page)
    of = _OF.get(page["alert"], EVERYTHING)
    yield Line("Not seen", detectable_text(now, reasons, of), weight=2)


def _row(page: Page) -> tuple[dict[str, Any], dict[str, str]]:
    """Column → value, and column → reason, of what the page carries."""
    entries = page["evidence"]
    reasons = {name: entry["reason"] for name, entry in entries.items() if entry.get("reason")}
    return {name: entry["value"] for name, entry in entries.items()}, reasons
