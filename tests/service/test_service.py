"""The service on a replayed server: live equals replay, restarts forget nothing."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
from fakes.exposition_server import ReplayedExposition, read_pages
from fakes.manual_clock import ManualClock
from service_cases import shipped_plan
from structlog.testing import capture_logs

from driftwatch.collect.pages import PagesSource
from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.collect.schema import SourceProblem
from driftwatch.pipeline.state import Outcome, State
from driftwatch.receivers.sender import Message
from driftwatch.service.metrics import OwnMetrics
from driftwatch.service.notes import TickNotes
from driftwatch.service.replay import replay
from driftwatch.service.run import Receiver, Service
from driftwatch.store.store import Store

PLAN = shipped_plan()


class Inbox:
    """A receiver that keeps what it is sent."""

    def __init__(self) -> None:
        self.pages: list[dict[str, Any]] = []

    def send(self, message: Message) -> None:
        self.pages.append(dict(message.payload))


class Live:
    """run_cap, scraped live each 10 s by processes on one database."""

    def __init__(self, folder: Path, database: Path) -> None:
        self.recorded, self.database = read_pages(folder / "scrapes.jsonl.gz"), database
        self.clock = ManualClock(datetime.fromtimestamp(self.recorded[0][0], UTC))
        self.inbox = Inbox()
        self.forgotten: list[str] = []  # servers that are asked again what they run

    def watch(self, url: str, begin: float, end: float) -> Service:
        """One process, from one minute to another."""
        first = self.recorded[0][0]
        receivers = [Receiver("inbox", ("page", "ticket", "notice"), self.inbox)]
        with Store.open(self.database) as store:
            source = PagesSource({url: {"instance": "host:8000"}}, clock=self.clock)
            source.forget = self.forgotten.extend  # type: ignore[method-assign]
            service = Service([source], PLAN, store, receivers, self.clock)
            for at, _ in self.recorded:
                if begin * 60 <= at - first < end * 60:
                    self.clock.set(datetime.fromtimestamp(at, UTC))
                    service.tick_once()
                    service.deliver_once()
            service.stop()
        return service


class Night(NamedTuple):
    """The whole recording, watched by three processes, one after the other."""

    pages: list[dict[str, Any]]
    logs: Sequence[Mapping[str, Any]]
    service: Service  # the last one
    failed_scrapes: int
    forgotten: list[str]


@pytest.fixture(scope="module")
def thinned(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    whole = shared_data / "vllm-0.32" / "run_cap" / "scrapes.jsonl.gz"
    lines = gzip.decompress(whole.read_bytes()).splitlines(keepends=True)
    folder = tmp_path_factory.mktemp("thinned")
    (folder / whole.name).write_bytes(gzip.compress(b"".join(lines[::2])))
    return folder


@pytest.fixture(scope="module")
def night(thinned: Path) -> Iterator[Night]:
    """Stopped just before it would fire, and once more while it fires."""
    live = Live(thinned, thinned / "d.db")
    exposed = ReplayedExposition(live.recorded, clock=lambda: live.clock.now().timestamp())
    with exposed as server, capture_logs() as logs:
        for begin, end in ((0, 11.2), (11.2, 14), (14, 29)):
            service = live.watch(server.url, begin, end)
            assert live.inbox.pages or end < 12
    failed = sum(body is None for _, body in live.recorded)
    yield Night(live.inbox.pages, logs, service, failed, live.forgotten)


def test_live_pages_equal_replayed_pages_over_restarts(night: Night, thinned: Path) -> None:
    source = RecordingSource(thinned)
    replayed = [
        t.incident.page for o in replay([source], source.span(), PLAN) for t in o.transitions
    ]
    assert [(p["event"], p["alert"]) for p in night.pages] == [
        ("firing", "BatchLimitBinding"),
        ("resolved", "BatchLimitBinding"),
    ]
    # a restart loses the minute that was open, no more: who is told what stays
    for live, past in zip(night.pages, replayed, strict=True):
        for name in ("event", "alert", "severity", "pool"):
            assert live[name] == past.document()[name]
    # learnt before the restarts
    assert night.pages[0]["evidence"]["max_num_seqs"].value == 8


def test_a_server_that_fails_and_what_is_sent_are_in_the_log(night: Night) -> None:
    """run_cap's server is restarted once: it answers nothing for a while, and is asked anew."""
    assert night.forgotten == ["host:8000"]
    states = [entry for entry in night.logs if entry["event"] in ("no data", "answers again")]
    assert [entry["event"] for entry in states] == ["no data", "answers again"]
    assert states[0]["target"] == states[1]["target"] == "host:8000"
    sent = [entry for entry in night.logs if entry["event"] == "page sent"]
    assert [(entry["rule"], entry["about"]) for entry in sent] == [
        ("BatchLimitBinding", "firing"),
        ("BatchLimitBinding", "resolved"),
    ]
    assert len({entry["id"] for entry in sent}) == 1
    value = night.service.metrics.registry.get_sample_value
    assert value("driftwatch_scrapes_total", {"result": "failed"}) == night.failed_scrapes
    assert value("driftwatch_targets") == 1
    assert value("driftwatch_ticks_total", {"result": "complete"}) > 80
    assert night.service.why_not_ready() is None


def test_a_problem_that_lasts_is_logged_every_ten_minutes() -> None:
    notes, none = TickNotes(OwnMetrics()), pl.DataFrame()
    with capture_logs() as logs:
        for minute in (0, 1, 9, 10, 11):  # the number in it changes with every tick
            down = SourceProblem("prometheus p:9090", f"no answer for {minute} s")
            outcome = Outcome(none, none, problems=(down,))
            now = datetime(2026, 1, 5, 9, minute, tzinfo=UTC)
            notes.tick(outcome, outcome, State(), (), 0.1, now)
    assert [one["reason"] for one in logs] == ["no answer for 0 s", "no answer for 10 s"]


def test_who_is_not_ready_says_why(tmp_path: Path) -> None:
    with Store.open(tmp_path / "d.db") as store:
        receivers = [Receiver("inbox", ("page",), Inbox())]
        clock = ManualClock(datetime(2026, 1, 5, tzinfo=UTC))
        service = Service([], PLAN, store, receivers, clock)
        assert service.why_not_ready() == "no tick is complete yet"
        service.tick_once()
        assert service.why_not_ready() is service.why_unhealthy() is None
        service.outbox.start()
        (queue,) = service.outbox.queues.values()
        queue.ending.set()
        queue.woken.set()
        queue.join()  # as after an end that nobody asked for
        assert service.why_not_ready() == "nothing is sent to inbox: the thread ended"
        service.stop()
