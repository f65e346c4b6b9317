"""A planned delivery → the JSON that its receiver is sent, with why it is sent now. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from driftwatch.incidents.delivery import PlannedDelivery
from driftwatch.incidents.occasion import Acknowledgement
from driftwatch.incidents.silence import Silence
from driftwatch.notify.headline import headline
from driftwatch.notify.numbers import utc_text


def payload_of(planned: PlannedDelivery) -> Mapping[str, Any]:
    """The JSON of one delivery. A page that goes out for the first time is as it was rendered."""
    occasion, page = planned.occasion, planned.payload
    if occasion is not None:
        page = {**page, "acknowledgement": acknowledgement_json(occasion)}
        if planned.event == "advised":
            page["summary"] = headline(page)
    is_again = planned.event == "firing" and planned.number
    if is_again or planned.event in ("acknowledged", "unacknowledged"):
        return _restated(page, planned)
    return page


def acknowledgement_json(one: Acknowledgement) -> dict[str, Any]:
    """Who took it, or gave it back."""
    return {
        "by": one.by,
        "at": utc_text(one.at),
        "comment": one.comment,
        "via": one.via,
    }


def _restated(page: Mapping[str, Any], planned: PlannedDelivery) -> dict[str, Any]:
    """The page once more: its numbers are of the minute that it was made in."""
    times = page["times"]
    new = {
        **page,
        "event": planned.event,
        "reason": planned.reason,
        "times": {
            **times,
            "evaluated_at": utc_text(planned.planned_at),
            "measured_at": times.get("measured_at", times["evaluated_at"]),
        },
    }
    if planned.event == "firing":
        new["repeat"] = planned.number
    new["summary"] = headline(new)
    return new


def silence_json(silence: Silence) -> dict[str, Any]:
    """A silence as it is stored, its matchers as people write them."""
    return {**asdict(silence), "matchers": [matcher.text for matcher in silence.matchers]}
