"""An update of an acknowledged incident says who acknowledged it."""

from __future__ import annotations

from datetime import timedelta

from made_incidents import with_values
from page_cases import AT, CAP

from driftwatch.incidents.follow_up import follow_up, sent_page
from driftwatch.incidents.planner import MessageAbout
from driftwatch.notify.headline import headline
from driftwatch.notify.page import Acknowledgement

LATER = AT + timedelta(minutes=5)


def test_an_update_of_an_acknowledged_incident() -> None:
    page = follow_up(CAP.page(), "updated", LATER, "4 of 8 servers, before: host:8000")
    ana = Acknowledgement(by="ana", at=AT, comment="on it")
    incident = with_values(CAP.incident, page=page, acknowledgement=ana)
    told = sent_page(incident, MessageAbout("updated", LATER))
    assert told.summary.startswith("ACKNOWLEDGED by ana 02:56 UTC · host:8000: ")
    assert told.summary == headline(told)
    assert told.acknowledgement.by == "ana"
    free = sent_page(with_values(incident, acknowledgement=None), MessageAbout("updated", LATER))
    assert free.summary.startswith("UPDATE host:8000: ")
