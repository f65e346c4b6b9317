"""A database that a real service wrote, the web on it, and a real Chromium."""

from __future__ import annotations

import io
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from importlib.resources import as_file, files
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, sync_playwright
from web_cases import web_at

from driftwatch.clock import ManualClock
from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.receivers.stdout import StdoutSender
from driftwatch.report.document import week_document
from driftwatch.report.week import week_of
from driftwatch.service.configuration import plan_of_rules
from driftwatch.service.receivers import Receiver
from driftwatch.service.report_material import gather
from driftwatch.service.run import Service
from driftwatch.store import Store
from driftwatch.web.context import Web

CHROMIUM = Path("/usr/bin/chromium")
MINUTE = timedelta(minutes=1)


class Recorded(NamedTuple):
    """A database, and when it was written; not to be written to."""

    path: Path
    now: datetime
    incident_id: str


@pytest.fixture(scope="session")
def firing(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The demo's server through the service, up to the page that on-call gets."""
    folder = tmp_path_factory.mktemp("web")
    with as_file(files("driftwatch") / "_demo" / "run_cap.jsonl.gz") as path:
        source = RecordingSource(path)
        first, last = source.span()
        clock = ManualClock(first)
        with Store.open(folder / "service.db") as store:
            sender = StdoutSender("oncall", json=True, stream=io.StringIO())
            receivers = [Receiver("oncall", ("page", "ticket"), sender)]
            service = Service([source], plan_of_rules(()), store, receivers, clock)
            while clock.now() < last:
                clock.advance(MINUTE)
                service.tick_once()
                service.deliver_once()
                pages = [one for one in store.incidents(state="firing") if one.severity == "page"]
                if pages:
                    break
            service.stop()
            week = week_of(clock.now())
            material = gather(store, plan_of_rules(()), week, until=clock.now(), price=None)
            store.write_report(week.name, week_document(material), (), clock.now())
    assert pages, "the demo's recording fires a page"
    with sqlite3.connect(folder / "service.db") as connection:
        connection.execute(f"VACUUM INTO '{folder / 'firing.db'}'")
    return Recorded(folder / "firing.db", clock.now(), pages[0].id)


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
