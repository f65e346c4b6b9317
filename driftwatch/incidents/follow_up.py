"""What receivers get of an incident after its page: the page once more, with what is new. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from driftwatch.incidents.incident import Incident
from driftwatch.incidents.planner import MessageAbout
from driftwatch.notify.headline import rendered
from driftwatch.notify.page import Page


def follow_up(
    page: Page,
    event: Literal["updated", "verified"],
    at: datetime,
    changed: str | None = None,
) -> Page:
    """What receivers are sent: the page with what is new, ``advice`` or ``verification``.

    ``changed``: of ``updated``, what is otherwise than on the page before, in words.
    """
    times = page.times.model_copy(update={"evaluated_at": at})
    update = {"event": event, "times": times, "changed": changed}
    return rendered(page.model_copy(update=update))


def sent_page(incident: Incident, about: MessageAbout) -> Page | None:
    """What receivers are sent: the incident's page, with who acknowledged it and what changed.

    A page that goes out for the first time is as it was made.
    """
    if (page := incident.page) is None:
        return None
    is_again = about.changed is not None or (about.event == "firing" and about.number > 0)
    if incident.acknowledgement is None and not is_again:
        return page
    update: dict[str, Any] = {"acknowledgement": incident.acknowledgement}
    if is_again:
        times = page.times.model_copy(update={"evaluated_at": about.at})
        update |= {"event": about.event, "times": times, "changed": about.changed}
        update["repeat"] = about.number if about.changed is None else 0
    return rendered(page.model_copy(update=update))
