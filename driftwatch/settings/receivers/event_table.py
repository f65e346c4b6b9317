"""What each kind of receiver does with each event: the one table. Pure.

``sends``: a message of its own; ``updates``: what the receiver has of the incident changes, nobody
is notified anew; ``ignores``: nothing is planned, and nothing is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Handling = Literal["sends", "updates", "ignores"]

# the rows: events of messages, and what a firing page can be besides the first one
EVENTS: Mapping[str, str] = {
    "firing": "an incident fires",
    "repeat": "nobody acknowledged it",
    "advised": "later advice",
    "acknowledged": "somebody takes it",
    "unacknowledged": "nobody has it",
    "resolved": "it is over",
    "verified": "verdict on the change",
    "report": "a week",
    "ending": "a silence ends soon",
    "change": "another setting or release",
    "test": "`notify test`",
}

_ALL: Mapping[str, Handling] = dict.fromkeys(EVENTS, "sends")
_INCIDENTS_ONLY: Mapping[str, Handling] = {
    **dict.fromkeys(EVENTS, "ignores"),
    **dict.fromkeys(("firing", "resolved", "test"), "sends"),
}

# form of receiver (its kind; of a webhook in another format with that) → event → what it does
TABLE: Mapping[str, Mapping[str, Handling]] = {
    "slack": _ALL,
    # one message, edited; its thread and the channel hear of a repeat
    "slack, app": {
        **_ALL,
        **dict.fromkeys(("advised", "acknowledged", "resolved", "verified"), "updates"),
    },
    # after its resolve a trigger would open a new alert, so PagerDuty hears no verdict
    "pagerduty": {
        **_INCIDENTS_ONLY,
        **dict.fromkeys(("repeat", "advised", "acknowledged", "unacknowledged"), "updates"),
        "change": "sends",
    },
    # Alertmanager repeats by itself
    "alertmanager": {
        **_INCIDENTS_ONLY,
        **dict.fromkeys(("advised", "acknowledged", "unacknowledged"), "updates"),
    },
    "email": _ALL,
    "webhook": _ALL,
    "webhook, format alertmanager": {**_INCIDENTS_ONLY, "repeat": "sends", "advised": "updates"},
    "apprise": _ALL,
    "stdout": _ALL,
}

# forms that know an alert by its labels alone: a resolve ends whatever has them by then
BY_LABELS = frozenset(("alertmanager", "webhook, format alertmanager"))

# kinds that wake people: by default they take no ticket
PAGES_ONLY = frozenset(("pagerduty",))


def row_of(event: str, number: int, reason: str, payload: Mapping[str, Any]) -> str:
    """The row of :data:`EVENTS` that a message belongs to.

    ``event``, ``number``, ``reason``, ``payload``: of the message.
    """
    if payload.get("test") and event == "firing":
        return "test"
    if event != "firing":
        return event
    return "repeat" if number else "firing"


def handling(form: str, row: str) -> Handling:
    """What a receiver does with an event; one that the table does not know is sent to nobody."""
    return TABLE[form].get(row, "ignores")


def as_markdown() -> str:
    """The table, as the docs print it."""
    marks: Mapping[Handling, str] = {"sends": "●", "updates": "○", "ignores": ""}
    rows = [
        f"| `{event}`: {text} | " + " | ".join(marks[TABLE[form][event]] for form in TABLE) + " |"
        for event, text in EVENTS.items()
    ]
    return "\n".join([f"| event | {' | '.join(TABLE)} |", "|---" * (len(TABLE) + 1) + "|", *rows])
