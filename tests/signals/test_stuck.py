"""How long requests have been present without a token: idle is not stuck, wedged is."""

from __future__ import annotations

from typing import Any

import pytest
from pipeline_cases import evidence, scrapes, serving, windows


def page(t: float, tokens: float | None, running: float | None, waiting: float | None = 0.0) -> Any:
    return {
        "t": t,
        "generation_tokens_total": tokens,
        "running_requests": running,
        "waiting_requests": waiting,
        "process_start_time_seconds": 1000.0,
    }


def seconds(rows: list[dict[str, Any]], *spans: tuple[float, float]) -> list[float | None]:
    frame = scrapes(rows)
    return evidence(frame, windows(*spans), serving(frame))["seconds_since_last_token"].to_list()


def test_a_wedged_engine_counts_from_its_last_token() -> None:
    rows = [page(t, 100.0 + min(t, 30), 3.0) for t in range(0, 240, 5)]
    assert seconds(rows, (0, 60), (60, 120), (120, 180)) == [25.0, 85.0, 145.0]


def test_a_wedged_engine_with_only_waiting_requests_counts_too() -> None:
    rows = [page(t, 100.0 + min(t, 30), 0.0, 4.0) for t in range(0, 240, 5)]
    assert seconds(rows, (120, 180)) == [145.0]


def test_the_first_request_after_a_long_idle_is_not_stuck() -> None:
    rows = [page(t, 100.0, 0.0) for t in range(0, 3600, 15)] + [page(3600, 100.0, 1.0)]
    (found,) = seconds(rows, (3600, 3660))
    assert found is not None
    assert found <= 15.0


def test_a_restart_begins_anew() -> None:
    rows = [page(t, 100.0, 3.0) for t in range(0, 300, 10)]
    rows += [page(t, 0.0, 3.0) | {"process_start_time_seconds": 2000.0} for t in (300, 310, 320)]
    assert seconds(rows, (240, 300), (300, 360)) == [290.0, 20.0]


@pytest.mark.parametrize(
    "works",
    [
        {"prefix_cache_queries_total": 7000.0},  # each who is admitted asks it, whoever gives up
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
    assert seconds(rows, (540, 600)) == [0.0]


def test_a_queue_that_moves_beside_nobody_admitted_is_stuck() -> None:
    """The scheduler runs and lets nobody in: the prefix cache would be asked for who comes."""
    asked = {"prefix_cache_queries_total": 7000.0}
    rows = [page(t, 100.0, 0.0, 4.0 + t) | asked for t in range(0, 300, 10)]
    assert seconds(rows, (240, 300)) == [290.0]


def test_a_queue_that_shrinks_without_a_token_is_no_hang() -> None:
    """Each client gives up before its first token: steps run, and no page shows them."""
    rows = [page(t, 100.0, 0.0, 4900.0 + 7 * (-1) ** (t // 15)) for t in range(0, 600, 15)]
    found = seconds(rows, (540, 600))
    assert found[0] is not None and found[0] <= 30.0


def test_a_queue_that_grows_while_the_cache_is_asked_is_no_hang() -> None:
    """Each is admitted and gives up between two scrapes, and more come than go."""
    rows = [
        page(t, 100.0, 0.0, 15_000.0 + t) | {"prefix_cache_queries_total": 7000.0 + 700 * t}
        for t in range(0, 600, 60)
    ]
    found = seconds(rows, (540, 600))
    assert found[0] is not None and found[0] <= 60.0


def test_a_cache_that_is_asked_for_the_head_of_the_queue_alone_is_no_work() -> None:
    """Older vLLM asks in every step, and nobody is admitted: nothing runs, and nothing moves."""
    rows = [
        page(t, 100.0, 0.0, 6.0) | {"prefix_cache_queries_total": 7000.0 + t}
        for t in range(0, 300, 10)
    ]
    assert seconds(rows, (240, 300)) == [290.0]


@pytest.mark.parametrize("queries", [None, 0.0])
def test_a_queue_that_moves_where_admissions_are_not_seen_is_unknown(queries: float | None) -> None:
    asked = {"prefix_cache_queries_total": queries}
    rows = [page(t, 100.0, 0.0, 4.0 + t) | asked for t in range(0, 300, 10)]
    assert seconds(rows, (240, 300)) == [None]
    rows += [page(t, 100.0, 0.0, 300.0) | asked for t in range(300, 600, 10)]  # and hangs
    assert seconds(rows, (540, 600)) == [290.0]


@pytest.mark.parametrize("missing", ["generation_tokens_total", "running_requests"])
def test_without_its_inputs_it_is_unknown(missing: str) -> None:
    rows = [page(t, 100.0, 3.0) | {missing: None} for t in range(0, 300, 10)]
    assert seconds(rows, (240, 300)) == [None]


def test_waiting_by_reason_stands_in_for_the_gauge() -> None:
    reasons = {"waiting_capacity_requests": 1.0, "waiting_deferred_requests": 0.0}
    rows = [page(t, 100.0, 0.0, None) | reasons for t in range(0, 300, 10)]
    assert seconds(rows, (240, 300)) == [290.0]
    nobody = dict.fromkeys(reasons, 0.0)
    rows = [page(t, 100.0, 0.0, None) | nobody for t in range(0, 300, 10)]
    assert seconds(rows, (240, 300)) == [0.0]
