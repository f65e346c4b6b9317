"""No address of the settings reaches a metadata service, in no notation, whatever a name answers.

Every way out is walked: a field of the settings that holds an address and has no way here fails.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from settings_field_cases import fields

from driftwatch.clock import SystemClock
from driftwatch.errors import DeliveryError, SourceError
from driftwatch.receivers.http import post
from driftwatch.receivers.registry import build_senders, sample_pages
from driftwatch.receivers.sender import message_of
from driftwatch.service.configuration import sources_of
from driftwatch.service.liveness import ping
from driftwatch.settings import ReceiverSettings, Settings

AT = datetime(2026, 11, 18, 2, 56, tzinfo=UTC)
NUMBERS = itertools.count()
MAIL = {"tls": "none", "from": "a@example.org", "to": ["b@example.org"]}


def receiver(kind: str, **settings: Any) -> None:
    one = ReceiverSettings.model_validate({"name": "ops", kind: settings})
    build_senders([one])["ops"].send(message_of(sample_pages("ops", AT)[0]))


def app(folder: Path, url: str) -> None:
    # one of its own: an app waits a second between two messages to a channel
    (folder / "bot").write_text(f"xoxb-{next(NUMBERS)}")
    token = str(folder / "bot")
    receiver("slack", bot_token_file=token, channel="C024BE91L", api_url=f"{url}/api/")


def heartbeat(**settings: Any) -> None:
    whole = Settings.model_validate({"heartbeat": settings})
    assert whole.heartbeat is not None
    ping(whole.heartbeat.read_url)


def written(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


def source(**settings: Any) -> None:
    now = datetime.now(UTC)
    whole = Settings.model_validate({"sources": [settings]})
    with ExitStack() as stack:
        # a Prometheus is two: of vLLM, of DCGM
        sources = [stack.enter_context(closing(one)) for one in sources_of(whole, SystemClock())]
        for one in sources:
            one.collect(now - timedelta(minutes=1), now)


# field of the settings → how driftwatch goes there; ``host`` as in a URL, ``folder`` for secrets
WAYS: dict[str, Callable[[str, Path], Any]] = {
    "heartbeat.url": lambda host, _: heartbeat(url=f"http://{host}/x"),
    "receivers.alertmanager.urls": lambda host, _: receiver(
        "alertmanager", urls=[f"http://{host}"]
    ),
    "receivers.email.host": lambda host, _: receiver("email", host=host, **MAIL),
    "receivers.pagerduty.url": lambda host, folder: receiver(
        "pagerduty", routing_key_file=written(folder / "key", "0" * 32), url=f"http://{host}"
    ),
    "receivers.slack.api_url": lambda host, folder: app(folder, f"http://{host}"),
    "receivers.webhook.url": lambda host, _: receiver("webhook", url=f"http://{host}/x"),
    "sources.dcgm": lambda host, _: source(dcgm=[f"http://{host}/metrics"]),
    "sources.pages": lambda host, _: source(pages=[f"http://{host}/metrics"]),
    "sources.prometheus": lambda host, _: source(prometheus=f"http://{host}"),
}
# links that pages print: driftwatch never asks for them
NEVER_ASKED = {"external_url", "web.grafana"}
# addresses that no field holds
OTHERS: dict[str, Callable[[str, Path], Any]] = {
    "a webhook's file": lambda host, folder: receiver(
        "slack", webhook_url_file=written(folder / "url", f"http://{host}/")
    ),
    "what Slack names": lambda host, _: post("ops", f"http://{host}/actions", b"{}"),
}
NOTATIONS = [
    *("169.254.169.254", "2852039166", "0xA9FEA9FE", "0251.0376.0251.0376", "0xa9.0xfe.0xa9.0xfe"),
    *("169.254.43518", "169.16689662", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]"),
    *("[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::a9fe:a9fe]", "[2002:a9fe:a9fe::]", "[::a9fe:a9fe]"),
    *("[fe80::1]", "[fd00:ec2::254]", "[fd00:ec2::23]", "[fd20:ce::254]", "168.63.129.16"),
    *("100.100.100.200", "192.0.0.192", "224.0.0.1", "[ff02::1]", "0.0.0.0", "[::]", "0"),
    *("255.255.255.255", "0.1.2.3", "metadata.example", "metadata.example."),
]


class Network:
    """A resolver that knows ``metadata.example``, and a list of what was connected to."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.answers = {"metadata.example": ["169.254.169.254"]}
        self.asked: list[str] = []
        self.tried: list[str] = []
        look_up = socket.getaddrinfo

        def getaddrinfo(host: Any, port: Any, *rest: Any, **named: Any) -> Any:
            text = host.decode() if isinstance(host, bytes) else str(host)
            self.asked.append(text)
            numeric = self.answers.get(text.rstrip("."))
            if numeric is None:
                return look_up(text, port, *rest, **named)
            address = numeric.pop(0) if len(numeric) > 1 else numeric[0]
            return look_up(address, port, *rest, **named)

        def connect(_: socket.socket, target: Any) -> None:
            self.tried.append(target[0])
            raise ConnectionRefusedError(111, "Connection refused")

        patch.setattr(socket, "getaddrinfo", getaddrinfo)
        patch.setattr(socket.socket, "connect", connect)


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    return Network(monkeypatch)


def test_every_address_of_the_settings_has_its_way() -> None:
    addresses = {path for path, kind in fields() if kind in ("url", "host")}
    assert addresses - NEVER_ASKED == WAYS.keys()


@pytest.mark.parametrize("way", [*WAYS, *OTHERS])
def test_no_notation_of_a_metadata_service_is_connected_to(
    way: str, network: Network, tmp_path: Path
) -> None:
    go = {**WAYS, **OTHERS}[way]
    for host in NOTATIONS:
        try:
            with suppress(DeliveryError, SourceError):
                go(host, tmp_path)
        except ValueError:
            assert way == "receivers.email.host", host
        assert network.tried == [], host


@pytest.mark.parametrize("way", [*WAYS, *OTHERS])
def test_a_name_that_changes_its_answer_is_connected_to_as_checked(
    way: str, network: Network, tmp_path: Path
) -> None:
    network.answers["rebind.example"] = ["127.0.0.1", "169.254.169.254"]
    with suppress(DeliveryError, SourceError):
        {**WAYS, **OTHERS}[way]("rebind.example", tmp_path)
    assert network.tried, "it was not connected to at all"
    assert set(network.tried) == {"127.0.0.1"}
