"""Whom a time interval keeps from being told, and when they are told after it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from planning_cases import records_of
from test_page_planning import HOUR, NOW, RECEIVERS, fired, firing, paged, resolved, silence, told

from driftwatch.incidents.mute import Mutes
from driftwatch.incidents.planner import Plan, plan_deliveries
from driftwatch.incidents.routing import Routes
from driftwatch.incidents.silence import Silence
from driftwatch.model import Incident, Transition
from driftwatch.settings.time_intervals import NamedIntervals

NOON = NamedIntervals.model_validate(
    {
        "name": "noon",
        "time_intervals": [{"times": [{"start_time": "12:00", "end_time": "13:00"}]}],
    }
)
OF_RULE = Mutes({"noon": NOON}, of_rules={"X": ("noon",)})
OF_POOL = Mutes({"noon": NOON}, of_pools={"batch": ("noon",)})
TOLD_LATER = [("a", "firing", "log", "mute ended"), ("a", "firing", "oncall", "mute ended")]


def plan(
    *transitions: Transition,
    mutes: Mutes = OF_RULE,
    incidents: tuple[Incident, ...] = (),
    silences: tuple[Silence, ...] = (),
    notified: tuple[tuple[str, str], ...] = (),
    before: Plan | None = None,
    now: datetime = NOW,
) -> Plan:
    return plan_deliveries(
        transitions,
        Routes(RECEIVERS),
        silences,
        now,
        open_incidents={incident.key: incident for incident in incidents},
        records=[*paged(*notified), *records_of(before.deliveries if before else ())],
        mutes=mutes,
    )


def test_a_page_inside_waits_for_the_end_of_the_interval_and_goes_out_once() -> None:
    incident = firing()
    held = plan(fired(incident), incidents=(incident,))
    assert held.deliveries == ()
    assert held.open_incidents[incident.key].muted_by == "noon"
    assert held.transitions[0].incident.muted_by == "noon"
    waiting = tuple(held.open_incidents.values())
    still = plan(incidents=waiting, now=NOW + 0.99 * HOUR)
    assert (still.deliveries, dict(still.open_incidents)) == ((), dict(held.open_incidents))
    over = plan(incidents=waiting, now=NOW + HOUR)
    assert told(over) == TOLD_LATER
    assert over.deliveries[0].payload == incident.page
    assert over.open_incidents[incident.key].muted_by is None
    waiting = tuple(over.open_incidents.values())
    assert plan(incidents=waiting, now=NOW + HOUR, before=over).deliveries == ()


def test_a_pool_mutes_every_rule_on_its_targets_and_no_other_pool() -> None:
    incident = firing()
    inside = replace(incident, target={"instance": "a", "pool": "batch"})
    of_pool = replace(incident, target={"pool": "batch"})
    for one, count in ((inside, 0), (of_pool, 0), (incident, 2)):
        assert len(plan(fired(one), incidents=(one,), mutes=OF_POOL).deliveries) == count


def test_what_resolves_inside_is_told_to_nobody_and_names_the_interval() -> None:
    muted = replace(firing(), muted_by="noon")
    found = plan(Transition(resolved(muted), "resolved", NOW))
    assert found.deliveries == ()
    assert found.transitions[0].incident.muted_by == "noon"


def test_the_resolve_of_a_page_that_went_out_before_is_sent_inside() -> None:
    gone = resolved(firing())
    found = plan(Transition(gone, "resolved", NOW), notified=((gone.id, "oncall"),))
    assert told(found) == [("a", "resolved", "oncall", "resolved")]


def test_a_page_that_went_out_before_the_interval_does_not_go_out_again() -> None:
    incident = firing()
    sent = ((incident.id, "oncall"), (incident.id, "log"))
    inside = plan(incidents=(incident,), notified=sent)
    assert inside.open_incidents[incident.key].muted_by is None
    waiting = tuple(inside.open_incidents.values())
    assert plan(incidents=waiting, now=NOW + HOUR, notified=sent).deliveries == ()


def test_advice_waits_for_nobody_inside() -> None:
    incident = firing()
    advised = Transition(incident, "advised", NOW)
    sent = ((incident.id, "oncall"), (incident.id, "log"))
    assert plan(advised, incidents=(incident,), notified=sent).deliveries == ()
    later = plan(advised, incidents=(incident,), notified=sent, now=NOW + HOUR)
    assert told(later) == [("a", "advised", name, "advised") for name in ("log", "oncall")]


def test_a_page_waits_until_neither_a_silence_nor_an_interval_holds_it() -> None:
    incident = firing()
    quiet = silence(hours=2)
    held = plan(fired(incident), incidents=(incident,), silences=(quiet,)).open_incidents
    both = held[incident.key]
    assert (both.silenced_by, both.muted_by) == ("quiet", "noon")
    after = plan(incidents=(both,), silences=(quiet,), now=NOW + HOUR)
    alone = after.open_incidents[incident.key]
    assert (after.deliveries, alone.silenced_by, alone.muted_by) == ((), "quiet", None)
    over = plan(incidents=(alone,), silences=(quiet,), now=NOW + 2 * HOUR)
    assert {d.reason for d in over.deliveries} == {"silence ended"}
