"""kill -9 at every point of a tick and of a delivery: fixed rounds of ``bench/kills.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fakes.postgres_server import PostgresServer
from kill_rounds.judge import Verdict, play, undisturbed
from kill_rounds.points import POINTS

pytestmark = pytest.mark.kill

# kills → seed of when they come: early enough that each one does
ROUNDS = {
    ("after fetch", "after POST", "at COMMIT"): 143,
    ("before POST", "at a statement", "before commit"): 1587,
    ("after commit", "at COMMIT", "after POST"): 1564,
}

Make = Callable[[Path], str]


@pytest.fixture(params=["sqlite", "postgres"])
def new_database(request: pytest.FixtureRequest) -> Iterator[Make]:
    """A new database of one kind, a call each."""
    if request.param == "sqlite":
        yield lambda folder: str(folder / "d.db")
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    template: str = request.getfixturevalue("postgres_template")
    made: list[str] = []

    def make(folder: Path) -> str:
        made.append(server.new_database(template))
        return server.url(made[-1])

    yield make
    for name in made:
        server.drop_database(name)


def test_it_loses_nothing_and_repeats_only_what_may_have_arrived(
    new_database: Make, tmp_path: Path
) -> None:
    folder = tmp_path / "undisturbed"
    expected = undisturbed(folder, new_database(folder))
    assert all(len(bodies) == 6 for bodies in expected.values())  # three fired, three resolved

    def one(number: int, kills: tuple[str, ...]) -> Verdict:
        folder = tmp_path / str(number)
        return play(folder, new_database(folder), kills, ROUNDS[kills], expected)

    with ThreadPoolExecutor(2) as pool:
        verdicts = list(pool.map(one, range(len(ROUNDS)), ROUNDS))
    assert [verdict for verdict in verdicts if not verdict.is_kept] == []
    assert {point for verdict in verdicts for point in verdict.kills} == set(POINTS)
