"""The service on a replayed server: live equals replay, restarts forget nothing."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fakes.exposition_server import ReplayedExposition, read_pages
from service_cases import shipped_plan
from structlog.testing import capture_logs

from driftwatch.clock import ManualClock
from driftwatch.collect.pages import PagesSource
from driftwatch.errors import DeliveryError
from driftwatch.receivers.sender import Message
from driftwatch.service.replay import replay
from driftwatch.service.run import Receiver, Service
from driftwatch.store.store import Store

PLAN = shipped_plan()


class Inbox:
    """A receiver that keeps what it is sent, or refuses it."""

    def __init__(self) -> None:
        self.pages: list[dict[str, Any]] = []
        self.refuse: DeliveryError | None = None

    def send(self, message: Message) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.pages.append(dict(message.payload))


@pytest.fixture(scope="module")
def thinned(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """run_cap with every second of its scrapes, one each 10 s."""
    whole = shared_data / "vllm-0.32" / "run_cap" / "scrapes.jsonl.gz"
    lines = gzip.decompress(whole.read_bytes()).splitlines(keepends=True)
    folder = tmp_path_factory.mktemp("thinned")
    (folder / whole.name).write_bytes(gzip.compress(b"".join(lines[::2])))
    return folder


@pytest.fixture(scope="module")
def recorded(thinned: Path) -> list[tuple[float, str | None]]:
    return read_pages(thinned / "scrapes.jsonl.gz")


@pytest.fixture
def clock(recorded: list[tuple[float, str | None]]) -> ManualClock:
    return ManualClock(datetime.fromtimestamp(recorded[0][0], UTC))


@pytest.fixture
def server(
    recorded: list[tuple[float, str | None]], clock: ManualClock
) -> Iterator[ReplayedExposition]:
    with ReplayedExposition(recorded, clock=lambda: clock.now().timestamp()) as running:
        yield running


def _service(server: ReplayedExposition, store: Store, clock: ManualClock, inbox: Inbox) -> Service:
    source = PagesSource({server.url: {"instance": "host:8000"}}, clock=clock)
    receivers = [Receiver("inbox", ("page", "ticket", "notice"), inbox)]
    return Service([source], PLAN, store, receivers, clock)


def _until(
    service: Service,
    clock: ManualClock,
    recorded: list[tuple[float, str | None]],
    minutes: float,
    begin: float = 0.0,
) -> None:
    """Tick at the recorded scrape times of a stretch, as if scraping live."""
    start = recorded[0][0]
    for at, _ in recorded:
        if start + begin * 60 <= at < start + minutes * 60:
            clock.set(datetime.fromtimestamp(at, UTC))
            service.tick_once()
            service.deliver_once()


@pytest.fixture(scope="module")
def watched(
    recorded: list[tuple[float, str | None]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The database of a service that stopped just before it would send its first page."""
    path = tmp_path_factory.mktemp("watched") / "d.db"
    clock = ManualClock(datetime.fromtimestamp(recorded[0][0], UTC))
    inbox = Inbox()
    with (
        Store.open(path) as store,
        ReplayedExposition(recorded, clock=lambda: clock.now().timestamp()) as server,
    ):
        service = _service(server, store, clock, inbox)
        _until(service, clock, recorded, 11.2)
        service.stop()
    assert inbox.pages == []
    return path


@pytest.fixture
def database(watched: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copy(watched, tmp_path / "d.db"))


class Night(NamedTuple):
    """The whole recording, watched by three processes, one after the other."""

    pages: list[dict[str, Any]]
    logs: Sequence[Mapping[str, Any]]
    failed_scrapes: float | None


