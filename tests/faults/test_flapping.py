"""A condition that is true every other minute: one incident, two messages."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from kill_rounds.judge import Inbox

from driftwatch.clock import ManualClock
from driftwatch.collect.schema import Collected, scrape_frame
from driftwatch.model import Target, TargetKey
from driftwatch.receivers.webhook import WebhookSender
from driftwatch.service.configuration import plan_of_rules
from driftwatch.service.receivers import Receiver
from driftwatch.service.run import Service
from driftwatch.store.store import Store

BEGIN = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
MINUTES, QUIET_FROM = 18, 13
KEY = TargetKey("chat-0:8000", "0")


class Flapping:
    """Nine requests wait in odd minutes, four in even ones, none from some minute on."""

    name, settle_seconds = "flapping", 0.0

    def __init__(self) -> None:
        rows = [
            {
                "instance": KEY.instance,
                "engine": KEY.engine,
                "time": BEGIN + timedelta(seconds=at),
                "ok": True,
                "several_api_servers": False,
                "process_start_time_seconds": (BEGIN - timedelta(hours=1)).timestamp(),
                "running_requests": 4.0,
                "waiting_requests": _waiting(at // 60),
                "kv_cache_usage_ratio": 0.1,
                "generation_tokens_total": 100.0 * at,
                "prompt_tokens_total": 100.0 * at,
            }
            for at in range(1, MINUTES * 60, 20)
        ]
        self._frame = scrape_frame(rows)

    def collect(self, since: datetime, until: datetime) -> Collected:
        inside = pl.col("time").is_between(since, until, closed="left")
        return Collected(self._frame.filter(inside), {KEY: Target(KEY, {"pool": "chat"})})

    def close(self) -> None:
        pass


def _waiting(minute: int) -> float:
    if minute >= QUIET_FROM:
        return 0.0
    return 9.0 if minute % 2 else 4.0


@pytest.mark.parametrize("held", ["keep_firing_for: 2m", "until: waiting_requests < 3"])
def test_what_flaps_each_minute_is_one_incident_and_two_messages(held: str, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "groups:\n  - name: own\n    rules:\n      - alert: Waiting\n"
        f"        when: waiting_requests >= 5\n        {held}\n        severity: page\n"
    )
    clock = ManualClock(BEGIN)
    with Inbox() as inbox, Store.open(tmp_path / "d.db") as store:
        sender = WebhookSender("oncall", f"{inbox.address}/oncall")
        receivers = [Receiver("oncall", ("page", "ticket"), sender)]
        service = Service([Flapping()], plan_of_rules([rules]), store, receivers, clock)
        for minute in range(1, MINUTES + 1):
            clock.set(BEGIN + timedelta(minutes=minute))
            service.tick_once()
            service.deliver_once()
        service.stop()
        bodies = [json.loads(body) for _, body in inbox.posts("oncall")]
        assert [body["event"] for body in bodies] == ["firing", "resolved"]
        assert len(store.incidents()) == 1
        ended = datetime.fromisoformat(bodies[1]["times"]["resolved_at"])
        assert ended >= BEGIN + timedelta(minutes=QUIET_FROM)
