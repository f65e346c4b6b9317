"""A canary in every secret field; then it is in nothing that driftwatch prints, keeps or shows.

The service runs as a process against a server that repeats each secret in its answers.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from base64 import b64decode, b64encode
from binascii import Error
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests
from click.testing import CliRunner
from fakes.loopback import Answer, LoopbackServer, Request
from fakes.postgres_server import PostgresServer
from fakes.smtp_server import SmtpServer
from outbox import planned
from page_cases import CAP
from settings_field_cases import fields

from driftwatch import address_guard
from driftwatch.cli.main import cli
from driftwatch.collect import http_session
from driftwatch.database_place import place_of
from driftwatch.errors import DeliveryError
from driftwatch.incidents.incident import Transition
from driftwatch.receivers.registry import build_senders
from driftwatch.service.liveness import ping
from driftwatch.settings import load_settings
from driftwatch.store.store import Store, TickRecord


class Echo(LoopbackServer):
    """Refuses everything, and repeats path, headers and body: in a text, and in a redirect."""

    def __init__(self) -> None:
        super().__init__()
        self._turn = itertools.count()

    def judge(self, request: Request) -> Answer:
        """Another status each time."""
        login = request.headers.get("authorization", "").rpartition(" ")[2]
        with suppress(Error, ValueError):
            login += " " + b64decode(login, validate=True).decode(errors="replace")
        text = f"{login} {request.path} {json.dumps(request.headers)} {request.body.decode()}"
        status = (403, 302, 500, 200, 429)[next(self._turn) % 5]
        to = f"http://127.0.0.1:9{request.path}?{login.replace(' ', '+')}"
        headers = {"Location": to, "Content-Type": "application/json"} if status == 302 else {}
        if status == 403 and "/api/v1/" in request.path:
            text = json.dumps({"status": "error", "errorType": "x", "error": text})
        return Answer(status, text, headers)


class Canaries:
    """A canary a field, and what stands in the configuration for it."""

    def __init__(self, folder: Path, in_files: bool) -> None:
        self.by_field: dict[str, str] = {}
        self._folder, self._in_files = folder, in_files

    def of(self, field: str, form: str = "{}") -> dict[str, str]:
        """The field, inline or as file; ``form``: the secret, with the canary in its braces."""
        name = field.rpartition(".")[2]
        as_file = name.endswith("_file")
        path = field if as_file or not self._in_files else f"{field}_file"
        canary = self.by_field[path] = f"canary{len(self.by_field):02d}xyzzy"
        secret = form.format(canary)
        if path.endswith("_file"):
            file = self._folder / path
            file.write_text(secret + "\n")
            file.chmod(0o600)
            return {path.rpartition(".")[2]: str(file)}
        return {name: secret}

    def within(self, texts: dict[str, str]) -> list[tuple[str, str]]:
        """Where a canary stands: (text's name, field). Base64 of a login counts."""
        shapes = {
            field: (canary, b64encode(f"watch:{canary}".encode()).decode())
            for field, canary in self.by_field.items()
        }
        return [
            (name, field)
            for name, text in texts.items()
            for field, forms in shapes.items()
            if any(form in text for form in forms)
        ]


def configuration(one: Canaries, url: str, relay: int, rest: dict[str, Any]) -> dict[str, Any]:
    """Everything that takes a secret, all of it at the echo."""
    auth = {"username": "watch"}
    at = "receivers"
    ntfy = url.replace("http://", "ntfy://user:")
    mail = {"host": "127.0.0.1", "port": relay, "from": "a@b.example", "to": ["c@d.example"]}
    app = {"channel": "C024BE91L", "users": ["U024BE7LH"], "api_url": f"{url}/slack/api/"}
    receivers: dict[str, dict[str, Any]] = {
        "hook": {"webhook": one.of(f"{at}.webhook.url", url + "/hook/{}")
                 | one.of(f"{at}.webhook.secret_file")},
        "slack": {"slack": one.of(f"{at}.slack.webhook_url_file", url + "/slack/{}")},
        "app": {"slack": {**app, **one.of(f"{at}.slack.bot_token_file", "xoxb-{}"),
                          **one.of(f"{at}.slack.app_token_file", "xapp-{}")}},
        "pager": {"pagerduty": {"url": f"{url}/pager", **one.of(f"{at}.pagerduty.routing_key_file",
                                                                "{}" + "0" * 19)}},
        "am": {"alertmanager": {"urls": [f"{url}/am"], "interval": "5s", "basic_auth":
               {**auth, **one.of(f"{at}.alertmanager.basic_auth.password_file")}}},
        "am2": {"alertmanager": {"urls": [f"{url}/am2"],
                                 **one.of(f"{at}.alertmanager.bearer_token_file")}},
        "mail": {"email": {**mail, "user": "watch", **one.of(f"{at}.email.password_file")}},
        "phone": {"apprise": one.of(f"{at}.apprise.address_file", ntfy.replace("user:", "user:{}@")
                                    + "/topic")},
    }  # fmt: skip
    return {
        "sources": [
            {"prometheus": f"{url}/p1",
             "basic_auth": {**auth, **one.of("sources.basic_auth.password_file")}},
            {"prometheus": f"{url}/p2", **one.of("sources.bearer_token_file")},
            {"pages": [f"{url}/metrics"]},
        ],
        "heartbeat": one.of("heartbeat.url", url + "/beat/{}"),
        "web": one.of("web.token_file"),
        "interval": "1s",
        "receivers": [{"name": name, **kind} for name, kind in receivers.items()],
        **rest,
    }  # fmt: skip


def seed(store: Store, receivers: list[str]) -> str:
    """An incident whose page every receiver is to get; returns its id."""
    now = datetime.now(UTC).replace(microsecond=0)
    page, fired = CAP.page(), CAP.incident
    deliveries = [planned(fired.id, page, now, name) for name in receivers]
    store.commit_tick(
        TickRecord(
            now,
            incidents=[fired],
            transitions=[Transition(fired, "firing", now)],
            deliveries=deliveries,
        )
    )
    return fired.id


VERBS = [
    ["check"], ["doctor"], ["doctor", "--json"], ["incidents"], ["incidents", "--json"],
    ["db", "upgrade"],
]  # fmt: skip


def processes(parent: int) -> str:
    """Command line and environment of a process and of its children."""
    texts = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            ids = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(folder.name) == parent or int(ids[1]) == parent:
                texts += [(folder / name).read_text() for name in ("cmdline", "environ")]
        except (OSError, UnicodeDecodeError):
            continue  # it ended
    return "\n".join(texts)


def served(config: Path, echo: Echo, port: int, wanted: set[str]) -> dict[str, str]:
    """What a running service shows: log, its pages, the process table."""
    words = [sys.executable, "-m", "driftwatch", "--debug", "run", "-c", str(config)]
    with (config.parent / "log").open("w+") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, cwd=config.parent)
        texts = {"processes": "", "pages": ""}
        try:
            over = time.monotonic() + 120
            while time.monotonic() < over and process.poll() is None:
                texts["processes"] += processes(process.pid)
                asked = {request.path.split("/")[1] for request in echo.requests}
                if wanted <= asked:
                    break
                time.sleep(0.05)
            assert wanted <= asked, (config.parent / "log").read_text()
            for path in ("metrics", "-/ready", "-/healthy", "x"):
                texts["pages"] += requests.get(f"http://127.0.0.1:{port}/{path}", timeout=10).text
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
    return {**texts, "log": (config.parent / "log").read_text()}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def commands(config: Path, calls: list[list[str]], patch: pytest.MonkeyPatch) -> dict[str, str]:
    """What each verb prints, and the traceback of one that broke."""
    texts = {}
    for words in calls:
        done = CliRunner().invoke(cli, [*words, "-c", str(config)], standalone_mode=False)
        texts[" ".join(words)] = done.output + _trace(done.exception)

    def broken(*_: Any) -> Any:
        raise RuntimeError("not expected")

    for module in (http_session, address_guard):
        patch.setattr(module, "permitted_addresses", broken)
    for name in ("hook", "app", "am", "mail"):
        words = ["--debug", "doctor", "--send-test", name, "-c", str(config)]
        done = CliRunner().invoke(cli, words, standalone_mode=False)
        assert isinstance(done.exception, RuntimeError)
        texts[f"broken {name}"] = done.output + _trace(done.exception)
    return texts


