"""The verbs on a PostgreSQL database: named by --db, by the variable, by the configuration."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_cases import START, Run, incident
from fakes.postgres_server import PostgresServer

from driftwatch.store.store import Store, TickRecord
from driftwatch.store.tables import SCHEMA_REVISION as SCHEMA

SECRET = "hunter2-canary"
CONFIG = "sources: [{{pages: ['http://127.0.0.1:9/metrics']}}]\ndatabase: {}\n"


def test_every_way_to_name_it_and_its_schema(
    run: Run, postgres_url: str, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(postgres_url) as store:
        store.commit_tick(TickRecord(incidents=[incident("a")], until=START))
    assert run("ack", "a" * 12, "--by", "ann", "--db", postgres_url)[0] == 0
    with Store.open(postgres_url) as store:
        assert store.incident("a").acknowledged_by == "ann"
    Path("driftwatch.yaml").write_text(
        CONFIG.format(postgres_url) + "database_password_file: password\n"
    )
    Path("password").write_text(f"{SECRET}\n")
    assert "\naaaa" in run("incidents")[1]
    Path("driftwatch.yaml").unlink()
    monkeypatch.setenv("DRIFTWATCH_DATABASE", postgres_url)
    assert "\naaaa" in run("incidents")[1]
    empty = postgres.url(postgres.new_database())
    assert run("incidents", "--db", empty)[0] == 2
    code, out, _ = run("db", "upgrade", "--db", empty)
    assert code == 0
    assert re.fullmatch(rf"postgresql:///driftwatch_\d+: schema none -> {SCHEMA}\n", out)


@pytest.mark.parametrize("text", [f"postgresql://me:{SECRET}@host/db", f"mysql://me:{SECRET}@h/d"])
def test_a_password_in_the_url_is_refused_and_not_shown(
    run: Run, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    Path("c.yaml").write_text(CONFIG.format(text))
    shown = [run("incidents", "--db", text), run("incidents", "-c", "c.yaml")]
    monkeypatch.setenv("DRIFTWATCH_DATABASE", text)
    for code, out, err in (*shown, run("incidents")):
        assert (code, out, SECRET in err) == (2, "", False)
