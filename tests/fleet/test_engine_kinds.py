"""Servers that are not chat: what their pages count, as vLLM counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from fleet_cases import scenario

from driftwatch.fleet.generate import generate
from driftwatch.minutes.engine import kind_of_scrape


def scrapes_of(kind: str, **more: Any) -> pl.DataFrame:
    """Scrapes of one server of this kind over ten minutes."""
    made = scenario(
        "10m",
        pool={"replicas": 1, "kind": kind, "dcgm": False},
        traffic={"requests_per_second": 8, "cancelled_ratio": 0.0},
        **more,
    )
    frames = [chunk.scrapes for chunk in generate(made, 3)]
    return pl.concat(frames).filter("ok").with_columns(kind=kind_of_scrape())


def increases(scrapes: pl.DataFrame) -> dict[str, float]:
    """Column → by how much it grew, without _total."""
    numbers = scrapes.select(pl.col("^.*_(total|count|sum)$"))
    first, last = numbers.row(0, named=True), numbers.row(-1, named=True)
    known = (name for name in numbers.columns if None not in (first[name], last[name]))
    return {name.removesuffix("_total"): last[name] - first[name] for name in known}


KINDS: dict[str, Callable[[dict[str, float]], bool]] = {
    # prompts and no token
    "pooling": lambda n: (
        n["generation_tokens"] == n["generation_tokens_sum"] == n["itl_seconds_count"] == 0
        and n["ttft_seconds_count"] == n["finished_requests"] > 1000 < n["prompt_tokens"]
    ),
    # one token a request
    "prefill_only": lambda n: (
        n["generation_tokens"] == n["ttft_seconds_count"] > 1000 and n["itl_seconds_count"] == 0
    ),
    # its prompts come by transfer
    "decode_only": lambda n: (
        0.9 * n["prompt_tokens"]
        < n["prompt_tokens_transferred"]
        == n["prompt_tokens"] - n["prompt_tokens_computed"]
        and n["external_prefix_cache_hits"] == pytest.approx(n["prompt_tokens_transferred"], 0.02)
        and n["prefix_cache_hits"] == 0
    ),
    # several tokens an output: 3 drafted, 0.7 of them accepted
    "speculative": lambda n: (
        (n["generation_tokens"] - n["ttft_seconds_count"]) / n["itl_seconds_count"]
        == pytest.approx(1 + 3 * 0.7, rel=0.001)
        and n["spec_decode_accepted_tokens"] / n["spec_decode_draft_tokens"]
        == pytest.approx(0.7, rel=0.001)
        and n["generation_tokens_sum"] == pytest.approx(n["generation_tokens"], rel=0.05)
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_of_a_kind_counts_as_vllm_does(kind: str) -> None:
    scrapes = scrapes_of(kind)
    assert KINDS[kind](increases(scrapes))
    assert scrapes["kind"].tail(1).item() == ("generate" if kind == "speculative" else kind)
    waits = scrapes["waiting_deferred_requests"].max()
    assert isinstance(waits, float) and (waits >= 1) == (kind == "decode_only")


def test_a_sleeping_engine_says_so_and_gives_nothing() -> None:
    scrapes = scrapes_of("generate", faults=[{"kind": "sleep", "at": "4m", "until": "7m"}])
    since = (pl.col("time") - scrapes["time"].min()).dt.total_seconds()
    inside = scrapes.filter(since.is_between(250, 410))
    assert inside["engine_awake"].unique().to_list() == [0.0]
    assert increases(inside)["generation_tokens"] == 0
    assert inside["running_requests"].max() > 0
    assert scrapes.filter(since < 230)["engine_awake"].unique().to_list() == [1.0]
    assert scrapes.tail(1)["engine_awake"].item() == 1.0
