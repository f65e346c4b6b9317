"""A view as HTML: the templates, sandboxed and escaping, and what every page has around it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import PackageLoader, StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from starlette.responses import Response

from driftwatch.notify import numbers
from driftwatch.notify.page import http_url
from driftwatch.notify.path import short_reason
from driftwatch.plots.plot import Plot
from driftwatch.web.context import Web
from driftwatch.web.page import View
from driftwatch.web.visitor import KEY_FIELD, Visitor

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


def page_response(
    web: Web,
    visitor: Visitor,
    template: str,
    view: View,
    plots: Mapping[str, Plot | str],
    status: int = 200,
) -> Response:
    """The page as HTML; its forms have a key that tells one that is sent twice."""
    context: dict[str, Any] = {
        "view": view,
        "plots": plots,
        "root": web.root,
        "style": style_sheet()[0],
        "person": visitor.person,
        "people": web.people,
        "path": visitor.path,
        "form_field": KEY_FIELD,
        "form_token": web.nonce(),
        "now": visitor.now,
        "old_end": web.fleet.old_end(visitor.now),
        "moment": _moment(visitor.now),
        "navigation": _navigation(),
    }
    html = _templates().get_template(template).render(context)
    return Response(html, status, media_type="text/html; charset=utf-8")


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


def _moment(now: datetime) -> Any:
    """A time as on every screen: UTC, with its date unless it is today."""

    def moment(at: datetime) -> str:
        return numbers.moment(at, now.date())

    return moment


def _navigation() -> tuple[tuple[str, str], ...]:
    """(title, path) of the pages that every page links to."""
    from driftwatch.web.registry import pages

    placed = sorted((page.place, page.title, page.path) for page in pages() if page.place)
    return tuple((title, path) for _, title, path in placed)
