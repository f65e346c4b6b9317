"""Lines of follow-ups: a verdict, an answer that replaces another. Pure; reads a page's JSON."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from driftwatch.notify.line import Line
from driftwatch.notify.numbers import clean
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


def changed_line(page: Page) -> Iterator[Line]:
    """Of an ``UPDATE``: what is otherwise than on the page before, first of all."""
    if (changed := page.get("changed")) is not None:
        yield Line("Changed", clean(changed), instant(page, "evaluated_at"), weight=9)
