"""Opening, migrating, and every way in which a database does not serve."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from made_incidents import with_values
from sqlalchemy import event
from store_cases import committer, pending

from driftwatch.errors import StoreError
from driftwatch.installation import shipped
from driftwatch.store.database import reading
from driftwatch.store.migrate import upgrade_database
from driftwatch.store.store import Store
from driftwatch.store.tables import SCHEMA_REVISION

pytestmark = pytest.mark.usefixtures("migrations_run")


def failure(path: Path | str, **options: object) -> StoreError:
    with pytest.raises(StoreError) as caught:
        Store.open(path, **options)  # type: ignore[arg-type]
    assert caught.value.help_text
    return caught.value


# the schema


def test_it_is_set_up_to_survive_a_power_cut(path: Path) -> None:
    with Store.open(path) as store, reading(store._engine) as connection:
        found = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


# migrating


def test_opening_makes_the_file_and_opening_again_keeps_it(path: Path) -> None:
    with Store.open(path) as store:
        committer(store)(pending())
    with Store.open(f"sqlite:///{path}") as store:
        assert list(store.open_incidents().values()) == [pending()]


def _versions() -> list[Path]:
    return sorted((shipped("migrations") / "versions").glob("*.py"))


def test_a_failed_migration_leaves_the_database_as_it_was(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both steps run in one transaction: the good one before the bad one is taken back too."""
    Store.open(path).close()
    scripts = tmp_path / "migrations"
    (scripts / "versions").mkdir(parents=True)
    for script in (shipped("migrations") / "env.py", *_versions()):
        place = scripts if script.name == "env.py" else scripts / "versions"
        (place / script.name).write_text(script.read_text())
    step = (
        "import sqlalchemy as sa\nfrom alembic import op\n"
        "revision = {0!r}\ndown_revision = {1!r}\n"
        "def upgrade():\n    op.create_table('t{0}', sa.Column('a', sa.Integer()))\n{2}"
    )
    (scripts / "versions" / "9001_good.py").write_text(step.format("9001", SCHEMA_REVISION, ""))
    (scripts / "versions" / "9002_bad.py").write_text(
        step.format("9002", "9001", "    op.execute('SELECT * FROM nowhere')\n")
    )
    monkeypatch.setattr("driftwatch.store.migrate.shipped", lambda _name: scripts)
    monkeypatch.setattr("driftwatch.store.migrate.SCHEMA_REVISION", "9002")
    with pytest.raises(StoreError, match="nowhere"):
        upgrade_database(path)
    with sqlite3.connect(path) as raw:
        versions = raw.execute("SELECT version_num FROM alembic_version").fetchall()
        assert versions == [(SCHEMA_REVISION,)]
        names = {row[0] for row in raw.execute("SELECT name FROM sqlite_master")}
    raw.close()
    assert "t9001" not in names
    assert "incidents" in names


# what does not serve


def test_what_is_missing_is_named_and_not_made(tmp_path: Path, path: Path) -> None:
    folder, file = failure(tmp_path / "no" / "a.db"), failure(path, migrate=False)
    assert (folder.code, file.code) == ("missing", "missing")
    assert "mkdir -p" in (folder.help_text or "")
    assert str(path) in file.message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("revision", ["9999", "0015"])
def test_a_schema_that_no_migration_leads_from(path: Path, revision: str) -> None:
    Store.open(path).close()
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE alembic_version SET version_num = ?", (revision,))
    raw.close()
    before = path.read_bytes()
    for migrate in (True, False):
        error = failure(path, migrate=migrate)
        assert error.code == "other-schema"
        assert revision in error.message
        assert "another database" in (error.help_text or "")
    assert path.read_bytes() == before


def test_a_database_of_somebody_else_is_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as raw:
        raw.execute("CREATE TABLE customers (name TEXT)")
    raw.close()
    before = path.read_bytes()
    for migrate in (True, False):
        error = failure(path, migrate=migrate)
        assert error.code == "foreign"
        assert "customers" in error.message
    assert path.read_bytes() == before


def test_what_is_no_database(path: Path) -> None:
    path.write_bytes(b"sources: [{prometheus: http://prometheus:9090}]\n" * 100)
    before = path.read_bytes()
    assert failure(path).code == "corrupt"
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@host/db",
        "postgresql://me@host/db?password=hunter2",
        "postgresql://me:hunter2@host:port/db",
        "postgresql://host",
        "mysql://me:hunter2@x",
        ":memory:",
        "sqlite:///",
        "",
    ],
)
def test_other_kinds_are_named_and_no_password_is_shown(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        Store.open(url)
    assert caught.value.code == "unsupported"
    assert "hunter2" not in caught.value.message


def test_locked(path: Path) -> None:
    with Store.open(path, busy_seconds=0.05) as store:
        committer(store)(pending())
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError) as caught:
            committer(store)()
        assert caught.value.code == "locked"
        assert list(store.open_incidents().values()) == [pending()]  # reading goes on
        other.execute("ROLLBACK")
        other.close()
        committer(store)()
        assert store.open_incidents() == {}


def test_full(path: Path) -> None:
    with Store.open(path) as store:
        committer(store)(pending())

        @event.listens_for(store._engine, "begin")
        def _small(connection: object) -> None:
            connection.exec_driver_sql("PRAGMA max_page_count = 1")  # type: ignore[attr-defined]

        with pytest.raises(StoreError) as caught:
            committer(store)(with_values(pending("b"), alert="x" * 100_000), memory={"m": b"1"})
        assert caught.value.code == "full"
        assert list(store.open_incidents().values()) == [pending()]
        assert store.memory() == {}


@pytest.mark.parametrize("replaced", [False, True])
def test_deleted_while_it_is_open(path: Path, replaced: bool) -> None:
    with Store.open(path) as store:
        committer(store)(pending())
        path.unlink()
        if replaced:
            Store.open(path).close()
        with pytest.raises(StoreError, match="was deleted or replaced") as caught:
            committer(store)(pending("b"))
        assert (caught.value.code, "restart" in caught.value.help_text) == ("missing", True)


def test_two_processes_may_open_a_new_database_at_once(path: Path) -> None:
    code = "import sys; from driftwatch.store.store import Store; Store.open(sys.argv[1]).close()"
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(path)], stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    said = [process.communicate()[1].decode() for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], said
    Store.open(path, migrate=False).close()
