"""Which receivers get an incident: the rule's, the first route's, the pool's, the severity's."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.incidents.route_preview import preview
from driftwatch.incidents.routing import Route, Routed, Routes, Subscription
from driftwatch.matchers import parse_matcher
from driftwatch.model import Incident, Severity
from driftwatch.settings.routes import SEVERITIES

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
RECEIVERS = (
    Subscription("oncall"),
    Subscription("lead", ("page",)),
    Subscription("team", ("ticket", "notice")),
    Subscription("log", ("notice",)),
)


def route(*matchers: str, to: str = "lead", **fields: object) -> Route:
    return Route((to,), tuple(map(parse_matcher, matchers)), **fields)  # type: ignore[arg-type]


def routed(routes: Routes, severity: Severity = "page", **labels: str) -> Routed:
    target = {"pool": "a", "instance": "host:8000", **labels}
    return routes.of(Incident("1", "k", "X", "X", severity, target, "firing", NOW, NOW))


def test_the_order_of_decision() -> None:
    steps = (
        {"of_rules": {"X": ("log",)}},
        {"routes": (route("pool=b"), route("severity=~page|ticket"))},
        {"of_pools": {"a": ("team",)}},
    )
    expected = [("rule", ("log",)), ("route", ("lead",)), ("pool", ("team",))]
    for position, (decided_by, names) in enumerate(expected):
        fields = {name: value for step in steps[position:] for name, value in step.items()}
        answer = routed(Routes(RECEIVERS, **fields))  # type: ignore[arg-type]
        assert (answer.decided_by, answer.receivers) == (decided_by, names)
    assert routed(Routes(RECEIVERS)).receivers == ("oncall", "lead")
    assert routed(Routes(RECEIVERS), "ticket").receivers == ("oncall", "team")


def test_what_nothing_else_routes_goes_to_the_fallback_else_visibly_to_nobody() -> None:
    only = (Subscription("lead", ("page",)), Subscription("team", ("page",)))
    answer = routed(Routes(only, fallback="team"), "ticket")
    assert (answer.decided_by, answer.receivers) == ("fallback", ("team",))
    assert answer.why == "fallback_receiver: no receiver takes tickets"
    answer = routed(Routes(only), "ticket")
    assert answer.reaches_nobody
    assert answer.why == "no receiver takes tickets, and there is no fallback_receiver"
    assert routed(Routes()).reaches_nobody
    # that nobody wants notices is no loss
    assert not routed(Routes(only), "notice").reaches_nobody


def test_a_notice_goes_to_receivers_that_ask_for_notices() -> None:
    assert routed(Routes(RECEIVERS), "notice").receivers == ("team", "log")
    named = Routes(RECEIVERS, of_rules={"X": ("oncall", "log")}, of_pools={"a": ("team",)})
    assert routed(named, "notice").receivers == ("log",)


@pytest.mark.parametrize(
    ("values", "is_sent"),
    [
        (["shipped"], False),
        (["shipped (uncalibrated)", None], False),
        (["shipped", "own"], True),
        (["pool"], True),
        ([None], True),
        ([], True),
    ],
)
def test_a_notice_waits_while_its_thresholds_are_a_default(
    values: list[str | None], is_sent: bool
) -> None:
    evidence = {f"x{i}_calibration": {"value": value} for i, value in enumerate(values)}
    page = {"evidence": {"itl_seconds_mean": {"value": 0.1}, **evidence}}
    incident = Incident("1", "k", "X", "X", "notice", {}, "firing", NOW, NOW, page=page)
    young = Routes(RECEIVERS, watched_since=NOW - timedelta(hours=23)).of(incident)
    assert bool(young.receivers) is is_sent
    assert not young.reaches_nobody
    # own scales take five days: after the first one the default is what there is
    old = Routes(RECEIVERS, watched_since=NOW - timedelta(hours=24)).of(incident)
    assert old.receivers
    page_of_first_day = replace(incident, severity="page")
    assert Routes(RECEIVERS, watched_since=NOW).of(page_of_first_day).receivers


def test_repeats_and_escalations_are_those_of_the_route_and_of_existing_receivers() -> None:
    later = ((900.0, ("team", "gone")), (1800.0, ("gone",)))
    routes = Routes(
        RECEIVERS,
        (
            route("pool=a", repeat_seconds=3600.0, escalations=later),
            route("pool=b", repeat_seconds=0.0),
            route("pool=c", to="gone"),
        ),
    )
    one = routed(routes)
    assert (one.repeat_seconds, one.escalations) == (3600.0, ((900.0, ("team",)),))
    assert (one.route, one.why) == (1, "route 1: pool=a")
    assert routed(routes, pool="b").repeat_seconds is None
    # a route to nobody that exists decides nothing: four hours are every page's
    rest = routed(routes, pool="c")
    assert (rest.decided_by, rest.repeat_seconds) == ("severity", 4 * 3600.0)
    assert routed(routes, "ticket", pool="c").repeat_seconds is None


matchers = st.builds(
    "{}{}{}".format,
    st.sampled_from(["severity", "pool", "alert", "team"]),
    st.sampled_from(["=", "!=", "=~", "!~"]),
    st.sampled_from(["page", "a", "b", "a|b", ".*", ""]),
)
routes_of = st.lists(
    st.builds(
        lambda texts, to: route(*texts, to=to),
        st.lists(matchers, max_size=2),
        st.sampled_from(["oncall", "lead", "gone"]),
    ),
    max_size=4,
)
names = st.sampled_from([(), ("team",), ("gone",)])
label_sets = st.fixed_dictionaries(
    {"pool": st.sampled_from(["", "a", "b"]), "rule": st.sampled_from(["X", "Y"])},
    optional={"team": st.sampled_from(["", "a"])},
)


@settings(deadline=None)
@given(routes_of, names, names, label_sets, st.sampled_from(SEVERITIES), st.data())
def test_a_preview_with_fewer_labels_holds_the_way_that_the_incident_goes(
    several: list[Route],
    of_rule: tuple[str, ...],
    of_pool: tuple[str, ...],
    labels: dict[str, str],
    severity: Severity,
    data: st.DataObject,
) -> None:
    routes = Routes(RECEIVERS, tuple(several), {"X": of_rule}, {"a": of_pool})
    complete = {"alert": "a", "severity": severity, **labels}
    goes = routes.of_labels(complete, severity)
    whole = preview(routes, {"team": "", **complete}, severity)
    assert [one.routed for one in whole.possibilities] == [goes]
    hidden = data.draw(st.sets(st.sampled_from(sorted(complete))))
    fewer = {name: value for name, value in complete.items() if name not in hidden}
    answer = preview(routes, fewer, severity)
    way = next(
        one
        for one in answer.possibilities
        if all(each.matches(complete) for each in one.conditions)
    )
    assert way.routed == goes
    assert set(answer.missing) <= hidden | {"team"}
