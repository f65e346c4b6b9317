"""Until somebody acknowledges it: repeats, and what stops them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planning_cases import HOUR, NOW, ONCALL, Pager, silence

from driftwatch.incidents.occasion import Acknowledgement, EndingSilence
from driftwatch.incidents.routing import Routes, Subscription

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
    assert [d.kind for d in pager.tick(6.0).deliveries] == ["silence"]
    assert pager.sent(pager.tick(6.21)) == [("oncall", "firing", "repeat", 1)]


def test_the_end_of_a_silence_is_announced_once_to_whom_it_holds_back() -> None:
    quiet = silence(hours=2)
    pager = Pager(silences=[quiet])
    assert pager.sent(pager.fire()) == []
    assert pager.sent(pager.tick(1.7)) == []
    plan = pager.tick(1.8)
    assert pager.sent(plan) == [("oncall", "ending", "silence ends", 0)]
    (delivery,) = plan.deliveries
    assert (delivery.kind, delivery.subject) == ("silence", "quiet")
    assert isinstance(delivery.occasion, EndingSilence)
    assert [one.id for one in delivery.occasion.incidents] == ["a" * 12]
    assert pager.sent(pager.tick(1.9)) == []
    pager.silences = [replace(quiet, until=NOW + 4 * HOUR)]
    assert pager.sent(pager.tick(2)) == []
    assert pager.sent(pager.tick(3.8)) == [("oncall", "ending", "silence ends", 1)]
    assert pager.sent(pager.tick(4)) == [("oncall", "firing", "silence ended", 0)]


def test_a_silence_that_holds_nothing_or_is_short_ends_unannounced() -> None:
    pager = Pager(silences=[silence("alert=Y", hours=2), silence(id_="short", hours=0.5)])
    pager.fire()
    assert [pager.sent(pager.tick(hours)) for hours in (0.3, 0.4)] == [[], []]
    assert not [d for d in pager.outbox if d.kind == "silence"]


def test_a_silence_that_is_scheduled_holds_back_from_its_start() -> None:
    pager = Pager(silences=[silence(hours=2, after_hours=1)])
    assert pager.sent(pager.fire(0.5)) == [FIRST]
    assert pager.sent(pager.fire(1.5, "b")) == []
    assert ("oncall", "firing", "silence ended", 0) in pager.sent(pager.tick(3))


def test_a_route_that_a_reload_adds_is_sent_what_fires_and_who_had_it_gets_the_resolve() -> None:
    pager = Pager(Routes((ONCALL, Subscription("new", ()))))
    pager.fire()
    pager.routes = Routes((Subscription("oncall", ()), Subscription("new", ("page",))))
    assert pager.sent(pager.tick(1)) == [("new", "firing", "route changed", 0)]
    assert pager.sent(pager.tick(2)) == []
    assert {one[0] for one in pager.sent(pager.resolve(3))} == {"new", "oncall"}


def test_a_receiver_that_is_gone_gets_nothing_more() -> None:
    pager = Pager()
    pager.fire()
    pager.routes = Routes((Subscription("boss", ("page",)),))
    assert {one[0] for one in pager.sent(pager.tick(1))} == {"boss"}
    assert {one[0] for one in pager.sent(pager.resolve(3))} == {"boss"}
