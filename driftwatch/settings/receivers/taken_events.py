"""Which messages receivers that know alerts alone ignore. Pure."""

from __future__ import annotations

from collections.abc import Mapping

_NO_ALERTS = frozenset(("verified", "report"))

# form of receiver (its kind; of a webhook in another format with that) → events that it ignores;
# other forms take every event
_IGNORED: Mapping[str, frozenset[str]] = {
    # after its resolve a trigger would open a new alert, so PagerDuty hears no verdict
    "pagerduty": _NO_ALERTS,
    # Alertmanager repeats by itself
    "alertmanager": _NO_ALERTS | {"repeat"},
    "webhook, format alertmanager": _NO_ALERTS | {"acknowledged", "unacknowledged"},
}

# forms that know an alert by its labels alone: a resolve ends whatever has them by then
BY_LABELS = frozenset(("alertmanager", "webhook, format alertmanager"))

# kinds that wake people: by default they take no ticket
PAGES_ONLY = frozenset(("pagerduty",))


def takes(form: str, event: str, number: int = 0) -> bool:
    """Whether receivers of a form take a message; ``number``: above 0, of a firing page: a repeat.

    What a receiver does not take is neither planned nor sent.
    """
    name = "repeat" if event == "firing" and number else event
    return name not in _IGNORED.get(form, frozenset())
