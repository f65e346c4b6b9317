"""Databases for these tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from store_cases import committer

from driftwatch.store.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "driftwatch.db"


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    with Store.open(database) as opened:
        yield opened


@pytest.fixture
def sqlite_store(path: Path) -> Iterator[Store]:
    """For what only SQLite does so."""
    with Store.open(path) as opened:
        yield opened


@pytest.fixture
def postgres_store(postgres_url: str) -> Iterator[Store]:
    """For what only PostgreSQL does so."""
    with Store.open(postgres_url) as opened:
        yield opened


@pytest.fixture
def commit(store: Store) -> Callable[..., None]:
    """A tick with whatever is given."""
    return committer(store)
