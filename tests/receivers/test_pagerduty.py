"""PagerDuty: the life of an alert, its key, and what becomes of each of PagerDuty's answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from fakes.pagerduty_server import ROUTING_KEY, PagerdutyServer
from made_incidents import with_values
from page_cases import CAP, CASES
from receiver_cases import acknowledged, changed, message, refused, repeat
from secret_file import secret

from driftwatch.errors import ConfigError
from driftwatch.notify.page import Amount
from driftwatch.receivers.pagerduty import BODY_LIMIT, PagerdutySender
from driftwatch.settings.receivers import PagerdutyReceiver


@pytest.fixture
def pagerduty() -> Iterator[PagerdutyServer]:
    with PagerdutyServer() as server:
        yield server


@pytest.fixture
def sender(pagerduty: PagerdutyServer) -> PagerdutySender:
    return sender_to(pagerduty)


def sender_to(pagerduty: PagerdutyServer, key: str = ROUTING_KEY) -> PagerdutySender:
    settings = PagerdutyReceiver(routing_key_file=secret(key), url=pagerduty.address)
    return PagerdutySender("oncall", settings)


def sent(pagerduty: PagerdutyServer) -> list[dict[str, Any]]:
    return [json.loads(request.body) for request in pagerduty.requests]


def test_a_trigger_whole(
    pagerduty: PagerdutyServer, sender: PagerdutySender, golden: Callable[[str, str], None]
) -> None:
    page = CASES["budget"].page()
    sender.send(message(page))
    (event,) = sent(pagerduty)
    assert event.pop("routing_key") == ROUTING_KEY
    assert event["payload"].pop("custom_details") == page.document()
    golden("receivers/pagerduty.json", json.dumps(event, indent=1, ensure_ascii=False))


def test_the_life_of_an_alert(pagerduty: PagerdutyServer, sender: PagerdutySender) -> None:
    page = CAP.page()
    sender.send(message(page))
    sender.send(message(page))  # a repeated delivery
    sender.send(repeat())
    (alert,) = pagerduty.alerts
    assert (alert.state, len(alert.triggers)) == ("triggered", 3)
    assert alert.dedup_key == f"{page.key}/{page.incident}"
    sender.send(acknowledged())
    assert alert.state == "acknowledged"
    sender.send(acknowledged(None))
    # PagerDuty takes no acknowledgement back: the alert's log says so, and its own time-out reminds
    assert (alert.state, len(alert.triggers)) == ("acknowledged", 4)
    sender.send(message(CAP.resolved()))
    assert (alert.state, pagerduty.alerts) == ("resolved", [alert])


def test_a_late_resolve_does_not_close_the_next_incident(
    pagerduty: PagerdutyServer, sender: PagerdutySender
) -> None:
    sender.send(message(CAP.page()))
    following = replace(CAP, incident=with_values(CAP.incident, id="aaaaaaaaaaaa"))
    sender.send(message(following.page()))
    sender.send(message(CAP.resolved()))
    assert [alert.state for alert in pagerduty.alerts] == ["resolved", "triggered"]


def test_a_page_that_is_too_large_is_left_out(
    pagerduty: PagerdutyServer, sender: PagerdutySender
) -> None:
    huge = Amount(value=1.0, unit="1", reason="x" * 700_000)
    sender.send(message(changed(evidence={**CAP.page().evidence, "huge": huge})))
    (event,) = sent(pagerduty)
    assert "driftwatch incidents" in event["payload"]["custom_details"]["left_out"]
    assert len(pagerduty.requests[0].body) <= BODY_LIMIT


@pytest.mark.parametrize(
    ("body", "permanent"),
    [
        ("<html>sign in</html>", True),
        ("", False),
        ('{"status": "succ', False),
        ("[]", False),
        ('{"status": "throttled"}', False),
    ],
)
def test_a_success_that_is_not_pagerdutys(
    pagerduty: PagerdutyServer, sender: PagerdutySender, body: str, permanent: bool
) -> None:
    pagerduty.fail_next(200, body)
    assert refused(sender).permanent is permanent


def test_a_wrong_key_is_refused_without_being_printed(pagerduty: PagerdutyServer) -> None:
    wrong = "canaryWrongRoutingKey01234567890"
    pagerduty.fail_next(400, f'{{"status":"invalid event","errors":["no key {wrong}"]}}')
    error = refused(sender_to(pagerduty, wrong))
    assert error.permanent is True
    assert "<secret>" in error.message


def test_a_key_of_another_length_is_a_configuration_error() -> None:
    short = PagerdutyReceiver(routing_key_file=secret("canary"))
    with pytest.raises(ConfigError) as caught:
        PagerdutySender("oncall", short).check()
    assert "32 letters and digits" in caught.value.problems[0].message
    assert "canary" not in str(caught.value)
