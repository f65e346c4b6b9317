"""A service on a recorded server, and a configuration that is edited while it runs."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog
from fakes.manual_clock import ManualClock
from service_cases import FrameSource
from structlog.testing import capture_logs

from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.pipeline.state import Outcome
from driftwatch.receivers.registry import receivers_of
from driftwatch.service.configuration import plan_of_settings
from driftwatch.service.reload import Reload
from driftwatch.service.run import Service
from driftwatch.settings import load_settings
from driftwatch.store.store import Store

BEGIN = datetime(2026, 11, 21, 8, 18, tzinfo=UTC)
# of run_cap: 8 to 98 requests wait in the minutes that end from 8 to 13 minutes after BEGIN
FIRST, LAST = 8, 13
CONFIG = """\
sources: [{pages: ["http://replica-1:8000/metrics"]}]
pools: [{name: chat}]
rules: [rules]
receivers: [{name: oncall, stdout: {}}]
"""


def recorded(folder: Path) -> FrameSource:
    """The server of run_cap, handed out by time."""
    source = RecordingSource(folder / "vllm-0.32" / "run_cap")
    collected = source.collect(*source.span())
    return FrameSource(collected.scrapes, collected.targets)


def rule(alert: str, **keys: str) -> str:
    """One rule as YAML; by default it is true while requests wait."""
    every = {"alert": alert, "when": "waiting_requests >= 5", "severity": "ticket", **keys}
    return "      - " + "\n        ".join(f"{key}: {value}" for key, value in every.items())


class Edited:
    """The running service, minute by minute, and its files."""

    def __init__(
        self,
        folder: Path,
        source: FrameSource,
        *rules: str,
        config: str = CONFIG,
        begin: int = FIRST - 2,
    ):
        self.folder, self.source = folder, source
        self.config = Path(os.path.relpath(folder / "driftwatch.yaml"))
        (folder / "rules").mkdir()
        self.config.write_text(config)
        self.write(*rules)
        self.clock = ManualClock(BEGIN + timedelta(minutes=begin))
        self.store = Store.open(folder / "driftwatch.db")
        self.start()

    def start(self) -> None:
        """A new process on the same database."""
        settings = load_settings(self.config)
        plan = replace(plan_of_settings(settings), simulations=0)
        receivers = receivers_of(settings)
        self.service = Service([self.source], plan, self.store, receivers, self.clock)
        metrics, log = self.service.metrics, structlog.get_logger()
        adopt = self.service.adopt
        self.reload = Reload(self.config, settings, plan, adopt, metrics, self.clock, log)

    def write(self, *rules: str, file: str = "own.yaml") -> Path:
        """A rule file with these rules."""
        path = self.folder / "rules" / file
        path.write_text("\n".join(["groups:", "  - name: own", "    rules:", *rules, ""]))
        return path

    def look(self) -> list[dict[str, object]]:
        """Read the files anew; what the log has of it."""
        with capture_logs() as log:
            self.reload.reload()
        return [dict(line) for line in log]

    def edit(self, *rules: str) -> None:
        """Other rules, in force with the next minute."""
        self.write(*rules)
        assert [line["event"] for line in self.look()] == ["reloaded"]

    def minutes(self, until: int) -> list[tuple[int, str, str, str | None]]:
        """Tick up to a minute; what fired and ended: minute, rule, event, reason."""
        happened = []
        while self.clock.now() < BEGIN + timedelta(minutes=until):
            self.clock.advance(timedelta(minutes=1))
            self.outcome: Outcome = self.service.tick_once()
            minute = round((self.clock.now() - BEGIN).total_seconds() / 60)
            for t in self.outcome.transitions:
                happened.append((minute, t.incident.rule, t.event, t.reason))
        return happened

    def open(self) -> dict[str, str]:
        """Rule → state of what is open."""
        return {one.rule: one.state for one in self.store.open_incidents().values()}

    def gauge(self, name: str) -> float | None:
        """One of the service's own metrics."""
        return self.service.metrics.registry.get_sample_value(f"driftwatch_{name}")
