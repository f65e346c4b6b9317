"""How long requests have been present without a token; a page that is read again is no new one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pipeline_cases import KEY, MINUTE, T0, evidence, grid, recording, scrapes, serving, windows

from driftwatch.minutes.continuity import with_epochs
from driftwatch.minutes.scheduler import no_samples, scrape_facts

Page = dict[str, Any]
QUERIES = "prefix_cache_queries_total"


def page(
    t: float, tokens: float | None, running: float | None, waiting: float | None = 0.0
) -> Page:
    return {
        "t": t,
        "generation_tokens_total": tokens,
        "running_requests": running,
        "waiting_requests": waiting,
        "process_start_time_seconds": 1000.0,
    }


def column(rows: list[Page], end: float, name: str = "seconds_since_last_token") -> Any:
    """Of the minute that ends there."""
    frame = scrapes(rows)
    return evidence(frame, windows((end - 60, end)), serving(frame))[name].item()


def queue(t: float, waiting: float, queries: float | None) -> Page:
    """Nobody runs, some wait."""
    return page(t, 100.0, 0.0, waiting) | {QUERIES: queries}


def pooling(t: float, prompts: float) -> Page:
    return page(t, 0.0, 3.0) | {"prompt_tokens_total": prompts}


def asleep(t: float, is_asleep: bool) -> Page:
    return page(t, min(t, 300), 3.0) | {"engine_awake": 0.0 if is_asleep else 1.0}


def by_reason(t: float, capacity: float) -> Page:
    reasons = {"waiting_capacity_requests": capacity, "waiting_deferred_requests": 0.0}
    return page(t, 100.0, 0.0, None) | reasons


@pytest.mark.parametrize(
    ("made", "every", "end", "seconds"),
    [
        # an engine that hangs counts from its last token
        (lambda t: page(t, 100.0 + min(t, 30), 3.0), 5, 60, 25.0),
        (lambda t: page(t, 100.0 + min(t, 30), 3.0), 5, 180, 145.0),
        (lambda t: page(t, 100.0 + min(t, 30), 0.0, 4.0), 5, 180, 145.0),
        # the first request after a long idle
        (lambda t: page(t, 100.0, 0.0 if t < 540 else 1.0), 15, 600, 45.0),
        # the scheduler runs and lets nobody in: the cache would be asked for who comes
        (lambda t: queue(t, 4.0 + t, 7000.0), 10, 300, 290.0),
        # older vLLM asks for the head of the queue in every step: nothing runs, nothing moves
        (lambda t: queue(t, 6.0, 7000.0 + t), 10, 300, 290.0),
        # each client gives up before its first token: steps run, and no page shows them
        (lambda t: queue(t, 4900.0 + 7 * (-1) ** (t // 15), None), 15, 600, 0.0),
        # each is admitted and gives up between two scrapes, and more come than go
        (lambda t: queue(t, 15_000.0 + t, 7000.0 + 700 * t), 60, 600, 0.0),
        # where admissions are not seen and the queue moves
        (lambda t: queue(t, 4.0 + t, None), 10, 300, None),
        (lambda t: queue(t, 4.0 + t, 0.0), 10, 300, None),
        (lambda t: queue(t, 4.0 + min(t, 300), 0.0), 10, 600, 290.0),
        # inputs
        (lambda t: page(t, None, 3.0), 10, 300, None),
        (lambda t: page(t, 100.0, None), 10, 300, None),
        (lambda t: by_reason(t, 1.0), 10, 300, 290.0),
        (lambda t: by_reason(t, 0.0), 10, 300, 0.0),
        # an embedding server at work, and one that hangs
        (lambda t: pooling(t, 100.0 * t), 15, 600, 0.0),
        (lambda t: pooling(t, 100.0 * min(t, 300)), 15, 600, 285.0),
        # one that sleeps with requests, and one that was woken
        (lambda t: asleep(t, t >= 300), 15, 900, 0.0),
        (lambda t: asleep(t, 300 <= t < 600), 15, 900, 285.0),
    ],
)
def test_seconds_since_the_last_token(
    made: Callable[[int], Page], every: int, end: float, seconds: float | None
) -> None:
    assert column([made(t) for t in range(0, int(end), every)], end) == seconds


def test_a_restart_begins_anew() -> None:
    rows = [page(t, 100.0, 3.0) for t in range(0, 300, 10)]
    rows += [page(t, 0.0, 3.0) | {"process_start_time_seconds": 2000.0} for t in (300, 310, 320)]
    assert (column(rows, 300), column(rows, 360)) == (290.0, 20.0)


@pytest.mark.parametrize(
    "works",
    [
        {QUERIES: 7000.0},  # each who is admitted asks it, whoever gives up
        {"preemptions_total": 1.0},
        {"running_requests": 1.0},
        {"kv_cache_usage_ratio": 0.002},  # a prompt of minutes, chunk by chunk
    ],
)
def test_an_engine_that_works_without_a_token_is_not_stuck(works: dict[str, float]) -> None:
    """Clients give up before their first token: the queue moves, and so does something else."""
    rows = [
        page(t, 100.0, 2.0, 400.0 + t % 7)
        | {name: 0.5 + step * (t // 30) for name, step in works.items()}
        for t in range(0, 600, 30)
    ]
    assert column(rows, 600) == 0.0


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        # first tokens, later ones, all generated, prompt tokens that came from elsewhere
        ((1, 0, 0, None), "pooling"),
        ((100, 0, 100, None), "prefill_only"),
        ((1000, 10, 1010, None), "prefill_only"),
        ((1000, 11, 1011, None), "generate"),
        ((99, 0, 99, None), None),
        ((0, 0, 0, None), None),
        ((10, 500, 510, 500), "decode_only"),
        ((10, 500, 510, 499), "generate"),
        ((None, None, 0, None), None),
    ],
)
def test_the_kind_of_engine(counts: tuple[float | None, ...], expected: str | None) -> None:
    first, later, generated, moved = counts
    counters = {
        "ttft_seconds_count": first,
        "itl_seconds_count": later,
        "prompt_tokens_total": 1000.0,
        "prompt_tokens_transferred_total": moved,
    }
    assert column([page(0.0, generated, 3.0) | counters], 60, "engine_kind") == expected


def test_a_queue_of_a_pooling_engine_is_bound_by_its_cap_and_not_stalled() -> None:
    rows = [
        pooling(t, 100.0 * t) | {"waiting_requests": 9.0, "kv_cache_usage_ratio": 0.1}
        for t in range(0, 60, 15)
    ]
    frame = scrapes(rows)
    found = evidence(frame, windows((0, 60)), serving(frame, max_num_seqs=3.0)).row(0, named=True)
    assert (found["limit_binding_share_10m_ratio"], found["binding_limit"]) == (1.0, "max_num_seqs")


def _time(frame: pl.DataFrame, row: int) -> datetime:
    found = frame["time"].sort()[row]
    assert isinstance(found, datetime)
    return found


def _held(frame: pl.DataFrame, seconds: float) -> pl.DataFrame:
    """What a cache of so many seconds in front of the pages would have shown."""
    begin = _time(frame, 0)
    slot = ((pl.col("time") - begin).dt.total_milliseconds() / (seconds * 1000)).floor()
    shown = [c for c in frame.columns if c not in (*KEY, "time")]
    return frame.with_columns(pl.col(c).first().over(*KEY, slot) for c in shown)


def _evidence(frame: pl.DataFrame) -> pl.DataFrame:
    return evidence(frame, grid(frame), serving(frame))


@pytest.fixture(scope="module")
def recorded(shared_data: Path) -> pl.DataFrame:
    return recording(shared_data / "vllm-0.32" / "run_cap")


def test_a_limit_binds_as_often_as_where_every_page_is_new(recorded: pl.DataFrame) -> None:
    every = _evidence(recorded)["limit_binding_share_10m_ratio"]
    held = _evidence(_held(recorded, 15))["limit_binding_share_10m_ratio"]
    assert (every - held).abs().max() <= 0.05
    assert held.max() >= 0.6


def _frozen(seconds: float, *, every: float = 5.0) -> pl.DataFrame:
    """A server that gives tokens for a minute, and from then on the same page."""
    rows: list[dict[str, Any]] = []
    for number in range(int(seconds / every)):
        at = min(number * every, 60.0)
        rows.append(
            {
                "t": number * every,
                "running_requests": 8.0,
                "waiting_requests": 20.0,
                "kv_cache_usage_ratio": 0.1,
                "generation_tokens_total": at * 100,
                "iteration_tokens_count": at * 10,
                "iteration_tokens_sum": at * 1000,
                "preemptions_total": 0.0,
            }
        )
    return scrapes(rows)


def _facts(frame: pl.DataFrame) -> pl.DataFrame:
    return scrape_facts(with_epochs(frame), no_samples())


def test_a_frozen_engine_binds_nothing_after_a_minute_and_is_stuck_after_two() -> None:
    facts = _facts(_frozen(300))
    age = (facts["time"] - T0).dt.total_seconds()
    stalled = facts["stalled"].fill_null(False).to_list()
    repeats = facts["repeats"].to_list()
    # the last new page came after 60 s; it is believed for less than a minute more
    assert repeats == [60 < a < 120 for a in age]
    assert stalled == [a >= 120 for a in age]
    assert facts.filter("repeats")["tokens_per_step"].unique().to_list() == [100.0]
    rows = _evidence(_frozen(600))
    told = dict(
        zip(rows["start"].to_list(), rows["seconds_since_last_token"].to_list(), strict=True)
    )
    assert told[T0 + 2 * MINUTE] == 115
    assert told[T0 + 3 * MINUTE] == 175
