"""Servers that are not chat: what their pages count, and the seven scenarios of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from driftwatch.fleet.generate import generate
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.minutes.engine import kind_of_scrape

Made = Callable[..., pl.DataFrame]


def made(kind: str, **more: Any) -> pl.DataFrame:
    """Scrapes of one server of this kind over ten minutes."""
    faults = more.pop("faults", [])
    scenario = Scenario.model_validate(
        {
            "name": "kind",
            "title": "a kind",
            "duration": "10m",
            "pool": {"replicas": 1, "kind": kind, "dcgm": False, **more},
            "traffic": {"requests_per_second": 8, "cancelled_ratio": 0.0},
            "faults": faults,
            "truth": {},
        }
    )
    frames = [chunk.scrapes for chunk in generate(scenario, 3)]
    return pl.concat(frames).filter("ok").with_columns(kind=kind_of_scrape())


def increases(scrapes: pl.DataFrame, *names: str) -> dict[str, float]:
    first, last = scrapes.head(1), scrapes.tail(1)
    return {name: last[name].item() - first[name].item() for name in names}


def test_a_pooling_server_books_prompts_and_no_token() -> None:
    scrapes = made("pooling")
    found = increases(
        scrapes,
        "generation_tokens_total",
        "prompt_tokens_total",
        "finished_requests_total",
        "generation_tokens_sum",
        "itl_seconds_count",
        "ttft_seconds_count",
    )
    assert found["generation_tokens_total"] == found["generation_tokens_sum"] == 0
    assert found["itl_seconds_count"] == 0
    assert found["prompt_tokens_total"] > 100_000
    assert found["ttft_seconds_count"] == found["finished_requests_total"] > 1000
    assert scrapes["kind"].tail(1).item() == "pooling"


def test_the_prefill_side_gives_one_token_a_request() -> None:
    scrapes = made("prefill_only")
    found = increases(scrapes, "generation_tokens_total", "ttft_seconds_count", "itl_seconds_count")
    assert found["generation_tokens_total"] == found["ttft_seconds_count"] > 1000
    assert found["itl_seconds_count"] == 0
    assert scrapes["kind"].tail(1).item() == "prefill_only"


def test_the_decode_side_gets_its_prompts_by_transfer_and_defers_while_they_come() -> None:
    scrapes = made("decode_only")
    found = increases(
        scrapes,
        "prompt_tokens_total",
        "prompt_tokens_computed_total",
        "prompt_tokens_transferred_total",
        "external_prefix_cache_hits_total",
        "prefix_cache_hits_total",
    )
    moved = found["prompt_tokens_transferred_total"]
    assert moved + found["prompt_tokens_computed_total"] == found["prompt_tokens_total"]
    assert moved > 0.9 * found["prompt_tokens_total"]
    assert found["external_prefix_cache_hits_total"] == pytest.approx(moved, rel=0.02)
    assert found["prefix_cache_hits_total"] == 0
    assert scrapes["waiting_deferred_requests"].max() >= 1
    assert scrapes["kind"].tail(1).item() == "decode_only"


def test_speculative_decoding_brings_several_tokens_an_output() -> None:
    scrapes = made("speculative", draft_tokens=3, acceptance_ratio=0.6)
    found = increases(
        scrapes,
        "generation_tokens_total",
        "generation_tokens_sum",
        "ttft_seconds_count",
        "itl_seconds_count",
        "spec_decode_draft_tokens_total",
        "spec_decode_accepted_tokens_total",
    )
    later = found["generation_tokens_total"] - found["ttft_seconds_count"]
    assert later / found["itl_seconds_count"] == pytest.approx(1 + 3 * 0.6, rel=0.001)
    accepted = found["spec_decode_accepted_tokens_total"]
    assert accepted / found["spec_decode_draft_tokens_total"] == pytest.approx(0.6, rel=0.001)
    # what requests book when they finish is what was generated, but for those under way
    assert found["generation_tokens_sum"] == pytest.approx(
        found["generation_tokens_total"], rel=0.05
    )
    assert scrapes["kind"].tail(1).item() == "generate"


def test_a_sleeping_engine_says_so_and_gives_nothing() -> None:
    scrapes = made("generate", faults=[{"kind": "sleep", "at": "4m", "until": "7m"}])
    start = scrapes["time"].min()
    since = (pl.col("time") - start).dt.total_seconds()
    inside = scrapes.filter(since.is_between(250, 410))
    assert inside["engine_awake"].unique().to_list() == [0.0]
    assert increases(inside, "generation_tokens_total")["generation_tokens_total"] == 0
    assert inside["running_requests"].max() > 0
    assert scrapes.filter(since < 230)["engine_awake"].unique().to_list() == [1.0]
    assert scrapes.tail(1)["engine_awake"].item() == 1.0
