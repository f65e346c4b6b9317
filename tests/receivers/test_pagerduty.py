"""PagerDuty: what on-call reads, the life of an alert, what each answer means."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.pagerduty_server import ROUTING_KEY, PagerdutyServer
from page_cases import CAP, CASES
from receiver_cases import acknowledged, message, refused, repeat, unacknowledged

from driftwatch.errors import ConfigError
from driftwatch.notify.page import Amount
from driftwatch.receivers.pagerduty import BODY_LIMIT, PagerdutySender, dedup_key, sender_of
from driftwatch.settings.receivers import PagerdutyReceiver

KEY = 'BatchLimitBinding{engine="0",instance="host:8000"}/3f9c1a7be204'


@pytest.fixture
def pagerduty() -> Iterator[PagerdutyServer]:
    with PagerdutyServer() as server:
        yield server


@pytest.fixture
def sender(pagerduty: PagerdutyServer) -> PagerdutySender:
    return PagerdutySender("oncall", pagerduty.address, ROUTING_KEY)


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
    sender.send(message(CAP.page()))
    sender.send(message(CAP.page()))  # a repeated delivery
    sender.send(repeat(CAP.page()))
    (alert,) = pagerduty.alerts
    assert (alert.dedup_key, alert.state, len(alert.triggers)) == (KEY, "triggered", 3)
    sender.send(acknowledged())
    assert alert.state == "acknowledged"
    sender.send(unacknowledged())
    # PagerDuty takes no acknowledgement back: the alert's log says so, and its own time-out reminds
    assert (alert.state, len(alert.triggers)) == ("acknowledged", 4)
    sender.send(message(CAP.resolved()))
    assert (alert.state, pagerduty.alerts) == ("resolved", [alert])


def test_a_late_resolve_does_not_close_the_next_incident(
    pagerduty: PagerdutyServer, sender: PagerdutySender
) -> None:
    sender.send(message(CAP.page()))
    following = replace(CAP, incident=replace(CAP.incident, id="aaaaaaaaaaaa"))
    sender.send(message(following.page()))
    sender.send(message(CAP.resolved()))
    assert [alert.state for alert in pagerduty.alerts] == ["resolved", "triggered"]


@pytest.mark.parametrize("length", [10, 230, 260, 5000])
def test_a_key_is_at_most_255_characters_and_still_its_own(length: int) -> None:
    def key(of: str) -> str:
        return dedup_key(CAP.page().model_copy(update={"key": of}))

    one, other = key("x" * length + "1"), key("x" * length + "2")
    assert one != other
    assert len(one) <= 255 and one.endswith("/3f9c1a7be204")


def test_no_value_is_in_the_key(sender: PagerdutySender, pagerduty: PagerdutyServer) -> None:
    page = CAP.page()
    amount = Amount(value=99.0, unit="1/s")
    worse = page.model_copy(update={"evidence": {"requests_per_second": amount}})
    sender.send(message(page))
    sender.send(message(worse))
    assert len({event["dedup_key"] for event in sent(pagerduty)}) == 1


def test_a_page_that_is_too_large_is_left_out(
    pagerduty: PagerdutyServer, sender: PagerdutySender
) -> None:
    huge = Amount(value=1.0, unit="1", reason="x" * 700_000)
    page = CAP.page()
    sender.send(message(page.model_copy(update={"evidence": {"huge": huge}})))
    sender.send(message(page.model_copy(update={"labels": {"label": "x" * 700_000}})))
    for one in sent(pagerduty):
        assert "driftwatch incidents" in one["payload"]["custom_details"]["left_out"]
    assert max(len(request.body) for request in pagerduty.requests) <= BODY_LIMIT
    assert len(pagerduty.alerts) == 1


@pytest.mark.parametrize(
    ("status", "permanent"),
    [
        *((status, True) for status in (301, 307, 400, 401, 403, 404, 410, 413)),
        *((status, False) for status in (408, 429, 500, 502, 503)),
    ],
)
def test_what_an_answer_means(
    pagerduty: PagerdutyServer, sender: PagerdutySender, status: int, permanent: bool
) -> None:
    pagerduty.fail_next(status, "why", Location=pagerduty.address)
    assert refused(sender).permanent is permanent
    assert len(pagerduty.requests) == 1


def test_too_many_events_name_the_time(pagerduty: PagerdutyServer, sender: PagerdutySender) -> None:
    pagerduty.fail_next(429, Retry_After="120")
    assert refused(sender).retry_after_seconds == 120.0


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
    error = refused(PagerdutySender("oncall", pagerduty.address, wrong))
    assert error.permanent is True
    assert "<secret>" in error.message


def test_a_key_of_another_length_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("canary")
    settings = PagerdutyReceiver.model_validate({"routing_key_file": tmp_path / "key"})
    with pytest.raises(ConfigError) as caught:
        sender_of("oncall", settings)
    assert "32 letters and digits" in caught.value.problems[0].message
    assert "canary" not in str(caught.value)
