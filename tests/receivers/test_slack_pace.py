"""One message a second and channel: the bucket, and what a 429 closes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slack_cases import Clock

from driftwatch.receivers.slack_pace import BURST, PER_SECOND, Bucket, Pace, after_one

APP, POST, UPDATE = "app", "chat.postMessage", "chat.update"
ONE, OTHER = "C0000ONE", "C0000OTHER"


@given(st.lists(st.floats(0, 20), min_size=1, max_size=60))
def test_no_window_holds_more_than_its_seconds_and_a_burst(gaps: list[float]) -> None:
    bucket: Bucket | None = None
    now, sent = 0.0, []
    for gap in gaps:
        now += gap
        bucket, wait = after_one(bucket, now)
        assert wait >= 0
        sent.append(now + wait)
    for first in range(len(sent)):
        for last in range(first, len(sent)):
            seconds = sent[last] - sent[first]
            assert last - first + 1 <= BURST + seconds * PER_SECOND + 1e-6


@given(st.lists(st.floats(0, 20), min_size=1, max_size=60))
def test_nobody_waits_who_comes_once_a_second(gaps: list[float]) -> None:
    bucket: Bucket | None = None
    now = 0.0
    for gap in gaps:
        now += 1 + gap
        bucket, wait = after_one(bucket, now)
        assert wait == 0


def test_a_clock_that_stands_still_or_goes_back_gives_no_message_away() -> None:
    bucket, _ = after_one(None, 100.0)
    for now in (100.0, 50.0):
        bucket, _ = after_one(bucket, now)
    assert (bucket.tokens, bucket.at) == (0.0, 100.0)


def test_channels_do_not_wait_for_each_other() -> None:
    clock = Clock()
    pace = Pace(clock.now, clock.sleep)
    for channel in (ONE, OTHER):
        for _ in range(int(BURST)):
            assert pace.wait(APP, POST, channel, posts=True) == 0
    assert clock.slept == []
    assert pace.wait(APP, POST, ONE, posts=True) == 0
    assert clock.slept == [1.0]


def test_what_reads_takes_no_turn() -> None:
    clock = Clock()
    pace = Pace(clock.now, clock.sleep)
    for _ in range(100):
        assert pace.wait(APP, "users.info", "", posts=False) == 0
    assert clock.slept == []


def test_a_429_closes_one_method_of_one_channel() -> None:
    clock = Clock()
    pace = Pace(clock.now, clock.sleep)
    pace.close(APP, POST, ONE, 30.0)
    assert pace.wait(APP, POST, ONE, posts=True) == pytest.approx(30)
    assert pace.wait(APP, UPDATE, ONE, posts=True) == 0
    assert pace.wait(APP, POST, OTHER, posts=True) == 0
    assert pace.wait("another app", POST, ONE, posts=True) == 0
    clock.seconds += 27
    assert pace.wait(APP, POST, ONE, posts=True) == 0  # a short rest is waited out
    assert clock.slept == [pytest.approx(3)]
    assert not pace.is_closed(APP, POST, ONE)


def test_a_queue_that_is_too_long_is_the_outboxs() -> None:
    clock = Clock()
    pace = Pace(clock.now, lambda seconds: None)  # others wait at the same time
    waits = [pace.wait(APP, POST, ONE, posts=True) for _ in range(20)]
    assert waits[:8] == [0] * 8
    assert waits[-1] == pytest.approx(6)
