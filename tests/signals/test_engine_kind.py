"""What kind of engine it is, by what it counted; a sleeping or pooling engine is not stuck."""

from __future__ import annotations

from typing import Any

import pytest
from pipeline_cases import evidence, scrapes, serving, windows


def page(t: float, **counters: float | None) -> dict[str, Any]:
    told = {"running_requests": 3.0, "waiting_requests": 0.0, "process_start_time_seconds": 1.0}
    return {"t": t, **told, **counters}


def told(rows: list[dict[str, Any]], column: str, start: float = 0, end: float = 60) -> Any:
    frame = scrapes(rows)
    return evidence(frame, windows((start, end)), serving(frame))[column].item()


def stuck(rows: list[dict[str, Any]], start: float, end: float) -> Any:
    return told(rows, "seconds_since_last_token", start, end)


def pooling(t: float, prompts: float) -> dict[str, Any]:
    return page(t, generation_tokens_total=0.0, prompt_tokens_total=prompts)


def test_an_embedding_server_at_work_is_not_stuck() -> None:
    rows = [pooling(t, 100.0 * t) for t in range(0, 600, 15)]
    assert stuck(rows, 540, 600) == 0.0


def test_an_embedding_server_that_hangs_is_stuck() -> None:
    rows = [pooling(t, 100.0 * min(t, 300)) for t in range(0, 600, 15)]
    assert stuck(rows, 540, 600) == 285.0


def asleep(t: float, awake: float | None) -> dict[str, Any]:
    return page(t, generation_tokens_total=float(min(t, 300)), engine_awake=awake)


def test_a_sleeping_engine_that_holds_requests_is_not_stuck() -> None:
    rows = [asleep(t, 1.0 if t < 300 else 0.0) for t in range(0, 900, 15)]
    assert stuck(rows, 840, 900) == 0.0


def test_one_that_was_woken_and_gives_no_token_counts_from_its_waking() -> None:
    rows = [asleep(t, 0.0 if 300 <= t < 600 else 1.0) for t in range(0, 900, 15)]
    assert stuck(rows, 840, 900) == 285.0


@pytest.mark.parametrize(
    ("counters", "expected"),
    [
        ({"ttft": 1, "itl": 0, "generated": 0}, "pooling"),
        ({"ttft": 100, "itl": 0, "generated": 100}, "prefill_only"),
        ({"ttft": 1000, "itl": 10, "generated": 1010}, "prefill_only"),
        ({"ttft": 1000, "itl": 11, "generated": 1011}, "generate"),
        ({"ttft": 99, "itl": 0, "generated": 99}, None),
        ({"ttft": 0, "itl": 0, "generated": 0}, None),
        ({"ttft": 10, "itl": 500, "generated": 510}, "generate"),
        ({"ttft": 10, "itl": 500, "generated": 510, "moved": 500}, "decode_only"),
        ({"ttft": 10, "itl": 500, "generated": 510, "moved": 499}, "generate"),
        ({"ttft": None, "itl": None, "generated": 0}, None),
    ],
)
def test_the_kind_is_told_from_what_was_counted(
    counters: dict[str, float | None], expected: str | None
) -> None:
    page_ = page(
        0.0,
        ttft_seconds_count=counters["ttft"],
        itl_seconds_count=counters["itl"],
        generation_tokens_total=counters["generated"],
        prompt_tokens_total=1000.0,
        prompt_tokens_transferred_total=counters.get("moved"),
    )
    assert told([page_], "engine_kind") == expected


def test_a_queue_of_a_pooling_engine_is_bound_by_its_cap_and_not_stalled() -> None:
    rows = [
        {**pooling(t, 100.0 * t), "waiting_requests": 9.0, "kv_cache_usage_ratio": 0.1}
        for t in range(0, 60, 15)
    ]
    frame = scrapes(rows)
    found = evidence(frame, windows((0, 60)), serving(frame, max_num_seqs=3.0)).row(0, named=True)
    assert (found["limit_binding_share_10m_ratio"], found["binding_limit"]) == (1.0, "max_num_seqs")
