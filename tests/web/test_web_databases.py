"""Every page on both databases: the same answers, and as few statements for a large fleet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from large_fleet_cases import Size, paths_of, replicate
from recorded_cases import Recorded
from sqlalchemy import Engine, event
from starlette.testclient import TestClient
from web_cases import ANA, browser, web_at

from driftwatch.testing.postgres_server import PostgresServer
from driftwatch.web.page import Page
from driftwatch.web.registry import pages

SMALL, LARGE = Size(20, 12), Size(200, 120)
# of any page, whatever the fleet
MOST_STATEMENTS = 30


class Served:
    """A small and a large store of one kind of database, through the web."""

    def __init__(self, small: TestClient, large: TestClient) -> None:
        self.small, self.large = small, large


@pytest.fixture(scope="module")
def served(firing: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Kind of database → the web on its stores; made when first asked for."""
    made: dict[str, Served] = {}
    webs = []

    def get(kind: str, server: PostgresServer | None, template: str) -> Served:
        if kind not in made:
            clients = []
            for size in (SMALL, LARGE):
                folder = tmp_path_factory.mktemp(kind)
                place: Path | str = folder / "fleet.db"
                if server is not None:
                    place = server.url(server.new_database(template))
                replicate(firing.path, firing.incident_id, place, size, firing.now)
                webs.append(web_at(place, firing.now, folder))
                clients.append(browser(webs[-1], **ANA))
                clients[-1].get("/fleet")  # a thread has read it before anybody looks
            made[kind] = Served(*clients)
        return made[kind]

    yield get
    for web in webs:
        web.database.close()


@pytest.fixture(params=["sqlite", "postgres"])
def stores(request: pytest.FixtureRequest, served: Any) -> Served:
    """The stores of one kind of database."""
    if request.param == "sqlite":
        return served("sqlite", None, "")
    server = request.getfixturevalue("postgres")
    return served("postgres", server, request.getfixturevalue("postgres_template"))


def statements(client: TestClient, path: str) -> int:
    """How many statements a page is made of that nobody has looked at before."""
    texts: list[str] = []

    def count(*arguments: Any) -> None:
        texts.append(arguments[2])

    event.listen(Engine, "before_cursor_execute", count)
    try:
        assert client.get(path).status_code == 200, path
    finally:
        event.remove(Engine, "before_cursor_execute", count)
    assert texts, "the page asks the database"
    return len(texts)


def json_path(path: str) -> str:
    """The same page as JSON."""
    before, mark, query = path.partition("?")
    return f"{before}.json{mark}{query}"


def test_a_ten_times_larger_fleet_takes_no_more_statements(stores: Served) -> None:
    for small, large in zip(paths_of(SMALL), paths_of(LARGE), strict=True):
        few, many = statements(stores.small, small), statements(stores.large, large)
        assert many <= few <= MOST_STATEMENTS, (small, few, many)


def test_every_page_is_among_them() -> None:
    def shape(page: Page) -> str:
        return page.path.partition("{")[0]

    listed = paths_of(SMALL)
    assert all(any(path.startswith(shape(page)) for path in listed) for page in pages())
    assert len(listed) > len(pages())


def test_both_databases_give_the_same_answers(
    postgres: PostgresServer, postgres_template: str, served: Any
) -> None:
    of_file, of_server = served("sqlite", None, ""), served("postgres", postgres, postgres_template)
    for path in map(json_path, paths_of(LARGE)):
        one, other = of_file.large.get(path), of_server.large.get(path)
        assert one.status_code == other.status_code == 200, path
        assert one.json() == other.json(), path
