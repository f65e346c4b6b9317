"""What receivers that know alerts alone ignore, and `doctor --send-test`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fakes.alertmanager import NotificationServer
from fakes.pagerduty_server import ROUTING_KEY, PagerdutyServer
from page_cases import CAP
from receiver_cases import acknowledged, message, repeat, report, updated

from driftwatch.cli.main import cli
from driftwatch.receivers.registry import build_senders
from driftwatch.receivers.sender import Message
from driftwatch.settings import ReceiverSettings

PAGE = CAP.page()
MESSAGES: dict[str, Message] = {
    "firing": message(PAGE),
    "repeat": repeat(PAGE),
    "updated": updated(PAGE),
    "acknowledged": acknowledged(PAGE),
    "resolved": message(CAP.resolved()),
    "report": Message("report", "2026-W47", "report", 0, report()),
}


@pytest.fixture
def pagerduty() -> Iterator[PagerdutyServer]:
    with PagerdutyServer() as server:
        yield server


def _settings(pagerduty: PagerdutyServer, folder: Path) -> dict[str, Any]:
    (folder / "key").write_text(ROUTING_KEY)
    key = {"routing_key_file": folder / "key", "url": pagerduty.address}
    return {"name": "one", "pagerduty": key}


@pytest.mark.parametrize(
    ("kind", "ignored"),
    [
        ("alertmanager", {"repeat", "report"}),
        ("webhook", set()),
    ],
)
def test_what_is_ignored_is_not_sent(kind: str, ignored: set[str]) -> None:
    sent = set()
    for name, one in MESSAGES.items():
        with NotificationServer() as server:
            of = {
                "alertmanager": {"alertmanager": {"urls": [server.address]}},
                "webhook": {"webhook": {"url": server.address}},
            }[kind]
            settings = ReceiverSettings.model_validate({"name": "one", **of})
            assert settings.form == kind
            build_senders([settings])["one"].send(one)
            sent |= {name} if server.requests else set()
    assert sent == MESSAGES.keys() - ignored


def test_pagerduty_gets_no_report(pagerduty: PagerdutyServer, tmp_path: Path) -> None:
    sender = build_senders([ReceiverSettings.model_validate(_settings(pagerduty, tmp_path))])["one"]
    sender.send(MESSAGES["report"])
    assert pagerduty.requests == []
    sender.send(MESSAGES["acknowledged"])
    assert len(pagerduty.requests) == 1


@pytest.mark.parametrize("resolve", [False, True])
def test_notify_test(pagerduty: PagerdutyServer, tmp_path: Path, resolve: bool) -> None:
    """Without its resolve PagerDuty keeps it open."""
    file = tmp_path / "driftwatch.yaml"
    file.write_text(
        json.dumps({"receivers": [_settings(pagerduty, tmp_path)]}, default=str), encoding="utf-8"
    )
    words = ["doctor", "--send-test", "one", "-c", str(file), *["--resolve"] * resolve]
    done = CliRunner().invoke(cli, words, standalone_mode=False)
    assert done.return_value == 0, done.output
    assert len(pagerduty.requests) == 1 + resolve
    said = "and its resolve" if resolve else "; PagerDuty keeps it open: --resolve ends it"
    assert done.stdout == f"delivered: one took the test page{' ' * resolve}{said}\n"