def _trace(error: BaseException | None) -> str:
    return "" if error is None else "".join(traceback.format_exception(error)) + repr(error)


def kept(database: str, postgres: PostgresServer | None, folder: Path) -> dict[str, str]:
    """All that the database holds."""
    if postgres is None:
        return {p.name: p.read_bytes().decode("latin-1") for p in folder.glob("driftwatch.db*")}
    name = dict(place_of(database).parameters)["dbname"]  # type: ignore[union-attr]
    tables = postgres.query(
        "SELECT tablename FROM pg_tables WHERE schemaname NOT IN "
        "('pg_catalog', 'information_schema')", name
    )  # fmt: skip
    return {
        table: str(postgres.query(f'SELECT t::text FROM "{table}" t', name)) for (table,) in tables
    }


@pytest.mark.parametrize(
    "form", [pytest.param("inline", marks=pytest.mark.slow), "files", "postgres"]
)
def test_no_canary_is_anywhere(
    form: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    canaries, port = Canaries(secrets, form != "inline"), free_port()
    rest: dict[str, Any] = {
        "listen": f"127.0.0.1:{port}",
        "database": str(tmp_path / "driftwatch.db"),
    }
    postgres = None
    if form == "postgres":
        postgres = request.getfixturevalue("postgres")
        rest |= {"database": request.getfixturevalue("postgres_url")}
        rest |= canaries.of("database_password_file")
    with Echo() as echo, SmtpServer() as relay:
        config = tmp_path / "driftwatch.yaml"
        document = configuration(canaries, echo.address, relay.port, rest)
        config.write_text(json.dumps(document))
        names = [one["name"] for one in document["receivers"]]
        settings = load_settings(config, environ={})
        store = Store.open(settings.database_place)
        incident = seed(store, names)
        store.close()
        wanted = {"hook", "slack", "pager", "am", "am2", "p1", "p2", "metrics"}
        texts = served(config, echo, port, wanted)
        # the service sends none here: its sources give no answer
        assert settings.heartbeat is not None
        texts["heartbeat"] = repr(settings.heartbeat)
        for _ in range(5):
            try:
                ping(settings.heartbeat.read_url)
            except DeliveryError as error:
                texts["heartbeat"] += _trace(error)
        calls = {
            "inline": [["doctor", "--send-test", name, "--resolve"] for name in names],
            "files": VERBS,
            "postgres": [["incidents", "--json"], ["db", "upgrade"], ["check"]],
        }[form]
        texts |= commands(config, calls, monkeypatch)
    senders = build_senders(settings.receivers)
    texts["objects"] = repr((settings, senders))
    texts["dump"] = settings.model_dump_json() + str(settings.model_dump())
    texts |= kept(str(rest["database"]), postgres, tmp_path)
    assert incident in texts.get("incidents --json", incident)
    assert "REFUSED" in texts.get("doctor --send-test hook --resolve", "REFUSED")
    assert canaries.within(texts) == []
    # the search sees what it looks for
    shown = {"sent": "".join(f"{one.path} {one.headers} {one.body!r}" for one in echo.requests)}
    assert len(canaries.within(shown)) >= 8


def test_every_secret_field_has_a_canary(tmp_path: Path) -> None:
    """A new field without one fails here."""
    covered: set[str] = set()
    for in_files in (False, True):
        canaries = Canaries(tmp_path, in_files)
        configuration(canaries, "http://127.0.0.1:9", 25, canaries.of("database_password_file"))
        covered |= canaries.by_field.keys()
    assert {path for path, kind in fields() if kind in ("secret", "file")} == covered
    assert os.environ.get("DRIFTWATCH_DATABASE") is None
