"""A tick waits for its simulations within a bound; a page goes out without a late answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from service_cases import shipped_plan

from driftwatch.clock import ManualClock
from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.recommend import advise as advising
from driftwatch.recommend.advice import Advice, Question
from driftwatch.service import run
from driftwatch.service.run import Service
from driftwatch.store import Store


@pytest.fixture
def leave() -> Iterator[threading.Event]:
    """For what simulates slowly: it may end."""
    event = threading.Event()
    yield event
    event.set()


def test_a_firing_page_is_committed_without_an_answer_that_does_not_come(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leave: threading.Event
) -> None:
    def hangs(question: Question, **_: Any) -> Advice:
        leave.wait(60)
        raise ZeroDivisionError

    monkeypatch.setattr(advising, "advise", hangs)
    monkeypatch.setattr(advising, "assess", hangs)
    monkeypatch.setattr(run, "_SIMULATING_SECONDS", 0.5)
    source = RecordingSource(shared_data / "vllm-0.32" / "run_cap")
    first, last = source.span()
    with Store.open(tmp_path / "driftwatch.db") as store:
        clock = ManualClock(first)
        service = Service([source], shipped_plan(1), store, [], clock)
        slowest = 0.0
        while clock.now() < last and not any(one.page for one in store.open_incidents().values()):
            clock.advance(5 * (last - first) / 140)
            began = time.monotonic()
            service.tick_once()
            slowest = max(slowest, time.monotonic() - began)
        pages = [one.page for one in store.open_incidents().values() if one.page]
        service.stop()
    assert pages and slowest < 20
    (page, *_) = pages
    assert page["recommendation"]["reason"] == "the simulations of this tick took over 0.5 s"
    assert page["asked_again_at"]
