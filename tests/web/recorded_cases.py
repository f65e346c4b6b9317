"""The demo's server through a real service, up to the page that on-call gets."""

from __future__ import annotations

import io
import sqlite3
from datetime import datetime, timedelta
from importlib.resources import as_file, files
from pathlib import Path
from typing import NamedTuple

from driftwatch.clock import ManualClock
from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.receivers.registry import Receiver
from driftwatch.receivers.stdout import StdoutSender
from driftwatch.report.make import report_of
from driftwatch.report.week import week_of
from driftwatch.service.configuration import plan_of_rules
from driftwatch.service.report_material import gather
from driftwatch.service.run import Service
from driftwatch.service.timing import BoundedQuestions
from driftwatch.store import Store

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
