"""The lines under line 1: since, cause, change or do, cost, undo, also. Pure; reads a page's JSON.

Only what a person acts on: what is unknown and changes no decision is ``driftwatch explain``'s.
Texts are plain, not escaped: that is the renderer's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from driftwatch.notify.advice import advice_lines
from driftwatch.notify.headline import complaints
from driftwatch.notify.numbers import clean, cut
from driftwatch.notify.page_values import Line, Page, form_of, instant, leaf
from driftwatch.notify.phrases.fill import fill
from driftwatch.notify.verification_line import changed_text, verification_line

LINE_LIMIT = 300


def lines(page: Page) -> tuple[Line, ...]:
    """The body of a page, in reading order."""
    if page["test"]:
        return (Line("Test", "nothing is wrong; the receiver works", weight=9),)
    written = {"resolved": _resolved, "verified": _verified}.get(page["event"], _firing)(page)
    return tuple(replace(line, text=cut(line.text, LINE_LIMIT)) for line in written)


def _firing(page: Page) -> Iterator[Line]:
    if (changed := page.get("changed")) is not None:
        yield Line("Changed", clean(changed), instant(page, "evaluated_at"), weight=9)
    concerned = page.get("concerned") or {}
    if page["event"] == "firing" and (names := concerned.get("told_before")):
        noun = "page" if len(names) == 1 else "pages"
        text = f"the {noun} of {_few(names, len(names))}: now several servers, act on this page"
        yield Line("Continues", text, weight=9)
    since = next(fill(page, form_of(page)["since"]), "")
    if concerned and 1 < concerned["targets"] < concerned["of_targets"]:
        which = f"on {_few(concerned['first'], concerned['targets'])}"
        since = f"{which}; {since}" if since else which
    yield Line("Since", since, instant(page, "started_at"), weight=9)
    # of an update what was measured stands on the page before
    if page["event"] == "firing" and (cause := _cause(page)) is not None:
        yield Line("Cause", cause, weight=7)
    yield from advice_lines(page)
    advised = page["recommendation"] or {}
    also = [clean(text) for text in advised.get("not_cured") or ()]
    if page["event"] == "firing":
        also += [text for one in form_of(page)["also"] for text in fill(page, [one])]
    if also:
        yield Line("Also", "; ".join(also), weight=4)


def _few(names: list[str], total: int) -> str:
    more = f" and {total - len(names)} more" if total > len(names) else ""
    return f"{', '.join(map(clean, names))}{more}"


def _cause(page: Page) -> str | None:
    """Why: the inputs that the walk lacks, else the first of the rule's causes that is known."""
    if leaf(page) == "undetermined":
        missing = page["diagnosis"]["missing"]
        evidence = page["evidence"]
        return "not determined: " + "; ".join(
            f"{name}: {clean(evidence.get(name, {}).get('reason') or 'unknown')}"
            for name in missing
        )
    return next(fill(page, form_of(page)["cause"]), None)


def _resolved(page: Page) -> Iterator[Line]:
    yield Line("Since", "", instant(page, "started_at"), weight=6)
    if page.get("resolved_reason"):
        yield Line("Was", complaints(page)[0], weight=9)
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
    yield Line("Since", "", instant(page, "started_at"), weight=6)
    if (ended := instant(page, "resolved_at")) is not None:
        yield Line("Until", "", ended, weight=6)
    yield Line("Was", complaints(page)[0], weight=7)
