"""What a change brings and costs, and how to go back. Pure; reads a page's JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from driftwatch.knobs import KNOBS
from driftwatch.notify.advice import why_of
from driftwatch.notify.line import Line
from driftwatch.notify.numbers import clean
from driftwatch.notify.page_values import Page

_NOT_FORECAST = "how much TTFT gains is not forecast"


def advice_lines(page: Page) -> Iterator[Line]:
    """Why a setting changes, what that brings and costs, and when the replay is asked again."""
    advised = page["recommendation"]
    if advised is None:
        return
    if (again := page.get("asked_again_at")) is not None:
        told = "the replay is asked again, and every 10 min while this fires"
        yield Line("Next", told, datetime.fromisoformat(again), weight=4)
    if advised["action"] == "change":
        if advised.get("basis") != "simulation":
            yield Line("Why", why_of(advised), weight=1)
        yield Line("Effect", _effect(advised), weight=7)
    price = "; ".join(clean(cost) for cost in advised["price"])
    undo = f"Undo: {clean(advised['undo'])}" if advised["undo"] else ""
    if price or undo:
        yield Line("Price", ". ".join(filter(None, (price.rstrip("."), undo))), weight=7)
    if lost := advised.get("not_cured"):
        yield Line("Not cured", "; ".join(map(clean, lost)), weight=5)
    if advised["wrong_if"]:
        yield Line("Wrong if", clean(advised["wrong_if"]), weight=6)
    if advised["action"] == "change" and page["alert"] == "RetuneAdvised":
        yield Line("Then", "no hurry; pin again when it has run for a day", weight=6)


def _effect(advised: Mapping[str, Any]) -> str:
    """What a change is forecast to bring; without a forecast what it does."""
    if told := advised.get("effect"):
        return "; ".join(map(clean, told))
    knob = KNOBS.get(advised["knob"])
    return f"{knob.more}; {_NOT_FORECAST}" if knob else _NOT_FORECAST
