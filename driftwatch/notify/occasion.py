"""A planned delivery → the JSON that its receiver is sent, with why it is sent now. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from driftwatch.incidents.delivery import PlannedDelivery
from driftwatch.incidents.occasion import Acknowledgement, EndingSilence
from driftwatch.incidents.silence import Silence
from driftwatch.model import Incident
from driftwatch.notify.headline import headline
from driftwatch.notify.layout import spell, wrap
from driftwatch.notify.numbers import clean, moment, plural, utc_text

NAMED_INCIDENTS = 10
EXTENDED_FOR = "2h"
_LABEL_WIDTH = 11


def payload_of(planned: PlannedDelivery) -> Mapping[str, Any]:
    """The JSON of one delivery. A page that goes out for the first time is as it was rendered."""
    occasion, page = planned.occasion, planned.payload
    if isinstance(occasion, EndingSilence):
        return _ending(occasion, planned.planned_at)
    if isinstance(occasion, Acknowledgement):
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


def _ending(occasion: EndingSilence, now: datetime) -> dict[str, Any]:
    silence, incidents = occasion.silence, occasion.incidents
    until = moment(silence.until, now.date())
    some = "1 alert" if len(incidents) == 1 else f"{len(incidents)} alerts"
    verb = "fires" if len(incidents) == 1 else "fire"
    rows = [
        {"label": "Held back" if at == 0 else "", "text": _line(incident)}
        for at, incident in enumerate(incidents[:NAMED_INCIDENTS])
    ]
    if (more := len(incidents) - NAMED_INCIDENTS) > 0:
        rows.append({"label": "", "text": f"and {plural(more, 'alert')} more"})
    why = f": {clean(silence.comment)}" if silence.comment else ""
    return {
        "schema_version": 1,
        "event": "ending",
        "test": False,
        "title": f"Silence {silence.id} ends {until}",
        "summary": f"SILENCE ends {until}: {some} that it holds back still {verb}",
        "lines": [
            *rows,
            {"label": "Silenced", "text": f"by {clean(silence.created_by)}{why}"},
            {"label": "Matches", "text": " ".join(one.text for one in silence.matchers)},
        ],
        "silence": silence_json(silence),
        "incidents": [
            {
                "id": incident.id,
                "alert": incident.alert,
                "severity": incident.severity,
                "target": dict(sorted(incident.target.items())),
                "summary": (incident.page or {}).get("summary"),
            }
            for incident in incidents[:NAMED_INCIDENTS]
        ],
        "incident_count": len(incidents),
        "links": {
            "command": f"driftwatch silence --extend {silence.id} --for {EXTENDED_FOR}",
        },
    }


def _line(incident: Incident) -> str:
    return clean(str((incident.page or {}).get("summary") or incident.alert))


def render_ending(document: Mapping[str, Any], *, width: int = 80, ascii: bool = False) -> str:
    """A silence that ends, as a terminal shows it, without a final newline."""
    texts = [document["summary"]]
    texts += [f"{line['label']:<{_LABEL_WIDTH}}{line['text']}" for line in document["lines"]]
    texts.append(f"{'next:':<{_LABEL_WIDTH}}{document['links']['command']}")
    indent = " " * _LABEL_WIDTH
    return "\n".join(row for text in texts for row in wrap(spell(text, ascii), width, indent))


def silence_json(silence: Silence) -> dict[str, Any]:
    """A silence as JSON values."""
    return {
        "id": silence.id,
        "matchers": [matcher.text for matcher in silence.matchers],
        "starts_at": utc_text(silence.starts_at),
        "until": utc_text(silence.until),
        "created_by": silence.created_by,
        "created_at": utc_text(silence.created_at),
        "comment": silence.comment,
        "expired_at": None if silence.expired_at is None else utc_text(silence.expired_at),
    }
