"""Which receivers get an incident: the rule's, the pool's, the severity's."""

from __future__ import annotations

from datetime import UTC, datetime

from driftwatch.incidents.incident import Incident
from driftwatch.incidents.planner import Routed, Routes, Subscription
from driftwatch.model import Severity

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
RECEIVERS = (
    Subscription("oncall"),
    Subscription("lead", ("page",)),
    Subscription("team", ("ticket", "notice")),
    Subscription("log", ("notice",)),
)


def routed(routes: Routes, severity: Severity = "page", **labels: str) -> Routed:
    target = {"pool": "a", "instance": "host:8000", **labels}
    return routes.of(Incident("1", "k", "X", "X", severity, target, "firing", NOW, NOW))


def test_the_rule_decides_before_the_pool_and_the_pool_before_the_severity() -> None:
    of_rules, of_pools = {"X": ("log",)}, {"a": ("team", "gone")}
    assert routed(Routes(RECEIVERS, of_rules, of_pools)) == Routed(
        ("log",), "receivers of rule X", 4 * 3600.0
    )
    assert routed(Routes(RECEIVERS, {}, of_pools)).receivers == ("team",)
    assert routed(Routes(RECEIVERS, {}, of_pools), pool="b").receivers == ("oncall", "lead")
    ticket = routed(Routes(RECEIVERS), "ticket")
    assert (ticket.receivers, ticket.repeat_seconds) == (("oncall", "team"), None)
    # who names nobody that exists decides nothing
    assert routed(Routes(RECEIVERS, {"X": ("gone",)})).why == "receivers that take pages"


def test_what_nothing_routes_reaches_nobody() -> None:
    only = Routes((Subscription("lead", ("page",)),))
    answer = routed(only, "ticket")
    assert (answer.receivers, answer.reaches_nobody) == ((), True)
    assert answer.why == "no receiver takes tickets"
    # that nobody wants notices is no loss
    assert not routed(only, "notice").reaches_nobody


def test_a_notice_goes_to_receivers_that_ask_for_notices() -> None:
    assert routed(Routes(RECEIVERS), "notice").receivers == ("team", "log")
    named = Routes(RECEIVERS, of_rules={"X": ("oncall", "log")}, of_pools={"a": ("team",)})
    assert routed(named, "notice").receivers == ("log",)
