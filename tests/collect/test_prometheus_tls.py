"""A Prometheus API behind TLS whose authority is our own, a tenant, and a token that rotates."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fakes.prometheus_api import PrometheusApi, Series

from driftwatch.clock import SystemClock
from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.errors import AuthFailed, Unavailable
from driftwatch.service.configuration import sources_of
from driftwatch.settings import load_settings

T0 = datetime(2026, 1, 1, tzinfo=UTC)
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
