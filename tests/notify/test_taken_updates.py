"""An update of an incident that somebody has says so; the acknowledgement is as it was."""

from __future__ import annotations

from datetime import timedelta

from page_cases import AT, CAP

from driftwatch.incidents.delivery import Acknowledgement, PlannedDelivery
from driftwatch.incidents.follow_up import follow_up, payload_of
from driftwatch.notify.headline import headline

LATER = AT + timedelta(minutes=5)


def test_an_update_of_a_taken_incident_says_who_has_it() -> None:
    page = follow_up(CAP.page(), "advised", LATER, "4 of 8 servers, before: host:8000")
    taken = Acknowledgement("ana", AT, "on it", None)
    update = PlannedDelivery("x", "advised", "one", "advised", page, LATER, "incident", 0, taken)
    told = payload_of(update)
    assert told["summary"].startswith("UPDATE, TAKEN by ana ")
    assert told["summary"] == headline(told)
    assert told["acknowledgement"]["by"] == "ana"
    free = PlannedDelivery("x", "advised", "one", "advised", page, LATER, "incident", 0, None)
    assert payload_of(free)["summary"].startswith("UPDATE host:8000: ")
