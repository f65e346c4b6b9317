"""Who is told what: silences, receivers, resolves."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from planning_cases import firing, records_of

from driftwatch.incidents.incident import Incident, Transition
from driftwatch.incidents.planner import OutboxRecord, Plan, Routes, Subscription, plan_deliveries
from driftwatch.incidents.silence import Silence, parse_matchers

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
RECEIVERS: tuple[Subscription, ...] = (
    Subscription("oncall", ("page",)),
    Subscription("log", ("page", "ticket", "notice")),
)


def resolved(incident: Incident) -> Incident:
    page = {**(incident.page or {}), "event": "resolved"}
    return replace(incident, state="resolved", resolved_at=NOW, page=page)


def silence(matcher: str = "alert=X", id_: str = "quiet", hours: float = 1) -> Silence:
    return Silence(id_, parse_matchers([matcher]), NOW + hours * HOUR, "Ana", NOW, NOW)


def fired(incident: Incident) -> Transition:
    return Transition(incident, "firing", NOW)


def plan(
    *transitions: Transition,
    silences: tuple[Silence, ...] = (),
    now: datetime = NOW,
    incidents: tuple[Incident, ...] = (),
    notified: tuple[tuple[str, str], ...] = (),
    before: Plan | None = None,
    of_rules: dict[str, tuple[str, ...]] | None = None,
) -> Plan:
    return plan_deliveries(
        transitions,
        Routes(RECEIVERS, of_rules=of_rules or {}),
        silences,
        now,
        open_incidents={incident.key: incident for incident in incidents},
        records=[*paged(*notified), *records_of(before.deliveries if before else ())],
    )


def paged(*notified: tuple[str, str]) -> list[OutboxRecord]:
    return [OutboxRecord(id_, name, "firing", 0, NOW, NOW, NOW) for id_, name in notified]


def told(found: Plan) -> list[tuple[str, str, str, str]]:
    return [(d.subject[0], d.event, d.receiver, d.reason) for d in found.deliveries]


def test_a_firing_incident_is_told_to_every_receiver_of_its_severity() -> None:
    one, two = firing("a"), firing("b", "notice")
    found = plan(fired(one), fired(two), incidents=(one, two))
    assert told(found) == [
        ("a", "firing", "log", "first"),
        ("a", "firing", "oncall", "first"),
        ("b", "firing", "log", "first"),
    ]
    assert [d.payload for d in found.deliveries] == [one.page, one.page, two.page]
    assert {d.planned_at for d in found.deliveries} == {NOW}
    assert dict(found.open_incidents) == {one.key: one, two.key: two}


def test_receivers_that_a_rule_names_take_the_place_of_those_of_its_severity() -> None:
    one, two = firing("a"), firing("b", "ticket")
    happened = (fired(one), replace(fired(two), incident=replace(two, rule="Y")))

    def planned(*names: str) -> Plan:
        return plan(*happened, incidents=(one, two), of_rules={"Y": names, "X": ("log",)})

    assert told(planned("oncall")) == [
        ("a", "firing", "log", "first"),
        ("b", "firing", "oncall", "first"),
    ]
    # a name that no receiver has leaves nobody untold
    assert told(planned("oncal")) == [
        ("a", "firing", "log", "first"),
        ("b", "firing", "log", "first"),
    ]


def test_nothing_happens_without_a_transition() -> None:
    incident = firing()
    sent = plan(fired(incident), incidents=(incident,))
    assert plan(incidents=(incident,), before=sent).deliveries == ()


def test_a_silenced_incident_is_recorded_with_the_silence_and_told_to_nobody() -> None:
    incident = firing()
    found = plan(fired(incident), incidents=(incident,), silences=(silence(),))
    assert found.deliveries == ()
    assert found.open_incidents[incident.key].silenced_by == "quiet"
    assert found.transitions[0].incident.silenced_by == "quiet"
    assert found.open_incidents[incident.key].page == incident.page


def test_a_silence_that_does_not_match_or_is_over_holds_nothing_back() -> None:
    incident = firing()
    for other in (silence("alert=Y"), silence(hours=0)):
        found = plan(fired(incident), incidents=(incident,), silences=(other,))
        assert len(found.deliveries) == 2
        assert found.open_incidents[incident.key].silenced_by is None


def test_when_the_silence_ends_the_page_goes_out_once() -> None:
    incident = firing()
    quiet = silence()
    held = plan(fired(incident), incidents=(incident,), silences=(quiet,)).open_incidents
    still = plan(incidents=tuple(held.values()), silences=(quiet,), now=NOW + HOUR / 2)
    assert still.deliveries == ()
    assert still.open_incidents == held
    over = plan(incidents=tuple(held.values()), silences=(quiet,), now=NOW + HOUR)
    assert told(over) == [
        ("a", "firing", "log", "silence ended"),
        ("a", "firing", "oncall", "silence ended"),
    ]
    assert over.deliveries[0].payload == incident.page
    assert over.open_incidents[incident.key].silenced_by is None
    held = tuple(over.open_incidents.values())
    after = plan(incidents=held, silences=(quiet,), now=NOW + HOUR, before=over)
    assert after.deliveries == ()


def test_an_expired_silence_lets_the_page_out() -> None:
    incident = replace(firing(), silenced_by="quiet")
    ended = replace(silence(), expired_at=NOW)
    assert {d.reason for d in plan(incidents=(incident,), silences=(ended,)).deliveries} == {
        "silence ended"
    }


def test_another_silence_takes_over() -> None:
    incident = replace(firing(), silenced_by="quiet")
    found = plan(incidents=(incident,), silences=(silence(id_="other"),))
    assert found.deliveries == ()
    assert found.open_incidents[incident.key].silenced_by == "other"


def test_a_silence_made_after_the_page_holds_nothing_back_later() -> None:
    """The page has gone out; when that silence ends it does not go out again."""
    incident = firing()
    sent = plan(fired(incident), incidents=(incident,))
    found = plan(incidents=(incident,), silences=(silence(),), before=sent)
    assert found.open_incidents[incident.key].silenced_by is None
    assert plan(incidents=(incident,), now=NOW + 2 * HOUR, before=sent).deliveries == ()


def test_a_resolve_goes_where_the_firing_page_went() -> None:
    gone = resolved(firing())
    found = plan(Transition(gone, "resolved", NOW), notified=((gone.id, "oncall"),))
    assert told(found) == [("a", "resolved", "oncall", "resolved")]
    assert found.deliveries[0].payload == gone.page
    assert plan(Transition(gone, "resolved", NOW)).deliveries == ()
    other = plan(Transition(gone, "resolved", NOW), notified=(("b" * 12, "oncall"),))
    assert other.deliveries == ()


def test_a_resolve_is_sent_although_a_silence_matches_by_then() -> None:
    gone = resolved(firing())
    found = plan(
        Transition(gone, "resolved", NOW), silences=(silence(),), notified=((gone.id, "log"),)
    )
    assert told(found) == [("a", "resolved", "log", "resolved")]


def test_fired_and_resolved_in_one_tick_is_told_in_order() -> None:
    incident = firing()
    found = plan(fired(incident), Transition(resolved(incident), "resolved", NOW))
    assert [d.event for d in found.deliveries] == ["firing", "firing", "resolved", "resolved"]
    quiet = plan(
        fired(incident), Transition(resolved(incident), "resolved", NOW), silences=(silence(),)
    )
    assert quiet.deliveries == ()
    assert [t.incident.silenced_by for t in quiet.transitions] == ["quiet", "quiet"]


def test_a_page_that_was_not_rendered_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="not rendered"):
        plan(fired(replace(firing(), page=None)))
