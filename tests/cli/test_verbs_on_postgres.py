"""The verbs on a PostgreSQL database: named by --db, by the variable, by the configuration."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.postgres_server import PostgresServer
from incident_cases import START, incident

from driftwatch.store import Store, TickRecord
from driftwatch.store.tables import SCHEMA_REVISION as SCHEMA

Run = Callable[..., tuple[int, str, str]]
SECRET = "hunter2-canary"


@pytest.fixture
def url(postgres_url: str) -> str:
    """A database with one open incident."""
    with Store.open(postgres_url) as store:
        store.commit_tick(TickRecord(incidents=[incident("a")], since=START, until=START))
    return postgres_url


def test_what_people_do_to_an_incident(run: Run, url: str) -> None:
    assert run("incidents", "--db", url)[1].startswith("aaaa")
    assert run("ack", "a" * 12, "--by", "ann", "--db", url)[0] == 0
    assert run("ack", "a" * 12, "--useful", "--db", url)[0] == 0
    assert run("silence", "alert=EngineStuck", "--for", "1h", "--by", "ann", "--db", url)[0] == 0
    code, out, _ = run("silence", "--list", "--db", url)
    assert (code, "alert=EngineStuck" in out) == (0, True)
    with Store.open(url) as store:
        assert store.incident("a").acknowledged_by == "ann"
        assert list(store.marks(["a" * 12])) == ["a" * 12]


def test_the_variable_and_the_configuration_name_it(
    run: Run, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "driftwatch.yaml").write_text(
        f"sources: [{{pages: ['http://127.0.0.1:9/metrics']}}]\ndatabase: {url}\n"
        f"database_password_file: password\n"
    )
    (tmp_path / "password").write_text(f"{SECRET}\n")
    assert run("incidents")[1].startswith("aaaa")
    (tmp_path / "driftwatch.yaml").unlink()
    monkeypatch.setenv("DRIFTWATCH_DATABASE", url)
    assert run("incidents")[1].startswith("aaaa")


def test_the_schema(run: Run, url: str, postgres: PostgresServer) -> None:
    shown = r"postgresql:///driftwatch_\d+: schema"
    assert re.fullmatch(f"{shown} {SCHEMA}, nothing to do\n", run("db", "upgrade", "--db", url)[1])
    empty = postgres.url(postgres.new_database())
    assert run("incidents", "--db", empty)[0] == 2
    code, out, _ = run("db", "upgrade", "--db", empty)
    assert code == 0
    assert re.fullmatch(f"{shown} none -> {SCHEMA}\n", out)


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://me:{SECRET}@host/db",
        f"postgresql://me@host/db?password={SECRET}",
        f"mysql://me:{SECRET}@host/db",
    ],
)
def test_a_password_in_the_url_is_refused_and_not_shown(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    code, out, err = run("incidents", "--db", text)
    assert (code, out) == (2, "")
    assert SECRET not in err
    (tmp_path / "driftwatch.yaml").write_text(
        f"sources: [{{pages: ['http://127.0.0.1:9/metrics']}}]\ndatabase: {text}\n"
    )
    code, out, err = run("incidents", "-c", "driftwatch.yaml")
    assert (code, out) == (2, "")
    assert SECRET not in err
    (tmp_path / "driftwatch.yaml").unlink()
    monkeypatch.setenv("DRIFTWATCH_DATABASE", text)
    code, out, err = run("incidents")
    assert (code, out) == (2, "")
    assert SECRET not in err
