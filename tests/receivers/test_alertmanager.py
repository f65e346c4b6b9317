"""Alertmanager: the real one takes what driftwatch posts, resolves it, groups it, silences it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fakes.alertmanager import BINARY, Alertmanager, NotificationServer
from fakes.loopback import Answer, LoopbackServer, Request
from made_incidents import with_values
from page_cases import CAP, Case
from receiver_cases import message, refused
from secret_file import secret

from driftwatch.notify.page import Page
from driftwatch.receivers.alertmanager import AlertmanagerSender
from driftwatch.settings.receivers import AlertmanagerReceiver

needs_alertmanager = pytest.mark.skipif(
    shutil.which(BINARY) is None, reason="prometheus-alertmanager is not installed"
)
INTERVAL = 60.0


@pytest.fixture
def notifications() -> Iterator[NotificationServer]:
    with NotificationServer() as server:
        yield server


@pytest.fixture
def alertmanager(notifications: NotificationServer) -> Iterator[Alertmanager]:
    with Alertmanager(notifications.address) as running:
        yield running


def sender(*urls: str, **rest: Any) -> AlertmanagerSender:
    settings = AlertmanagerReceiver.model_validate({"urls": urls, "interval": "60s", **rest})
    return AlertmanagerSender("am", settings)


def recent(case: Case) -> Case:
    """The case as of a minute ago: a real Alertmanager has a clock of its own."""
    now = datetime.now(UTC).replace(microsecond=0)
    began = now - timedelta(minutes=5)
    incident = with_values(case.incident, started_at=began, firing_at=now)
    return replace(case, incident=incident, finding=replace(case.finding, since=began))


def many_pages() -> list[Page]:
    page = CAP.page()
    labels = [{"instance": f"host-{n}:8000"} for n in range(1_000)]
    return [page.model_copy(update={"labels": each}) for each in labels]


def resolved(page: Page) -> Page:
    """The resolve of a page, a moment ago."""
    times = page.times.model_copy(update={"resolved_at": datetime.now(UTC)})
    return CAP.resolved().model_copy(update={"times": times})


@needs_alertmanager
def test_fired_and_resolved_at_once(
    alertmanager: Alertmanager, notifications: NotificationServer
) -> None:
    to = sender(alertmanager.url)
    page = recent(CAP).page()
    to.send(message(page))
    (held,) = alertmanager.alerts()
    lasts = datetime.fromisoformat(held["endsAt"]) - datetime.now(UTC)
    assert timedelta(seconds=230) < lasts <= timedelta(seconds=4 * INTERVAL)
    to.send(message(resolved(page)))
    told = notifications.wait(2)
    assert [one["status"] for one in told] == ["firing", "resolved"]
    assert alertmanager.alerts() == []


@needs_alertmanager
def test_labels_of_any_form_are_taken(alertmanager: Alertmanager) -> None:
    hostile = {
        "instance": 'a"b\\c\nd',
        "9-lives": "<b>",
        "empty": "",
        "lone": "\ud800",
        "long": "é" * 100_000,
        "alertname": "mine",
    }
    page = recent(CAP).page().model_copy(update={"labels": hostile})
    sender(alertmanager.url, labels={"team": "inference", "instance": "x"}).send(message(page))
    (held,) = alertmanager.alerts()
    labels = held["labels"]
    assert labels["instance"] == 'a"b\\c\nd'
    assert (labels["team"], labels["alertname"]) == ("inference", "BatchLimitBinding")
    assert labels["_9_lives"] == "<b>"
    assert "empty" not in labels


@needs_alertmanager
def test_one_of_a_cluster_that_is_down_is_no_failure_of_the_others(
    alertmanager: Alertmanager, capfd: pytest.CaptureFixture[str]
) -> None:
    with LoopbackServer() as gone:
        down = gone.address
    to = sender(down, alertmanager.url)
    to.send(message(recent(CAP).page()))
    assert len(alertmanager.alerts()) == 1
    told = capfd.readouterr().out
    assert down.removeprefix("http://") in told and "connection refused" in told
    answers = to.keep([recent(CAP).page()])
    assert answers[alertmanager.url.removeprefix("http://")] is None
    failure = answers[down.removeprefix("http://")]
    assert failure is not None and failure.message == "am: connection refused"
    assert refused(sender(down)).permanent is False


class Faulty(LoopbackServer):
    """Answers as it is planned to."""

    def judge(self, request: Request) -> Answer:
        return Answer(200)


@pytest.mark.parametrize(
    ("status", "body", "permanent"),
    [
        (400, '"bad label"', True),
        (500, "", False),
        (200, "<html>sign in</html>", True),
        (200, "{", False),
    ],
)
def test_what_an_answer_means(status: int, body: str, permanent: bool) -> None:
    with Faulty() as server:
        server.fail_next(status, body)
        login = {"username": "dw", "password_file": secret("canary")}
        error = refused(sender(server.address, basic_auth=login))
        assert error.permanent is permanent
        assert server.requests[0].headers["authorization"] == "Basic ZHc6Y2FuYXJ5"


def test_mimir_wants_a_tenant_and_answers_an_object() -> None:
    with Faulty() as server:
        server.fail_next(200, "{}")
        sender(server.address, tenant="team-a").send(message(CAP.page()))
        (request,) = server.requests
    assert request.headers["x-scope-orgid"] == "team-a"


def test_one_that_does_not_answer_is_asked_for_one_part_alone() -> None:
    """Else a storm's alerts would end at the others while it is waited for part by part."""
    pages = many_pages()
    with Faulty() as ill, Faulty() as refusing, Faulty() as well:
        for _ in range(5):
            ill.fail_next(503)
            refusing.fail_next(400, '"bad label"')
        answers = sender(ill.address, refusing.address, well.address).keep(pages)
        assert [len(one.requests) for one in (ill, refusing, well)] == [1, 5, 5]
    assert [failure is None for failure in answers.values()] == [False, False, True]