@pytest.fixture(scope="module")
def night(
    watched: Path,
    recorded: list[tuple[float, str | None]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Night:
    """Stopped just before it would fire, and once more while it fires."""
    inbox = Inbox()
    path = shutil.copy(watched, tmp_path_factory.mktemp("night") / "d.db")
    clock = ManualClock(datetime.fromtimestamp(recorded[0][0], UTC))
    with (
        ReplayedExposition(recorded, clock=lambda: clock.now().timestamp()) as server,
        capture_logs() as logs,
    ):
        for begin, end in ((11.2, 14), (14, 29)):
            with Store.open(path) as store:
                service = _service(server, store, clock, inbox)
                _until(service, clock, recorded, end, begin)
                service.stop()
    failed = {"result": "failed"}
    count = service.metrics.registry.get_sample_value("driftwatch_scrapes_total", failed)
    return Night(inbox.pages, logs, count)


def test_live_pages_equal_replayed_pages_over_restarts(night: Night, thinned: Path) -> None:
    from driftwatch.collect.recordings.text import RecordingSource

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


def test_a_page_whose_text_cannot_be_made_goes_out_as_it_was(
    server: ReplayedExposition,
    clock: ManualClock,
    database: Path,
    recorded: list[tuple[float, str | None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inbox = Inbox()

    def broken(*_: object) -> None:
        raise KeyError("times")

    monkeypatch.setattr("driftwatch.service.planning.sent_page", broken)
    with Store.open(database) as store:
        _until(_service(server, store, clock, inbox), clock, recorded, 13, 11.2)
    assert [page["event"] for page in inbox.pages][:1] == ["firing"]
    assert all(page["summary"] for page in inbox.pages)


def test_own_metrics_and_probes(
    server: ReplayedExposition,
    clock: ManualClock,
    tmp_path: Path,
    recorded: list[tuple[float, str | None]],
) -> None:
    import requests

    from driftwatch.service.endpoint import Endpoint

    with Store.open(tmp_path / "d.db") as store:
        service = _service(server, store, clock, Inbox())
        endpoint = Endpoint(
            ("127.0.0.1", 0), service.metrics.registry, service.why_unhealthy, service.why_not_ready
        )
        base = "http://{}:{}".format(*endpoint.address)
        try:
            assert requests.get(f"{base}/-/ready", timeout=5).status_code == 503
            _until(service, clock, recorded, 3)
            assert requests.get(f"{base}/-/ready", timeout=5).status_code == 200
            assert requests.get(f"{base}/-/healthy", timeout=5).status_code == 200
            page = requests.get(f"{base}/metrics", timeout=5).text
            assert requests.get(f"{base}/other", timeout=5).status_code == 404
            service.outbox.start()
            (worker,) = service.outbox.queues.values()
            worker.ending.set()
            worker.woken.set()
            worker.join()  # as after an end that nobody asked for
            unready = requests.get(f"{base}/-/ready", timeout=5)
            assert (unready.status_code, unready.text.partition(" to ")[0]) == (
                503,
                "nothing is sent",
            )
        finally:
            endpoint.close()
            service.stop()
    assert "driftwatch_targets 1.0" in page
    assert 'driftwatch_ticks_total{result="complete"} 18.0' in page
    assert 'driftwatch_scrapes_total{result="ok"} 18.0' in page
    assert 'driftwatch_incidents_open{severity="page",state="firing"} 0.0' in page


def test_a_server_that_fails_is_said_when_it_begins_and_when_it_ends(
    night: Night, recorded: list[tuple[float, str | None]]
) -> None:
    """run_cap's server is restarted once: it answers nothing for a while."""
    states = [entry for entry in night.logs if entry["event"] in ("no data", "answers again")]
    assert [entry["event"] for entry in states] == ["no data", "answers again"]
    assert states[0]["target"] == states[1]["target"] == "host:8000"
    assert states[0]["reason"]
    assert night.failed_scrapes == sum(body is None for _, body in recorded)
    sent = [entry for entry in night.logs if entry["event"] == "page sent"]
    assert [(entry["rule"], entry["about"]) for entry in sent] == [
        ("BatchLimitBinding", "firing"),
        ("BatchLimitBinding", "resolved"),
    ]
    assert len({entry["id"] for entry in sent}) == 1
