"""The lines under line 1: since, cause, change or do, cost, undo, also. Pure; reads a page's JSON.

Only what a person acts on: what is unknown and changes no decision is ``driftwatch explain``'s.
Texts are plain, not escaped: that is the renderer's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from driftwatch.notify.advice import advice_lines, few, settings_line, settings_to_give
from driftwatch.notify.headline import complaints
from driftwatch.notify.numbers import clean, cut
from driftwatch.notify.page_values import Line, Page, form_of, instant, leaf
from driftwatch.notify.phrases.fill import fill
from driftwatch.notify.phrases.limits import full
from driftwatch.notify.verification_line import changed_text, verification_line

LINE_LIMIT = 300


def lines(page: Page) -> tuple[Line, ...]:
    """The body of a page, in reading order."""
    if page["test"]:
        return (Line("Test", "nothing is wrong; the receiver works", weight=9),)
    of_event = {"resolved": _resolved, "verified": _verified, "acknowledged": _acknowledged}
    written = of_event.get(page["event"], _firing)(page)
    return tuple(replace(line, text=cut(line.text, LINE_LIMIT)) for line in written)


def _firing(page: Page) -> Iterator[Line]:
    # of an update what was measured stands on the page before
    is_first = page["event"] == "firing"
    yield from _occasion(page)
    if (changed := page.get("changed")) is not None:
        yield Line("Changed", clean(changed), instant(page, "evaluated_at"), weight=9)
    concerned = page.get("concerned") or {}
    since = next(fill(page, form_of(page)["since"]), "")
    if concerned and 1 < concerned["targets"] < concerned["of_targets"]:
        on = f"on {few(concerned['first'], concerned['targets'])}"
        since = f"{on}; {since}" if since else on
    yield Line("Since", since, instant(page, "started_at"), weight=9)
    if is_first and (cause := _cause(page)) is not None:
        yield Line("Cause", cause, weight=7)
    yield from advice_lines(page)
    if (settings := settings_line(page)) is not None:
        yield Line("Settings", settings, weight=8)
    advised = page["recommendation"] or {}
    also = [*(advised.get("not_cured") or ()), *(advised.get("instead") or ())[1:]]
    if (other := page.get("answered_by")) is not None:
        also.insert(0, f"the same answer as that of {other['alert']} ({other['incident'][:8]})")
    if is_first and not also and advised.get("action") != "no_action":
        also = [text for one in form_of(page)["also"] for text in fill(page, [one])]
    if also:
        yield Line("Also", "; ".join(map(clean, also)), weight=4)


def _acknowledged(page: Page) -> Iterator[Line]:
    """What who took it wrote."""
    acknowledgement = page["acknowledgement"]
    if comment := clean(acknowledgement["comment"]):
        yield Line("Comment", comment, weight=9)
    yield Line("Until", "it resolves", weight=8)


def _occasion(page: Page) -> Iterator[Line]:
    """Why a page that was sent before is sent now."""
    if page["event"] == "unacknowledged" and (comment := page["acknowledgement"]["comment"]):
        yield Line("Comment", clean(comment), weight=9)
    if (measured := instant(page, "measured_at")) is not None:
        yield Line("Measured", "", measured, weight=6)


def _cause(page: Page) -> str | None:
    """Why: the inputs that the walk lacks, else the first of the rule's causes that is known."""
    if settings := settings_to_give(page):
        lacking = " and ".join(settings)
        return f"not determined: without {lacking} driftwatch cannot tell which limit is full"
    if leaf(page) == "undetermined":
        entries = {name: page["evidence"].get(name, {}) for name in page["diagnosis"]["missing"]}
        whys = [f"{n} is unknown ({one.get('reason') or 'no data'})" for n, one in entries.items()]
        return f"not determined: {clean('; '.join(whys)) or 'an input is unknown'}"
    return next(fill(page, form_of(page)["cause"]), None)


def _resolved(page: Page) -> Iterator[Line]:
    yield _was(page)
    if (document := page.get("verification")) is not None:
        ended = instant(page, "resolved_at")
        today = ended.date() if ended is not None else None
        yield Line("Verified", verification_line(document, today), weight=8)


def _verified(page: Page) -> Iterator[Line]:
    """What came of the change that the page had advised."""
    document = page["verification"]
    at = datetime.fromisoformat(document["change"]["at"])
    yield Line("Verified", verification_line(document, at.date()), weight=9)
    yield Line("Changed", changed_text(document), at, weight=8)
    yield _was(page)
    if (ended := instant(page, "resolved_at")) is not None:
        yield Line("Until", "", ended, weight=6)


def _was(page: Page) -> Line:
    """What the page said, in the past tense."""
    bad, limit = complaints(page)[0], full(page)
    text = bad if limit is None or bad.startswith(limit) else f"{bad}; {limit}"
    return Line("Was", text, weight=9)
