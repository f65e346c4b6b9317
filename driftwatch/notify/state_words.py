"""The first words of line 1: the state, and who changed it when. Pure; reads a page's JSON."""

from __future__ import annotations

from datetime import datetime

from driftwatch.notify.numbers import clean, duration, moment, squeeze
from driftwatch.notify.page_values import Page, evaluated, instant

NAME_LIMIT = 20

# event of an incident's later messages, or the reason of another page → its word
_AFTERWARDS = {
    "advised": "UPDATE",
    "verified": "VERIFIED",
    "acknowledged": "TAKEN",
    "unacknowledged": "NOT TAKEN",
    "repeat": "STILL FIRING",
}


def state_word(page: Page) -> str:
    """The word of the state; a page that ended without a recovery that was seen is closed."""
    if page["test"]:
        return "TEST"
    if page["event"] == "resolved":
        return "CLOSED" if page.get("resolved_reason") else "RESOLVED"
    word = {"page": "FIRING", "ticket": "TICKET", "notice": "NOTICE"}[page["severity"]]
    key = page["event"] if page["event"] != "firing" else page.get("reason", "first")
    return _AFTERWARDS.get(key, word)


def opening(page: Page) -> str:
    """The state in words, as it stands before the place."""
    word = state_word(page)
    details = {
        "TAKEN": _by_whom,
        "NOT TAKEN": _by_whom_not,
        "STILL FIRING": _how_long,
    }
    if page.get("acknowledgement") is not None:
        details["UPDATE"] = _still_taken
    detail = details.get(word)
    return word if detail is None else f"{word}{detail(page)} ·"


def _by_whom(page: Page) -> str:
    acknowledgement = page["acknowledgement"]
    return f" by {_name(page)} {_moment(page, acknowledgement['at'])}"


def _still_taken(page: Page) -> str:
    return f", TAKEN by {_name(page)} {_moment(page, page['acknowledgement']['at'])}"


def _by_whom_not(page: Page) -> str:
    at = _moment(page, page["acknowledgement"]["at"])
    return f": {_name(page)} gave it back {at}"


def _how_long(page: Page) -> str:
    began = instant(page, "started_at") or evaluated(page)
    return f" after {duration((evaluated(page) - began).total_seconds())}"


def _name(page: Page) -> str:
    return squeeze(clean(page["acknowledgement"]["by"]), NAME_LIMIT)


def _moment(page: Page, text: str) -> str:
    return moment(datetime.fromisoformat(text), evaluated(page).date())
