"""A database that a real service wrote, the web on it, and a real Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright
from web_cases import Recorded, record_firing, web_at

from driftwatch.store.store import Store
from driftwatch.web.app import Web

CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture(scope="session")
def firing(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The demo's server through the service, up to the page that on-call gets."""
    return record_firing(tmp_path_factory.mktemp("web"))


@pytest.fixture
def copied(firing: Recorded, tmp_path: Path) -> Recorded:
    """A copy that a test may write to."""
    path = tmp_path / "driftwatch.db"
    shutil.copy(firing.path, path)
    return firing._replace(path=path)


@pytest.fixture
def web(copied: Recorded, tmp_path: Path) -> Iterator[Web]:
    """The web on a copy, at the time the database ends."""
    one = web_at(copied.path, copied.now, tmp_path)
    yield one
    one.database.close()


@pytest.fixture
def opened(copied: Recorded) -> Callable[[], Store]:
    """The database of :func:`web`, to look at or write to."""
    return lambda: Store.open(copied.path, migrate=False)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """A real Chromium for the whole session: the system's, as Playwright's own is not fetched."""
    if not CHROMIUM.exists():
        pytest.skip(f"there is no {CHROMIUM}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()
