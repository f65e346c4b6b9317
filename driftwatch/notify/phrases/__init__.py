"""Fills a rule's templates from the page's values. Pure.

A function of a phrase's name in one of these modules makes its text; rulebook/values.py lists the
names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from driftwatch.evidence import BY_NAME
from driftwatch.notify.columns import evidence_value
from driftwatch.notify.page import Page
from driftwatch.notify.phrases import limits, speed, traffic
from driftwatch.rulebook.values import PHRASES

_NAME = re.compile(r"\{(\w+)\}")
_MODULES = (limits, speed, traffic)
_FUNCTIONS: dict[str, Callable[[Page], str | None]] = {
    name: getattr(next(one for one in _MODULES if hasattr(one, name)), name) for name in PHRASES
}


def fill(page: Page, templates: Iterable[str]) -> Iterator[str]:
    """The templates whose names all have a value on this page, filled, in order."""
    for template in templates:
        texts = {name: _text(page, name) for name in _NAME.findall(template)}
        if None not in texts.values():
            yield _NAME.sub(lambda match, texts=texts: str(texts[match[1]]), template)  # type: ignore[misc]


def _text(page: Page, name: str) -> str | None:
    if name in _FUNCTIONS:
        return _FUNCTIONS[name](page)
    amount = page.value(name) if name in BY_NAME else None
    return None if amount is None else evidence_value(name, amount)
