"""Messages after an incident's first page: the page again, with the news. Pure."""

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
    """The page as an update, or with its verification; ``changed``: the update's news, in words."""
    times = page.times.model_copy(update={"evaluated_at": at})
    update = {"event": event, "times": times, "changed": changed}
    return rendered(page.model_copy(update=update))


def sent_page(incident: Incident, about: MessageAbout) -> Page | None:
    """The payload of a message: the incident's page, with its acknowledgement and the news.

    A page that goes out for the first time stays as it was built.
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
