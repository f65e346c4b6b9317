"""Apprise, through ntfy: what arrives is only text; its address is never shown."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest
from fakes.ntfy_server import TOPIC, NtfyServer
from page_cases import CAP
from receiver_cases import message, refused
from secret_file import secret

from driftwatch.address_guard import REFUSED
from driftwatch.errors import ConfigError
from driftwatch.receivers.apprise import AppriseSender
from driftwatch.settings.receivers import AppriseReceiver


def sender(address: str, name: str = "phone") -> AppriseSender:
    return AppriseSender(name, AppriseReceiver(address_file=secret(address)))


@pytest.fixture
def ntfy() -> Iterator[NtfyServer]:
    with NtfyServer() as server:
        yield server


def test_a_page_and_its_resolve_arrive(ntfy: NtfyServer) -> None:
    to = sender(ntfy.apprise_address)
    to.send(message(CAP.page()))
    to.send(message(CAP.resolved()))
    fired, resolved = ntfy.messages
    assert fired["topic"] == TOPIC
    assert fired["title"] == CAP.page().summary.translate({ord("~"): "∼"})
    assert fired["message"].startswith("Since: 2026-11-18 02:45 UTC")
    assert resolved["title"].startswith("RESOLVED host:8000")


@pytest.mark.parametrize("status", [400, 500, 204])
def test_what_the_service_does_not_take_is_tried_again(ntfy: NtfyServer, status: int) -> None:
    ntfy.fail_next(status, "no canary")
    error = refused(sender(ntfy.apprise_address))
    assert (error.message, error.permanent) == ("phone: apprise could not send it", False)


def test_no_redirect_is_followed(ntfy: NtfyServer) -> None:
    with NtfyServer() as other:
        ntfy.fail_next(307, Location=other.address)
        refused(sender(ntfy.apprise_address))
        assert other.requests == []


def test_addresses_that_are_refused_or_none(ntfy: NtfyServer) -> None:
    error = refused(sender("ntfy://169.254.169.254/canary", name="a"))
    assert (error.message, error.permanent) == (f"a: {REFUSED}", True)
    error = refused(sender("canary://x", name="a"))
    assert (error.message, error.permanent) == ("a: apprise does not know its address", True)


def test_without_the_extra_it_is_a_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    settings = AppriseReceiver(address_file=secret("ntfy://canary"))
    with pytest.raises(ConfigError) as caught:
        AppriseSender("phone", settings).check()
    (problem,) = caught.value.problems
    assert problem.path == "receiver phone"
    assert problem.message == "it needs Apprise, which is not installed"
    assert problem.help_text == "pip install 'vllm-driftwatch[apprise]'"
    assert "canary" not in str(caught.value) + repr(settings)
