"""A view as HTML: the templates, sandboxed and escaping, and what every page has around it."""

from __future__ import annotations

import hashlib
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import PackageLoader, StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from driftwatch import numbers
from driftwatch.notify.page import http_url
from driftwatch.notify.path import short_reason

# of numbers and texts, as every other screen writes them
_FILTERS = (*("clean", "count", "cut", "duration", "percent", "plural", "squeeze", "utc_text"),)
# of one text on a page: a label has no bound of its own
_LONGEST_TEXT = 8_000


@cache
def style_sheet() -> tuple[str, bytes]:
    """The style sheet's name, another for another content, and its bytes."""
    css = (files("driftwatch.web") / "static" / "driftwatch.css").read_bytes()
    css += (files("driftwatch.plots") / "plot.css").read_bytes()
    return f"driftwatch-{hashlib.sha256(css).hexdigest()[:12]}.css", css


@cache
def _templates() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        loader=PackageLoader("driftwatch.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_harmless,
    )
    environment.filters |= {name: getattr(numbers, name) for name in _FILTERS}
    environment.filters |= {"web_address": http_url, "short_reason": _short}
    return environment


def html_of(template: str, *, now: datetime, **context: Any) -> str:
    """A template with its values, ``view`` among them; times are told as on every screen."""

    def moment(at: datetime) -> str:
        return numbers.moment(at, now.date())

    parts = {"now": now, "moment": moment, "style": style_sheet()[0], **context}
    return _templates().get_template(template).render(parts)


def _harmless(value: object) -> object:
    """What a template prints, before it is escaped: bounded, control characters spelt out."""
    if type(value) is not str:  # markup is made of texts that went through here
        return value
    text = numbers.cut(value, _LONGEST_TEXT)
    if text.isprintable():
        return text
    return "\n".join(map(numbers.clean, text.split("\n")))


def _short(reason: str) -> str:
    """Why, without how to mend it and what follows from it: JSON has the whole reason."""
    return short_reason(reason).split("; ")[0]
