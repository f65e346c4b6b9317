"""A canary in every secret field; then it is in nothing that driftwatch prints, keeps or shows.

The service runs as a process against a server that repeats each secret in its answers.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import pytest
import requests
from canary_cases import Canaries, Echo, configuration, seed
from click.testing import CliRunner
from fakes.postgres_server import PostgresServer
from fakes.smtp_server import SmtpServer
from settings_field_cases import fields

from driftwatch import address_guard
from driftwatch.cli.main import cli
from driftwatch.collect import http_session
from driftwatch.database_place import place_of
from driftwatch.errors import DeliveryError
from driftwatch.receivers.registry import build_senders
from driftwatch.service.liveness import ping_of
from driftwatch.settings import load_settings
from driftwatch.store.store import Store

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
                if wanted <= asked and "apprise" in texts["processes"]:
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
        beat = ping_of(settings.heartbeat)
        texts["heartbeat"] = repr(beat)
        for _ in range(5):
            try:
                beat.send()
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
