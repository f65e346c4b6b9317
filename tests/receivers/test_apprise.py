"""Apprise, through ntfy: what arrives is only text; bounded in time; its address is never shown."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.ntfy_server import TOPIC, NtfyServer
from page_cases import CAP, CASES
from receiver_cases import message, refused

from driftwatch.errors import ConfigError
from driftwatch.receivers.apprise import BODY_LIMIT, AppriseSender, harmless, job_of, sender_of
from driftwatch.settings.receivers import AppriseReceiver


@pytest.fixture
def ntfy() -> Iterator[NtfyServer]:
    with NtfyServer() as server:
        yield server


def test_a_page_and_its_resolve_arrive(ntfy: NtfyServer) -> None:
    to = AppriseSender("phone", ntfy.apprise_address)
    to.send(message(CAP.page()))
    to.send(message(CAP.resolved()))
    fired, resolved = ntfy.messages
    assert fired["topic"] == TOPIC
    assert fired["title"] == CAP.page().summary.translate({ord("~"): "∼"})
    assert fired["message"].startswith("Since: 2026-11-18 02:45 UTC")
    assert resolved["title"].startswith("RESOLVED host:8000")


@pytest.mark.parametrize(("status", "permanent"), [(400, True), (500, False)])
def test_what_an_answer_means(ntfy: NtfyServer, status: int, permanent: bool) -> None:
    ntfy.fail_next(status, "no canary")
    error = refused(AppriseSender("phone", ntfy.apprise_address))
    assert (error.message, error.permanent) == (f"phone answered {status}", permanent)


def test_a_status_that_the_service_does_not_give_is_no_success(ntfy: NtfyServer) -> None:
    ntfy.fail_next(204, "")
    error = refused(AppriseSender("phone", ntfy.apprise_address))
    assert (error.message, error.permanent) == ("phone: apprise could not send it", False)
    assert ntfy.messages == []


def test_no_redirect_is_followed(ntfy: NtfyServer) -> None:
    with NtfyServer() as other:
        ntfy.fail_next(307, Location=other.address)
        refused(AppriseSender("phone", ntfy.apprise_address))
        assert other.requests == []


def test_one_that_hangs_meets_the_deadline(ntfy: NtfyServer) -> None:
    ntfy.hang_next()
    error = refused(AppriseSender("phone", ntfy.apprise_address + "?rto=60", seconds=3.0))
    assert (error.message, error.permanent) == ("phone: timed out after 3 s", False)


def test_addresses_that_are_refused_or_none(ntfy: NtfyServer) -> None:
    assert "could not send" in refused(AppriseSender("a", "ntfy://169.254.169.254/canary")).message
    error = refused(AppriseSender("a", "canary://x"))
    assert (error.message, error.permanent) == ("a: apprise does not know its address", True)


HOSTILE = "<!channel> *b* __u__ [x](http://evil) @everyone ~s~ `c` #h |x|"


def test_a_label_formats_mentions_and_links_nothing() -> None:
    incident = replace(CAP.incident, target={"instance": HOSTILE, "engine": "0"})
    job: dict[str, Any] = job_of(message(replace(CAP, incident=incident).page()))
    for sign in ("*", "<", "[", "](", "@", "__", "`", "~", "#", "|"):
        assert sign not in job["title"] + job["body"].rpartition("\ndriftwatch: ")[0], sign
    assert "://" not in job["title"]
    assert harmless("max_num_seqs 8 → 40") == "max_num_seqs 8 → 40"


def test_every_page_has_room() -> None:
    assert max(len(job_of(message(case.page()))["body"]) for case in CASES.values()) <= BODY_LIMIT


def test_without_the_extra_it_is_a_configuration_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (tmp_path / "address").write_text("ntfy://canary")
    settings = AppriseReceiver.model_validate({"address_file": tmp_path / "address"})
    with pytest.raises(ConfigError) as caught:
        sender_of("phone", settings)
    (problem,) = caught.value.problems
    assert problem.path == "receiver phone"
    assert problem.message == "it needs Apprise, which is not installed"
    assert problem.help_text == "pip install 'vllm-driftwatch[apprise]'"
    assert "canary" not in str(caught.value) + repr(settings)
