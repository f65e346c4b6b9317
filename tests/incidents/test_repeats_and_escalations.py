"""Until somebody acknowledges it: repeats, escalations, reminders, and what stops them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planning_cases import BOSS, ESCALATED, HOUR, NOW, ONCALL, Pager, silence

from driftwatch.incidents.occasion import Acknowledgement, EndingSilence, Escalation
from driftwatch.incidents.routing import Route, Routes, Subscription

FIRST = ("oncall", "firing", "first", 0)
ONLY_REPEATS = Routes((ONCALL, BOSS))


def test_it_is_repeated_every_four_hours_after_the_last_page() -> None:
    pager = Pager(ONLY_REPEATS)
    assert pager.sent(pager.fire()) == [FIRST]
    assert pager.sent(pager.tick(3.99)) == []
    assert pager.sent(pager.tick(4.5)) == [("oncall", "firing", "repeat", 1)]
    assert pager.sent(pager.tick(8.4)) == []
    assert pager.sent(pager.tick(8.5)) == [("oncall", "firing", "repeat", 2)]


def test_a_receiver_that_is_down_gathers_one_page_at_most() -> None:
    pager = Pager(ONLY_REPEATS, pending={"oncall"})
    pager.fire()
    assert [pager.sent(pager.tick(hours)) for hours in (4, 8, 12)] == [[], [], []]
    pager.pending.clear()
    assert pager.sent(pager.tick(13)) == [("oncall", "firing", "repeat", 1)]


@pytest.mark.parametrize("severity", ["ticket", "notice"])
def test_only_pages_are_repeated_by_default(severity: str) -> None:
    pager = Pager(Routes((Subscription("desk", ("page", "ticket"), "each"),)))
    assert len(pager.fire(severity=severity).deliveries) == 1  # type: ignore[arg-type]
    assert pager.tick(100).deliveries == ()


def test_who_does_not_answer_in_time_is_not_the_last_one_who_is_paged() -> None:
    pager = Pager()
    pager.fire()
    assert pager.sent(pager.tick(0.49)) == []
    plan = pager.tick(0.6)
    assert pager.sent(plan) == [("boss", "firing", "escalated", 0)]
    assert plan.deliveries[0].occasion == Escalation(1800.0, (("oncall", NOW),))
    assert pager.sent(pager.tick(0.7)) == []
    assert pager.sent(pager.tick(4.6)) == [
        ("boss", "firing", "repeat", 1),
        ("oncall", "firing", "repeat", 1),
    ]
    assert pager.sent(pager.resolve(5)) == [
        ("boss", "resolved", "resolved", 0),
        ("oncall", "resolved", "resolved", 0),
    ]


def test_a_stop_over_the_time_escalates_once() -> None:
    pager = Pager()
    pager.fire()
    assert ("boss", "firing", "escalated", 0) in pager.sent(pager.tick(30))
    assert [one for one in pager.sent(pager.tick(30.1)) if one[2] == "escalated"] == []


def test_an_acknowledgement_is_told_and_stops_everything_until_it_is_given_back() -> None:
    pager = Pager()
    pager.fire()
    pager.tick(0.6)
    pager.act("acknowledge", 0.7)
    plan = pager.tick(0.7)
    assert pager.sent(plan) == [
        ("boss", "acknowledged", "acknowledged", 0),
        ("oncall", "acknowledged", "acknowledged", 0),
    ]
    occasion = plan.deliveries[0].occasion
    assert isinstance(occasion, Acknowledgement)
    assert (occasion.by, occasion.until, occasion.via) == ("Ana", NOW + 24.7 * HOUR, "slack")
    assert pager.sent(pager.tick(12)) == []
    pager.act("unacknowledge", 13)
    assert pager.sent(pager.tick(13)) == [
        ("boss", "unacknowledged", "unacknowledged", 0),
        ("oncall", "unacknowledged", "unacknowledged", 0),
    ]
    assert pager.sent(pager.tick(16.9)) == []
    assert {one[2] for one in pager.sent(pager.tick(17))} == {"repeat"}


def test_one_that_is_acknowledged_in_time_is_not_escalated_until_it_is_given_back() -> None:
    pager = Pager()
    pager.fire()
    pager.act("acknowledge", 0.4)
    pager.tick(0.4)
    assert pager.sent(pager.tick(0.6)) == []
    pager.act("unacknowledge", 2)
    pager.tick(2)
    assert pager.sent(pager.tick(2.4)) == []
    assert pager.sent(pager.tick(2.5)) == [("boss", "firing", "escalated", 0)]


def test_of_two_times_that_it_was_given_back_the_last_one_counts() -> None:
    pager = Pager()
    pager.fire()
    for taken, given_back in ((0.1, 0.2), (0.3, 2)):
        pager.act("acknowledge", taken)
        pager.tick(taken)
        pager.act("unacknowledge", given_back)
        pager.tick(given_back)
    assert pager.sent(pager.tick(2.4)) == []
    assert pager.sent(pager.tick(2.5)) == [("boss", "firing", "escalated", 0)]


def test_who_never_took_the_page_hears_no_more_of_it_and_was_not_told_before_others() -> None:
    pager = Pager(dead={"oncall"})
    pager.fire()
    escalated = pager.tick(0.6)
    assert pager.sent(escalated) == [("boss", "firing", "escalated", 0)]
    assert escalated.deliveries[0].occasion == Escalation(1800.0, ())
    pager.act("acknowledge", 0.7)
    assert {one[0] for one in pager.sent(pager.tick(0.7))} == {"boss"}
    assert pager.sent(pager.resolve(1)) == [("boss", "resolved", "resolved", 0)]


def test_an_acknowledgement_that_ends_by_itself_reminds_first() -> None:
    pager = Pager(ONLY_REPEATS)
    pager.fire()
    pager.act("acknowledge", 1, until=3)
    pager.tick(1)
    assert pager.sent(pager.tick(2.74)) == []
    assert pager.sent(pager.tick(2.8)) == [("oncall", "acknowledged", "acknowledgement expires", 1)]
    assert pager.sent(pager.tick(2.9)) == []
    ended = pager.tick(3.1)
    assert pager.sent(ended) == [("oncall", "unacknowledged", "acknowledgement ended", 0)]
    assert ended.ended_acknowledgements == (("a" * 12, NOW + 3 * HOUR),)
    (incident,) = ended.open_incidents.values()
    assert (incident.acknowledged_at, incident.acknowledged_until) == (None, None)
    assert pager.sent(pager.tick(7.2)) == [("oncall", "firing", "repeat", 1)]


def test_one_that_is_prolonged_reminds_anew_and_a_short_one_never() -> None:
    pager = Pager(ONLY_REPEATS)
    pager.fire()
    pager.act("acknowledge", 1, until=3)
    pager.tick(1)
    pager.tick(2.8)
    pager.act("acknowledge", 2.9, until=6)
    assert pager.sent(pager.tick(2.9)) == [("oncall", "acknowledged", "acknowledged", 2)]
    assert pager.sent(pager.tick(5.7)) == []
    assert pager.sent(pager.tick(5.8)) == [("oncall", "acknowledged", "acknowledgement expires", 3)]
    pager.act("acknowledge", 5.9, until=6.3)
    pager.tick(5.9)
    assert pager.sent(pager.tick(6.2)) == []


def test_what_people_did_with_one_that_is_over_is_told_to_nobody() -> None:
    pager = Pager()
    pager.fire()
    pager.act("acknowledge", 0.1)
    plan = pager.resolve(0.1)
    assert pager.sent(plan) == [("oncall", "resolved", "resolved", 0)]
    assert plan.planned_actions == (1,)


def test_nothing_is_repeated_or_escalated_while_it_is_silenced() -> None:
    pager = Pager(silences=[silence(hours=6, after_hours=0.2)])
    pager.fire()
    assert [d.kind for d in pager.tick(6.0).deliveries] == ["silence"]
    # the silence is over: a repeat is due, the escalation begins anew
    assert pager.sent(pager.tick(6.21)) == [("oncall", "firing", "repeat", 1)]
    assert pager.sent(pager.tick(6.6)) == []
    assert pager.sent(pager.tick(6.71)) == [("boss", "firing", "escalated", 0)]


def test_an_acknowledgement_does_not_end_while_it_is_silenced() -> None:
    pager = Pager(ONLY_REPEATS, silences=[silence(hours=3, after_hours=1.5)])
    pager.fire()
    pager.act("acknowledge", 1, until=3)
    pager.tick(1)
    assert [pager.sent(pager.tick(hours)) for hours in (2.8, 3.1, 4.4)] == [[], [], []]
    assert pager.sent(pager.tick(4.5)) == [("oncall", "unacknowledged", "acknowledgement ended", 0)]


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
    pager = Pager(ONLY_REPEATS, silences=[silence(hours=2, after_hours=1)])
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
    pager = Pager(ESCALATED)
    pager.fire()
    pager.routes = Routes((BOSS,), (Route(("boss",)),))
    assert {one[0] for one in pager.sent(pager.tick(1))} == {"boss"}
    assert {one[0] for one in pager.sent(pager.resolve(3))} == {"boss"}
