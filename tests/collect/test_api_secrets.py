"""Whatever goes wrong: no message holds a token, a password or an address with one."""

from __future__ import annotations

import base64
import json
import shutil
import ssl
import subprocess
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fakes.loopback import Answer
from fakes.prometheus_api import PrometheusApi, Series, refused

from driftwatch.clock import SystemClock
from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.errors import AuthFailed, SourceError, Unavailable
from driftwatch.service.configuration import sources_of
from driftwatch.settings import load_settings

T0 = datetime(2026, 1, 1, tzinfo=UTC)
CANARY = "canary-4711"
SENT = base64.b64encode(f"user:{CANARY}".encode()).decode()

CREDENTIALS: list[dict[str, Any]] = [
    {"bearer_token": CANARY},
    {"bearer_token": lambda: CANARY},
    {"basic_auth": ("user", CANARY)},
    {"headers": {"X-Scope-OrgID": "team"}, "bearer_token": CANARY},
]
UNSENDABLE: list[dict[str, Any]] = [
    {"bearer_token": f"{CANARY}\n{CANARY}"},
    {"basic_auth": ("user", f"{CANARY}\u20ac")},
    {"headers": {"X-Scope-OrgID": f"{CANARY}\n"}},
]
SAYS = f"bad credentials 'Bearer {CANARY}', 'Basic {SENT}'"
ANSWERS = [
    Answer(401, json.dumps({"status": "error", "errorType": "auth", "error": SAYS})),
    Answer(503, json.dumps({"status": "error", "errorType": "auth", "error": SAYS})),
    refused(SAYS),
    refused(f"query timed out: {SAYS}", 422),
    Answer(302, "", {"Location": f"http://user:{CANARY}@elsewhere.invalid/"}),
    Answer(200, f"{CANARY} is not JSON"),
    Answer(200, '{"status":"success","data":{"resultType":"' + CANARY + '","result":[]}}'),
    Answer(0, hang=True),
]


def _told(error: BaseException) -> str:
    """All that a log shows of an error."""
    return "".join(traceback.format_exception(error)) + repr(error) + str(error)


def _refusal(address: str, options: Mapping[str, Any]) -> SourceError:
    asker = PrometheusAsker(address, timeout_seconds=0.5, **options)
    with pytest.raises(SourceError) as caught:
        asker.instant("up", T0)
    asker.close()
    return caught.value


@pytest.mark.parametrize("options", UNSENDABLE, ids=repr)
def test_what_cannot_be_sent_is_named_and_not_shown(options: dict[str, Any]) -> None:
    with PrometheusApi([]) as api:
        error = _refusal(api.address, options)
        assert api.requests == []
    assert type(error) is Unavailable
    assert "credentials or a header cannot be sent" in error.message
    assert CANARY not in _told(error)


@pytest.mark.parametrize(
    ("options", "answer"),
    list(zip(CREDENTIALS * 2, ANSWERS, strict=True)),
    ids=lambda one: one.status if isinstance(one, Answer) else " ".join(one),
)
def test_what_a_server_says_of_them_is_not_told(options: dict[str, Any], answer: Answer) -> None:
    with PrometheusApi([]) as api:
        api.faults = [("up", answer)]
        error = _refusal(api.address, options)
        assert api.queries
    assert CANARY not in _told(error)
    assert "basic_auth" not in options or SENT not in _told(error)


def test_a_long_token_that_was_cut_short_is_not_told_either() -> None:
    token = "".join(f"{number:04d}" for number in range(250))
    with PrometheusApi([]) as api:
        api.faults = [("up", refused(f"no such token: {token}"))]
        error = _refusal(api.address, {"bearer_token": token})
    assert error.message == "answers 400: bad_data: no such token: <secret>"


HELD = [Series({"__name__": "up", "instance": "a:1"}, [(T0.timestamp(), "1")], 10)]


def certificate(folder: Path) -> tuple[Path, Path]:
    """An authority that signs itself, for 127.0.0.1."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder.mkdir()
    key, cert = folder / "key.pem", folder / "ca.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=x",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    return key, cert


def test_only_the_authority_that_is_named_is_believed(tmp_path: Path) -> None:
    key, cert = certificate(tmp_path / "ours")
    _, other = certificate(tmp_path / "other")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    api = PrometheusApi(HELD)
    api._http.socket = context.wrap_socket(api._http.socket, server_side=True)
    with api:
        url = api.address.replace("http://", "https://")
        asker = PrometheusAsker(url, verify=str(cert), headers={"X-Scope-OrgID": "team"})
        assert asker.instant("up", T0) == [(dict(HELD[0].labels), 1.0)]
        asker.close()
        assert api.requests[0].headers["x-scope-orgid"] == "team"
        for verify in (True, str(other)):
            asker = PrometheusAsker(url, verify=verify)
            with pytest.raises(Unavailable, match=r"(?i)certificate"):
                asker.instant("up", T0)
            asker.close()
    assert len(api.requests) == 1


def test_a_token_that_rotates_and_one_that_is_lost(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    with PrometheusApi(HELD) as api:
        config = tmp_path / "driftwatch.yaml"
        config.write_text(
            f"sources: [{{prometheus: '{api.address}', bearer_token_file: token, tenant: team}}]\n"
        )
        sources = sources_of(load_settings(config), SystemClock())
        source = next(one for one in sources if isinstance(one, PrometheusSource))
        asker = source._asker
        asker.instant("up", T0)
        token.write_text("second\n")
        asker.instant("up", T0)
        token.unlink()
        with pytest.raises(AuthFailed, match="token"):
            asker.instant("up", T0)
        for one in sources:
            one.close()
    assert [r.headers["authorization"] for r in api.requests] == ["Bearer first", "Bearer second"]
    assert {r.headers["x-scope-orgid"] for r in api.requests} == {"team"}
