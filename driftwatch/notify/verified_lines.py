"""Lines of follow-ups: a verdict, an answer that replaces another. Pure; reads a page's JSON."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from driftwatch.notify.line import Line
from driftwatch.notify.page_values import Page, instant
from driftwatch.notify.verification_line import changed_text, verification_line
from driftwatch.notify.wording import complaints


def verified_lines(page: Page) -> Iterator[Line]:
    """What came of the change that the page had advised."""
    document = page["verification"]
    at = datetime.fromisoformat(document["change"]["at"])
    yield Line("Verified", verification_line(document, at.date()), weight=9)
    yield Line("Changed", changed_text(document), at, weight=8)
    yield Line("Since", "", instant(page, "started_at"), weight=6)
    if (ended := instant(page, "resolved_at")) is not None:
        yield Line("Until", "", ended, weight=6)
    yield Line("Was", complaints(page, past=True)[0], weight=7)


def withdrawn_lines(page: Page) -> Iterator[Line]:
    """Of an ``UPDATE`` that replaces another answer: which one holds, and since when."""
    told = page.get("withdrawn")
    if page["event"] != "advised" or told is None:
        return
    text = 'said "no knob helps", by the first minutes of the drift; that no longer holds'
    yield Line("Before", text, datetime.fromisoformat(told["at"]), weight=8)
    text = "the answer, with capacity and load; what was seen is of the page before"
    yield Line("Now", text, instant(page, "evaluated_at"), weight=8)
