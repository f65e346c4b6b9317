"""Pages are scraped on a clock of their own where several batches ask for them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from fakes.exposition_server import ReplayedExposition

from driftwatch.clock import SystemClock
from driftwatch.collect.pages import PagesSource
from driftwatch.service.source_threads import HeldSource, held

PAGE = 'vllm:num_requests_running{engine="0",model_name="m"} 3\n'


@pytest.fixture
def source() -> Iterator[HeldSource]:
    clock = SystemClock()
    with ReplayedExposition([(0.0, PAGE)], clock=lambda: 1.0) as server:
        live = PagesSource({server.url: {"instance": "a:8000"}}, clock=clock)
        (made,) = held([live], clock, 0.1)
        assert isinstance(made, HeldSource)
        yield made
        made.close()


def test_two_who_ask_for_the_same_time_are_told_the_same(source: HeldSource) -> None:
    clock = SystemClock()
    begun = clock.now() - timedelta(seconds=5)
    assert len(source.collect(begun, clock.now()).targets) == 1
    time.sleep(0.5)
    until = clock.now() - timedelta(seconds=0.2)
    one, other = (source.collect(begun, until) for _ in range(2))
    assert one.scrapes.height >= 2
    assert one.scrapes.equals(other.scrapes)
    assert one.scrapes["ok"].all()
    assert source.collect(until, until).scrapes.is_empty()
    # a scrape that is under way then is told of later
    assert source.settle_seconds > 10


def test_it_says_what_the_servers_report(source: HeldSource) -> None:
    assert set(source.reports()) == {"a:8000"}
