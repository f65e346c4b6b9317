"""What the benches of deliveries share: pages, a store that commits them, receivers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from driftwatch.incidents.delivery import PlannedDelivery
from driftwatch.model import Incident, Transition
from driftwatch.receivers.sender import Sender
from driftwatch.receivers.webhook import WebhookSender
from driftwatch.store import Store, TickRecord

ROOT = Path(__file__).resolve().parents[2]
# a page as receivers get it, 9 KB
PAGE: dict[str, Any] = json.loads((ROOT / "tests/golden/notify/cap.firing.page.json").read_text())


@dataclass
class Receivers:
    """The receivers' process, while it is entered."""

    kinds: Sequence[str]

    def __enter__(self) -> Receivers:
        command = [sys.executable, str(Path(__file__).with_name("receivers.py")), *self.kinds]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline().split() for _ in self.kinds]
        self.ports = {name: int(port) for name, port in lines}
        return self

    def senders(self) -> dict[str, Sender]:
        """A webhook for each, with the limits of the product."""
        return {
            name: WebhookSender(name, f"http://127.0.0.1:{port}/")
            for name, port in self.ports.items()
        }

    def arrivals(self) -> Mapping[str, Mapping[str, float]]:
        """Receiver -> idempotency key -> when it arrived, monotonic; ends the process."""
        out, _ = self.process.communicate(timeout=30)
        times: Mapping[str, Mapping[str, float]] = json.loads(out.splitlines()[-1])
        return times

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


def page_of(incident_id: str) -> dict[str, Any]:
    """Its own page."""
    return {**PAGE, "event": "firing", "incident": {**PAGE["incident"], "id": incident_id}}


def incident(number: int, at: datetime) -> Incident:
    """A page's incident that fires."""
    return Incident(
        id=f"{number:012x}",
        key=f'BatchLimitBinding{{instance="h{number}"}}',
        rule="BatchLimitBinding",
        alert="BatchLimitBinding",
        severity="page",
        target={"instance": f"h{number}:8000", "engine": "0"},
        state="firing",
        started_at=at,
        firing_at=at,
        last_true_at=at,
        page=page_of(f"{number:012x}"),
    )


class Ticks:
    """Commits pages and resolves as ticks do; incidents that are open stay so."""

    def __init__(self, store: Store, receivers: Sequence[str]) -> None:
        self._store, self._receivers = store, receivers
        self._open: dict[str, Incident] = {}

    def fire(self, numbers: Sequence[int]) -> None:
        """One tick in which these fire."""
        now = datetime.now(UTC)
        new = [incident(n, now) for n in numbers]
        self._open |= {one.id: one for one in new}
        self._commit(now, [Transition(one, "firing", now) for one in new])
        # as the service does: a page that is stored is not brought again
        self._open |= {one.id: replace(one, page=None) for one in new}

    def resolve(self, numbers: Sequence[int]) -> None:
        """One tick in which these resolve."""
        now = datetime.now(UTC)
        over = [self._open.pop(f"{n:012x}") for n in numbers]
        ended = [
            replace(
                one,
                state="resolved",
                resolved_at=now,
                page={**page_of(one.id), "event": "resolved"},
            )
            for one in over
        ]
        self._commit(now, [Transition(one, "resolved", now) for one in ended])

    def _commit(self, now: datetime, happened: Sequence[Transition]) -> None:
        planned = [
            PlannedDelivery(t.incident.id, t.event, name, "first", t.incident.page or {}, now)
            for t in happened
            for name in self._receivers
        ]
        self._store.commit_tick(
            TickRecord(
                now,
                now,
                incidents=self._open.values(),
                transitions=happened,
                deliveries=planned,
            )
        )


@contextmanager
def store_at(folder: Path, database: str | None) -> Iterator[Store]:
    """A store: a new SQLite file, or the PostgreSQL database of a URL."""
    with Store.open(database or folder / "bench.db") as store:
        yield store
