from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from fakes.postgres_server import NOT_INSTALLED, PostgresServer, installed
from hypothesis import settings

from driftwatch.store import migrate, sqlite

# the same examples each time; other ones: pytest --hypothesis-profile search
settings.register_profile("fixed", derandomize=True, database=None)
settings.register_profile("search", derandomize=False)
settings.load_profile("fixed")

GOLDEN = Path(__file__).parent / "golden"
# mark of the tests that use a fixture, or that are in a folder or a module
MARKS = {"postgres": "postgres", "chromium": "browser", "real_prometheus": "prometheus"}
MARKS |= dict.fromkeys(("faults", "test_service", "test_backtest_pages"), "slow")
# folders of few tests that take long: a module that begins last would leave the other cores idle
LONG_FIRST = ("live", "e2e", "faults", "ruletests", "truth", "service", "web")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the files of tests/golden with what the tests print now (make golden)",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        used = {item.path.parent.name, item.path.stem, *getattr(item, "fixturenames", ())}
        params = getattr(getattr(item, "callspec", None), "params", {}).values()
        if any(isinstance(one, str) and one == "postgres" for one in params):
            used.add("postgres")
        for name, mark in MARKS.items():
            if name in used:
                item.add_marker(mark)
    items.sort(key=lambda item: item.path.parent.name not in LONG_FIRST)


@pytest.fixture(scope="session", autouse=True)
def a_new_sqlite_file_is_a_copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Of one that the migrations made, once a test process: they take 0.1 s of processor."""
    made: list[bytes] = []
    make_file = migrate.make_file

    def template() -> bytes:
        if not made:
            path = tmp_path_factory.mktemp("template") / "driftwatch.db"
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(migrate, "make_file", make_file)
                migrate.upgrade_database(path)
            made.append(path.read_bytes())
        return made[0]

    def make_copy(path: Path) -> None:
        with suppress(OSError):
            if not path.exists():
                begun = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
                make_file(begun)
                begun.write_bytes(template())
                with suppress(FileExistsError):
                    os.link(begun, path)  # there at once and whole
                begun.unlink()
        make_file(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrate, "make_file", make_copy)
        yield


@pytest.fixture
def migrations_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this test a new SQLite file is empty, and the migrations make its tables."""
    monkeypatch.setattr(migrate, "make_file", sqlite.make_file)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The recorded real data beside the checkout."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("shared/data is not beside the checkout")
    return folder


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("cli/incidents.txt", text)`: the text is that of tests/golden/cli/incidents.txt.

    Prose that a person reads stands in these files, whole, and nowhere else in the tests. After a
    change of words, `make golden` rewrites them; the diff is what is reviewed.
    """
    update = request.config.getoption("--update-golden")

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        assert path.is_file(), f"{path} does not exist: run `make golden`"
        assert text == path.read_text(encoding="utf-8"), "run `make golden` and read the diff"

    return compare


@pytest.fixture(scope="session", autouse=True)
def cache_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is compiled is kept for as long as the tests run, and not among the user's."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL of this test process; each test takes a database of its own on it."""
    if not installed():
        pytest.skip(NOT_INSTALLED)
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_template(postgres: PostgresServer) -> str:
    """A database of this version's schema, without a row."""
    from driftwatch.store.migrate import upgrade_database

    name = postgres.new_database()
    upgrade_database(postgres.url(name))
    return name


@pytest.fixture
def postgres_url(postgres: PostgresServer, postgres_template: str) -> Iterator[str]:
    """A database of this version's schema on PostgreSQL."""
    name = postgres.new_database(postgres_template)
    yield postgres.url(name)
    postgres.drop_database(name)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database for a store, one of each kind."""
    if request.param == "sqlite":
        return str(tmp_path / "driftwatch.db")
    url: str = request.getfixturevalue("postgres_url")
    return url
