"""A small fleet with a known past, a rule about it, and the service that watches it, tick by tick.

Three servers queue for some minutes each: three incidents fire and end. The sources keep their
past, as a Prometheus does, so that a killed service finds the minutes that it missed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
from fakes.manual_clock import ManualClock

from driftwatch.collect.schema import Collected, scrape_frame
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.plan import Pool
from driftwatch.receivers.registry import Receiver
from driftwatch.receivers.webhook import WebhookSender
from driftwatch.service.configuration import plan_of_rules
from driftwatch.service.run import Service
from driftwatch.settings.receivers import WebhookReceiver
from driftwatch.store.store import Store

BEGIN = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
SCRAPE_SECONDS, TICK_SECONDS = 20, 30
MINUTES = 9
TICKS = MINUTES * 60 // TICK_SECONDS
# server → minutes in which requests wait
QUEUES: Mapping[str, tuple[float, float]] = {
    "chat-0:8000": (1.0, 4.0),
    "chat-1:8000": (2.0, 5.0),
    "rag-0:8000": (2.5, 6.0),
}
RULES = """\
groups:
  - name: queues
    rules:
      - alert: Queues
        when: waiting_requests >= 5
        for: 1m
        keep_firing_for: 1m
        severity: page
        annotations: {summary: requests wait}
"""


@dataclass(frozen=True)
class Place:
    """Where one round happens: all that its processes share."""

    folder: Path
    database: str  # path of a SQLite file, or URL
    hooks: Mapping[str, str]  # receiver → URL


class KeptSource:
    """The fleet's past, handed out by time."""

    name, settle_seconds = "fleet", 0.0

    def __init__(self) -> None:
        self._frame = _scrapes()
        self._targets = {
            TargetKey(name, "0"): Target(TargetKey(name, "0"), {"pool": name}) for name in QUEUES
        }

    def collect(self, since: datetime, until: datetime) -> Collected:
        """Scrapes with since <= time < until."""
        inside = pl.col("time").is_between(since, until, closed="left")
        return Collected(self._frame.filter(inside), self._targets)

    def close(self) -> None:
        """Nothing is open."""


def _scrapes() -> pl.DataFrame:
    rows: list[dict[str, object]] = []
    for number, (name, (first, last)) in enumerate(QUEUES.items()):
        for at in range(1 + number, MINUTES * 60, SCRAPE_SECONDS):
            waits = first * 60 <= at < last * 60
            rows.append(
                {
                    "instance": name,
                    "engine": "0",
                    "time": BEGIN + timedelta(seconds=at),
                    "ok": True,
                    "several_api_servers": False,
                    "process_start_time_seconds": (BEGIN - timedelta(hours=1)).timestamp(),
                    "running_requests": 4.0,
                    "waiting_requests": 9.0 if waits else 0.0,
                    "kv_cache_usage_ratio": 0.1,
                    "generation_tokens_total": 100.0 * at,
                    "prompt_tokens_total": 100.0 * at,
                }
            )
    return scrape_frame(rows).sort("instance", "engine", "time")


def time_of(tick: int) -> datetime:
    """When a tick is, counted from 1."""
    return BEGIN + timedelta(seconds=tick * TICK_SECONDS)


def rules_of(folder: Path) -> Path:
    """The rule file of a round."""
    path = folder / "queues.yaml"
    if not path.exists():
        path.write_text(RULES)
    return path


def service_of(place: Place, store: Store, clock: ManualClock) -> Service:
    """The service as one process runs it."""
    receivers = [
        Receiver(
            name,
            ("page", "ticket"),
            WebhookSender(name, WebhookReceiver.model_validate({"url": url})),
        )
        for name, url in place.hooks.items()
    ]
    pools = tuple(Pool(name, {"pool": name}) for name in QUEUES)  # an incident each
    plan = replace(plan_of_rules([rules_of(place.folder)]), pools=pools)
    return Service([KeptSource()], plan, store, receivers, clock)


def live(place: Place, first_tick: int, last_tick: int) -> None:
    """Tick and deliver from one tick to another, each included."""
    clock = ManualClock(time_of(first_tick))
    with Store.open(place.database) as store:
        service = service_of(place, store, clock)
        for tick in range(first_tick, last_tick + 1):
            clock.set(time_of(tick))
            (place.folder / "tick").write_text(str(tick))
            service.tick_once()
            service.deliver_once()
        service.stop()
