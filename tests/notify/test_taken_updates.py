"""An update of an acknowledged incident says who acknowledged it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from page_cases import AT, CAP

from driftwatch.incidents.follow_up import follow_up, sent_page
from driftwatch.incidents.planner import MessageAbout
from driftwatch.notify.headline import headline
from driftwatch.notify.page import Acknowledgement

LATER = AT + timedelta(minutes=5)


def test_an_update_of_an_acknowledged_incident() -> None:
    page = follow_up(CAP.page(), "updated", LATER, "4 of 8 servers, before: host:8000")
    incident = replace(CAP.incident, page=page)
    ana = Acknowledgement(by="ana", at=AT, comment="on it")
    told = sent_page(incident, MessageAbout("updated", LATER, 0, ana))
    assert told.summary.startswith("ACKNOWLEDGED by ana 02:56 UTC · host:8000: ")
    assert told.summary == headline(told)
    assert told.acknowledgement.by == "ana"
    free = sent_page(incident, MessageAbout("updated", LATER))
    assert free.summary.startswith("UPDATE host:8000: ")
