"""Until somebody acknowledges it: repeats, and what stops them."""

from __future__ import annotations

import pytest
from planning_cases import ONCALL, Pager, silence

from driftwatch.incidents.delivery import Acknowledgement
from driftwatch.incidents.planner import Routes, Subscription

FIRST = ("oncall", "firing", "first", 0)
BOTH = Routes((ONCALL, Subscription("boss", ("page",))))


def test_it_is_repeated_every_four_hours_after_the_last_page() -> None:
    pager = Pager()
    assert pager.sent(pager.fire()) == [FIRST]
    assert pager.sent(pager.tick(3.99)) == []
    assert pager.sent(pager.tick(4.5)) == [("oncall", "firing", "repeat", 1)]
    assert pager.sent(pager.tick(8.4)) == []
    assert pager.sent(pager.tick(8.5)) == [("oncall", "firing", "repeat", 2)]


def test_a_receiver_that_is_down_gathers_one_page_at_most() -> None:
    pager = Pager(pending={"oncall"})
    pager.fire()
    assert [pager.sent(pager.tick(hours)) for hours in (4, 8, 12)] == [[], [], []]
    pager.pending.clear()
    assert pager.sent(pager.tick(13)) == [("oncall", "firing", "repeat", 1)]


@pytest.mark.parametrize("severity", ["ticket", "notice"])
def test_only_pages_are_repeated_by_default(severity: str) -> None:
    pager = Pager(Routes((Subscription("desk", ("page", "ticket", "notice")),)))
    assert len(pager.fire(severity=severity).deliveries) == 1  # type: ignore[arg-type]
    assert pager.tick(100).deliveries == ()


def test_an_acknowledgement_is_told_and_stops_everything_until_it_is_given_back() -> None:
    pager = Pager(BOTH)
    pager.fire()
    pager.act("acknowledge", 0.7)
    plan = pager.tick(0.7)
    assert pager.sent(plan) == [
        ("boss", "acknowledged", "acknowledged", 0),
        ("oncall", "acknowledged", "acknowledged", 0),
    ]
    occasion = plan.deliveries[0].occasion
    assert isinstance(occasion, Acknowledgement)
    assert (occasion.by, occasion.via) == ("Ana", "slack")
    assert pager.sent(pager.tick(100)) == []
    pager.act("unacknowledge", 113)
    assert pager.sent(pager.tick(113)) == [
        ("boss", "unacknowledged", "unacknowledged", 0),
        ("oncall", "unacknowledged", "unacknowledged", 0),
    ]
    assert pager.sent(pager.tick(116.9)) == []
    assert {one[2] for one in pager.sent(pager.tick(117))} == {"repeat"}


def test_who_never_took_the_page_hears_no_more_of_it() -> None:
    pager = Pager(BOTH, dead={"oncall"})
    pager.fire()
    pager.act("acknowledge", 0.7)
    assert {one[0] for one in pager.sent(pager.tick(0.7))} == {"boss"}
    assert pager.sent(pager.resolve(1)) == [("boss", "resolved", "resolved", 0)]


def test_what_people_did_with_one_that_is_over_is_told_to_nobody() -> None:
    pager = Pager()
    pager.fire()
    pager.act("acknowledge", 0.1)
    plan = pager.resolve(0.1)
    assert pager.sent(plan) == [("oncall", "resolved", "resolved", 0)]
    assert plan.planned_actions == (1,)


def test_nothing_is_repeated_while_it_is_silenced() -> None:
    pager = Pager(silences=[silence(hours=6, after_hours=0.2)])
    pager.fire()
    assert pager.sent(pager.tick(6.0)) == []
    assert pager.sent(pager.tick(6.21)) == [("oncall", "firing", "repeat", 1)]
