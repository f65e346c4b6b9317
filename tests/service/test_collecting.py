"""Slow, hanging, dripping and raising sources: none holds the others up, none is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from fakes.prometheus_api import PrometheusApi
from pool_cases import BEGIN, FleetSource, Server, one_pool
from service_cases import shipped_plan

from driftwatch.clock import SystemClock
from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.collect.schema import Collected
from driftwatch.errors import Unavailable
from driftwatch.service.run import Service
from driftwatch.service.sources import Collecting
from driftwatch.store.store import Store

PLAN = one_pool(shipped_plan())


class Gated(FleetSource):
    """A fleet whose answers can be held back until its gate opens, or it is closed."""

    def __init__(self, name: str, minutes: float = 60) -> None:
        super().__init__([Server(f"{name}:8000", lambda _: 100.0)], minutes, name)
        self.gate = threading.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.asked: list[tuple[datetime, datetime]] = []
        self.inside = 0
        self.most_inside = 0
        self.closed = False

    def collect(self, since: datetime, until: datetime) -> Collected:
        self.inside += 1
        self.most_inside = max(self.inside, self.most_inside)
        self.asked.append((since, until))
        self.gate.wait(60)
        self.inside -= 1
        if self.error is not None:
            raise self.error
        return super().collect(since, until)

    def close(self) -> None:
        self.closed = True
        self.gate.set()


class Dripping(PrometheusApi):
    """Says when somebody asks."""

    arrived = threading.Event()

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        self.arrived.set()
        super()._serve(handler)


def after(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def waited(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture
def pair() -> Iterator[tuple[Gated, Gated, Collecting]]:
    one, other = Gated("one"), Gated("other")
    collecting = Collecting([one, other])
    yield one, other, collecting
    collecting.end()


START = {"one": BEGIN, "other": BEGIN}


def test_one_that_hangs_is_waited_for_no_longer_than_said(
    pair: tuple[Gated, Gated, Collecting],
) -> None:
    one, _, collecting = pair
    one.gate.clear()
    found = collecting.gather(START, after(60), 0.05)
    assert [*found.answers] == ["other"]
    # not late yet: what is complete waits for it
    assert (found.complete, found.late) == (BEGIN, {})
    assert not collecting.free("one")
    found = collecting.gather(found.collected_until, after(91), 0.05)
    assert found.late == {"one": "one: no answer for 91 s"}
    assert found.complete == after(91)
    assert len(one.asked) == 1
    one.gate.set()
    waited(lambda: collecting.free("one"))
    found = collecting.gather(found.collected_until, after(100), 30)
    # the answer of then is taken; what is missing since is asked for next
    assert [*found.answers] == ["one", "other"]
    assert found.collected_until == {"one": after(60), "other": after(100)}
    found = collecting.gather(found.collected_until, after(120), 30)
    assert one.asked == [(BEGIN, after(60)), (after(60), after(120))]
    assert found.complete == after(120)
    assert one.most_inside == 1


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
        (Unavailable("answers 503"), "answers 503"),
    ],
)
def test_one_that_raises_is_a_problem_and_asked_again(
    pair: tuple[Gated, Gated, Collecting], error: Exception, said: str
) -> None:
    one, _, collecting = pair
    one.error = error
    found = collecting.gather(START, after(60), 30)
    assert found.failed == ("one",)
    assert found.collected_until["one"] == BEGIN
    (problem,) = found.answers["one"].problems
    assert (problem.where, problem.reason) == ("one", said)
    assert found.answers["one"].silent == said
    one.error = None
    found = collecting.gather(found.collected_until, after(75), 30)
    assert one.asked[-1] == (BEGIN, after(75))
    assert found.complete == after(75)


def test_a_stop_does_not_wait_for_a_prometheus_that_drips(tmp_path: Path) -> None:
    with Dripping([]) as api, Store.open(tmp_path / "d.db") as store:
        api.drip = "body"
        api.arrived.clear()
        # without an end from outside it would drip for ten minutes
        asker = PrometheusAsker(api.address, timeout_seconds=600)
        source = PrometheusSource(asker, selector={}, budget_seconds=600, name="slow")
        service = Service([source], PLAN, store, [], SystemClock(), interval_seconds=60)
        service.start()
        assert api.arrived.wait(60)
        stopping = threading.Thread(target=service.stop)
        stopping.start()
        stopping.join(60)
        assert not stopping.is_alive()
        waited(lambda: service._collecting.free("slow"))
