"""The web on a database, and people who may act on it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from starlette.routing import compile_path
from starlette.testclient import TestClient

from driftwatch.clock import ManualClock
from driftwatch.database_place import place_of
from driftwatch.pipeline.plan import Plan
from driftwatch.service.configuration import plan_of_rules
from driftwatch.settings.service import ProxySettings, WebSettings
from driftwatch.web.access import People
from driftwatch.web.app import PAGES, Web, application
from driftwatch.web.database import WebDatabase
from driftwatch.web.page import Visit
from driftwatch.web.server import server_of

TOKEN = "correct-horse-battery-staple"
ANA, BEN = {"X-Forwarded-User": "Ana"}, {"X-Forwarded-User": "Ben"}
# what stands in a page's path, for the walk over every page
VARIABLES: dict[str, str] = {
    "pool": "tiny-llama",
    "target": "host:8000",
    "week": "2026-W47",
}


@cache
def usual_plan() -> Plan:
    """The shipped rules."""
    return plan_of_rules(())


def web_at(
    database: Path | str, now: datetime, folder: Path, *, plan: Plan | None = None, **settings: Any
) -> Web:
    """A web with a token and a trusted proxy; time stands still."""
    token_file = folder / "web.token"
    token_file.write_text(TOKEN + "\n")
    addresses = settings.pop("proxy_addresses", ("10.0.0.7",))
    proxy = ProxySettings.model_validate({"addresses": addresses})
    external_url = settings.pop("external_url", None)
    own = WebSettings.model_validate({"listen": "testserver:9096", **settings})
    plan = usual_plan() if plan is None else plan
    return Web(
        settings=own,
        plan=plan,
        database=WebDatabase(place_of(database)),
        people=People(token_file, proxy),
        clock=ManualClock(now),
        external_url=external_url,
    )


def browser(web: Web, *, address: str = "10.0.0.7", **headers: Any) -> TestClient:
    """A client with a cookie jar, from the proxy's address unless another is given."""
    client = TestClient(
        application(web),
        headers={"Accept": "text/html", "Origin": "http://testserver", **headers},
        client=(address, 5000),
        follow_redirects=False,
    )
    return client


@contextmanager
def served(web: Web) -> Iterator[str]:
    """The web on a port of this machine, as ``driftwatch web`` serves it; its address."""
    server = server_of(web)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive()


def send(client: TestClient, page: str, form: str, person: Mapping[str, str], **fields: str) -> Any:
    """Send one of a page's forms as a person."""
    return client.post(f"{page}/{form}", data=fields, headers=dict(person))


def shown(web: Web, path: str, **query: str) -> dict[str, Any]:
    """What a page's template gets."""
    for page in PAGES:
        found = compile_path(page.path)[0].match(path)
        if found is not None:
            wanted = page.query.model_validate(query)
            store, now = web.database.reader(), web.clock.now()
            return page.load(Visit(web, store, now, found.groupdict(), wanted))
    raise AssertionError(f"no page {path}")
