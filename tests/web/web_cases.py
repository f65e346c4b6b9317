"""The web on a database, people who may act on it, and a fleet of any size in a store."""

from __future__ import annotations

import io
import socket
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from fakes.manual_clock import ManualClock
from made_incidents import incident_of
from starlette.routing import compile_path
from starlette.testclient import TestClient

from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.database_place import place_of
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.model import Slo, Target, TargetKey
from driftwatch.pipeline.latest import latest_of
from driftwatch.pipeline.plan import Plan, Pool
from driftwatch.receivers.registry import Receiver
from driftwatch.receivers.stdout import StdoutSender
from driftwatch.report.make import report_of
from driftwatch.report.week import week_of
from driftwatch.service.configuration import plan_of_rules
from driftwatch.service.report_material import gather
from driftwatch.service.run import Service
from driftwatch.service.timing import BoundedQuestions
from driftwatch.settings.file import ProxySettings, WebSettings
from driftwatch.store.minute_columns import STORED_SCHEMA
from driftwatch.store.store import Store, TickRecord
from driftwatch.web.access import People
from driftwatch.web.app import PAGES, Web, application, server_of
from driftwatch.web.database import WebDatabase
from driftwatch.web.page import Visit

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
            store, now = web.database.store(writes=False), web.clock.now()
            return page.load(Visit(web, store, now, found.groupdict(), wanted))
    raise AssertionError(f"no page {path}")


END = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
# of a server whose requests are in target
GOOD: Mapping[str, Any] = {
    "scrapes": 4.0,
    "duration_seconds": 60.0,
    "slo_missed": False,
    "slower_at_equal_load": False,
    "speed_at_equal_load_ratio": 1.0,
    "binding_limit": "none",
    "binding_margin_ratio": 0.5,
    "ttft_seconds_buckets": [90.0, 100.0, 100.0],
    "ttft_seconds_edges": [0.5, 1.0, float("inf")],
    "ttft_seconds_sum": 30.0,
    "ttft_seconds_count": 100.0,
    "ttft_in_target_10m_ratio": 1.0,
    "ttft_in_target_10m_upper_ratio": 1.0,
}
_SHARES = tuple(
    f"{name}_in_target_10m_{end}" for name in ("ttft", "tpot") for end in ("ratio", "upper_ratio")
)

EVIDENCE = STORED_SCHEMA | dict.fromkeys(_SHARES, pl.Float64)


def evidence_of(minutes: Iterable[Mapping[str, Any]], end: datetime = END) -> pl.DataFrame:
    """Evidence rows; each has ``instance``, and columns unlike GOOD's."""
    every = [{"engine": "0", "end": end, "pool": "p", **GOOD, **one} for one in minutes]
    return pl.DataFrame([{name: one.get(name) for name in EVIDENCE} for one in every], EVIDENCE)


def fleet_database(
    path: Path | str,
    rows: Sequence[Mapping[str, Any]],
    incidents: Sequence[Incident] = (),
    *,
    end: datetime = END,
) -> None:
    """Write a fleet; a row has ``instance``, may have ``labels``, and columns unlike GOOD's; one
    with ``scrapes`` None has no minute.
    """
    evidence = evidence_of([row for row in rows if row.get("scrapes", 4.0) is not None], end)
    keys = {TargetKey(row["instance"], "0"): row.get("pool", "p") for row in rows}
    listed = {key: Target(key, {}, pool) for key, pool in keys.items()}
    over = [Transition(one, "resolved", end) for one in incidents if one.resolved_at]
    plan = replace(plan_of_rules(()), pools=(Pool("p", slo=Slo(1.0, None, 0.95)),))
    with Store.open(path) as store:
        store.commit_tick(
            TickRecord(
                until=end,
                minutes=evidence.select(*STORED_SCHEMA),
                incidents=[one for one in incidents if one.resolved_at is None],
                transitions=over,
                latest=latest_of(evidence, listed, plan, {}, end),
            )
        )
        for one in incidents:
            if (held := one.acknowledgement) is not None:
                store.acknowledge(one.id, held.by, held.at)


def fired(digit: str, instance: str, *, pool: str = "p", **changes: Any) -> Incident:
    """A page that fires on a server, of a rule of its own."""
    at = END - timedelta(minutes=20)
    return incident_of(
        digit, **{"rule": f"R{digit}", "pool": pool, "servers": [instance], "at": at, **changes}
    )


MINUTE = timedelta(minutes=1)


class Recorded(NamedTuple):
    """A database, and when it was written; not to be written to."""

    path: Path
    now: datetime
    incident_id: str


def record_firing(folder: Path, *, advised: bool = False) -> Recorded:
    """Write the database of a service whose one server pages; ``advised``: with a change."""
    with as_file(files("driftwatch") / "_demo" / "run_cap.jsonl.gz") as path:
        source = RecordingSource(path)
        first, last = source.span()
        clock = ManualClock(first)
        with Store.open(folder / "service.db") as store:
            sender = StdoutSender("oncall", json=True, stream=io.StringIO())
            receivers = [Receiver("oncall", ("page", "ticket"), sender)]
            service = Service([source], plan_of_rules(()), store, receivers, clock)
            if not advised:  # a simulation takes as long as ten ticks
                service._questions = BoundedQuestions(0.0)
            while clock.now() < last:
                clock.advance(MINUTE)
                service.tick_once()
                service.deliver_once()
                pages = [one for one in store.incidents() if one.severity == "page"]
                pages = [one for one in pages if one.state == "firing"]
                if pages:
                    break
            service.stop()
            week = week_of(clock.now())
            material = gather(store, plan_of_rules(()), week, until=clock.now())
            store.write_report(week.name, report_of(material).document(), (), clock.now())
    assert pages, "the demo's recording fires a page"
    with sqlite3.connect(folder / "service.db") as connection:
        connection.execute(f"VACUUM INTO '{folder / 'firing.db'}'")
    return Recorded(folder / "firing.db", clock.now(), pages[0].id)
