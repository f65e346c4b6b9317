"""Every way in which PostgreSQL does not serve, in words; and that it goes on afterwards."""

from __future__ import annotations

import socket
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.postgres_server import NOT_INSTALLED, PostgresServer, installed
from made_incidents import with_values
from sqlalchemy import text
from store_cases import committer, pending

from driftwatch.database_place import place_of
from driftwatch.errors import StoreError
from driftwatch.store.migrate import upgrade_database
from driftwatch.store.store import Store

pytestmark = pytest.mark.postgres

PASSWORD = "hunter2-canary"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One that is stopped and started, and asks for passwords on the loopback."""
    if not installed():
        pytest.skip(NOT_INSTALLED)
    with PostgresServer(tcp_port=free_port()) as one:
        one.query(f"ALTER ROLE driftwatch PASSWORD '{PASSWORD}'")
        one.query(f"CREATE ROLE one LOGIN PASSWORD '{PASSWORD}' CONNECTION LIMIT 0")
        one.query(f"CREATE ROLE guest LOGIN PASSWORD '{PASSWORD}'")
        yield one


@pytest.fixture
def name(server: PostgresServer) -> str:
    made = server.new_database()
    upgrade_database(server.url(made))
    return made


@pytest.fixture
def store(server: PostgresServer, name: str) -> Iterator[Store]:
    with Store.open(server.url(name), busy_seconds=0.3) as opened:
        yield opened


def failure(action: Callable[[], object]) -> StoreError:
    with pytest.raises(StoreError) as caught:
        action()
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))
    return caught.value


def raising(store: Store, state: str, table: str = "incidents") -> None:
    """Every write to a table fails as PostgreSQL would say it."""
    with store._writing() as connection:
        connection.execute(
            text(
                "CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                f"RAISE EXCEPTION 'as injected' USING ERRCODE = '{state}'; END $$"
            )
        )
        connection.execute(
            text(f"CREATE TRIGGER fail BEFORE INSERT ON {table} EXECUTE FUNCTION fail()")
        )


def test_opening_says_what_is_wrong(
    server: PostgresServer, name: str, tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    port = server.port
    wrong, right = tmp_path / "wrong", tmp_path / "right"
    wrong.write_text("guess\n")
    right.write_text(f"{PASSWORD}\n")
    cases: list[tuple[str, str, Path | None]] = [
        ("wrong password", f"postgresql://driftwatch@127.0.0.1:{port}/{name}", wrong),
        ("no password", f"postgresql://driftwatch@127.0.0.1:{port}/{name}", None),
        ("no password file", f"postgresql://driftwatch@127.0.0.1:{port}/{name}", Path("/no/file")),
        ("no such user", f"postgresql://nobody@127.0.0.1:{port}/{name}", right),
        ("no such database", f"postgresql://driftwatch@127.0.0.1:{port}/elsewhere", right),
        ("too many connections", f"postgresql://one@127.0.0.1:{port}/{name}", right),
        ("TLS wanted", f"postgresql://driftwatch@127.0.0.1:{port}/{name}?sslmode=require", right),
        ("nobody listens", f"postgresql://driftwatch@127.0.0.1:{free_port()}/{name}", right),
        ("no such host", f"postgresql://driftwatch@nowhere.invalid/{name}", right),
        ("no such socket", f"postgresql://driftwatch@/{name}?host={tmp_path}", None),
        ("unknown parameter", f"postgresql://driftwatch@127.0.0.1:{port}/{name}?speed=fast", right),
    ]
    lines = []
    for what, url, file in cases:
        error = failure(lambda url=url, file=file: Store.open(place_of(url, file)))  # type: ignore[misc]
        lines += [f"{what} ({error.code})", f"  {error.message}", f"  help: {error.help_text}"]
    said = "\n".join(lines) + "\n"
    for odd, plain in ((str(port), "5432"), (name, "driftwatch"), (str(tmp_path), "/run/x")):
        said = said.replace(odd, plain)
    golden("store/postgres_failures.txt", _without_ports(said))
    with Store.open(
        place_of(f"postgresql://driftwatch@127.0.0.1:{port}/{name}", right), migrate=False
    ) as opened:
        assert opened.open_incidents() == {}


def _without_ports(said: str) -> str:
    import re

    return re.sub(r"(127\.0\.0\.1:|port )\d+", r"\g<1>5432", said)


@pytest.mark.parametrize(
    ("state", "code"),
    [
        *(("53100", "full"), ("53300", "busy"), ("25006", "read-only"), ("57014", "timeout")),
        *(("57P01", "unreachable"), ("42501", "denied"), ("XX001", "corrupt")),
    ],
)
def test_a_write_that_fails_keeps_nothing(store: Store, state: str, code: str) -> None:
    committer(store)(pending())
    raising(store, state)
    error = failure(
        lambda: committer(store)(with_values(pending("b"), alert="x"), memory={"m": b"1"})
    )
    assert (error.code, bool(error.help_text)) == (code, True)
    assert list(store.open_incidents().values()) == [pending()]
    assert store.memory() == {}


def test_a_conflict_is_tried_again(store: Store) -> None:
    raising(store, "40001")
    with store._writing() as connection:  # the trigger goes away at the third try
        connection.execute(text("CREATE SEQUENCE tries"))
        connection.execute(
            text(
                "CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                "IF nextval('tries') < 3 THEN RAISE EXCEPTION 'as injected' "
                "USING ERRCODE = '40001'; END IF; RETURN NULL; END $$"
            )
        )
    committer(store)(pending())
    assert list(store.open_incidents().values()) == [pending()]
    with store._reading() as connection:
        assert connection.execute(text("SELECT last_value FROM tries")).scalar() == 3


def test_another_writer_is_waited_for(server: PostgresServer, name: str, store: Store) -> None:
    with Store.open(server.url(name), migrate=False) as other:
        with other._writing():
            assert failure(lambda: committer(store)(pending())).code == "locked"
            assert store.open_incidents() == {}  # reading goes on
        committer(store)(pending())
        assert store.open_incidents()


def test_a_restart_in_the_middle_of_a_transaction(server: PostgresServer, name: str) -> None:
    with Store.open(server.url(name)) as opened:
        committer(opened)(pending("a"))

        def restarted() -> None:
            with opened._writing() as connection:
                connection.execute(text("INSERT INTO meta VALUES ('half', '1')"))
                server.stop("immediate")
                connection.execute(text("INSERT INTO meta VALUES ('whole', '1')"))

        assert failure(restarted).code == "unreachable"
        assert failure(opened.open_incidents).code == "unreachable"
        server.start()
        assert list(opened.open_incidents().values()) == [pending("a")]
        committer(opened)(pending("b"))
        assert list(opened.open_incidents().values()) == [pending("b")]


def test_the_driver_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    error = failure(lambda: Store.open("postgresql://host/db"))
    assert error.code == "unsupported"
    assert error.help_text == "pip install 'vllm-driftwatch[postgres]'"
