"""Single values of a page's JSON, see ``page.py``, and one line of its body. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from driftwatch.rulebook.page_form import PageForm

Page = Mapping[str, Any]


def value(page: Page, column: str) -> Any:
    """One evidence value of the page, None where it is unknown or not carried."""
    entry = page["evidence"].get(column)
    return None if entry is None else entry["value"]


def instant(page: Page, name: str) -> datetime | None:
    """One of the page's times (``started_at``, ``firing_at``, ...)."""
    text = page["times"].get(name)
    return None if text is None else datetime.fromisoformat(text)


def evaluated(page: Page) -> datetime:
    """When the page was made: its "today"."""
    return datetime.fromisoformat(page["times"]["evaluated_at"])


def reference_values(page: Page) -> Mapping[str, Any]:
    """Column → value of the reference the page compares with; empty without one."""
    values = (page["reference"] or {}).get("values")
    return values if isinstance(values, Mapping) else {}


def leaf(page: Page) -> str | None:
    """Where the diagnosis ended, None without one."""
    diagnosis = page["diagnosis"]
    return None if diagnosis is None else diagnosis["leaf"]


# where a stored page keeps how its rule wants it drawn; no receiver gets it
FORM = "form"
_USUAL = PageForm().model_dump()


def form_of(page: Page) -> Mapping[str, Any]:
    """How the page's rule wants it shown: the fields of :class:`PageForm`."""
    return {**_USUAL, **(page.get(FORM) or {})}


def public(page: Page) -> dict[str, Any]:
    """The page as receivers get it: without the templates that it is drawn with."""
    return {name: entry for name, entry in page.items() if name != FORM}


# cause of a diagnosis → the length that it is about
_LENGTHS = {"prompts": "prompt_tokens", "generations": "generation_tokens"}


def drifted_length(page: Page) -> str | None:
    """prompt_tokens or generation_tokens: what a drift's own page is about, else the cause."""
    signal, cause = page["target"].get("signal"), (page["diagnosis"] or {}).get("cause")
    return signal if signal in _LENGTHS.values() else _LENGTHS.get(str(cause))


def is_over(page: Page) -> bool:
    """Whether the page is about what ended."""
    return page["event"] in ("resolved", "verified")


def verb(page: Page, now: str, then: str) -> str:
    """A verb in the tense of the page: what resolved is over."""
    return then if is_over(page) else now


def many(page: Page) -> bool:
    """Whether the page is about several targets."""
    return int((page.get("concerned") or {}).get("targets", 1)) > 1


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a page's body."""

    label: str  # its first words, set bold in Slack
    text: str  # the rest, plain
    # a time that stands before the text, for a renderer that knows the reader's clock
    at: datetime | None = None
    weight: int = 5  # what is shed first where room is short (the smallest)
