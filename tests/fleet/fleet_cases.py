"""Scenarios made once, and figures of a stretch of them."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import Any

import polars as pl

from driftwatch.fleet.generate import Chunk, ServerRun
from driftwatch.fleet.scenario.file import scenario_named
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.traffic import PoolTraffic

BEFORE, AFTER = 15.0, 25.0  # minutes kept of a scenario, before and after the first effect


def scenario(duration: str = "30m", **more: Any) -> Scenario:
    """Two servers and four requests a second, unless ``more`` says otherwise."""
    usual = {"name": "x", "title": "x", "duration": duration, "pool": {"replicas": 2}}
    traffic = {"requests_per_second": 4.0}
    return Scenario.model_validate({**usual, "traffic": traffic, "truth": {}, **more})


@cache
def around_effect(name: str, after: float = AFTER) -> Scenario:
    """A shipped scenario, only the minutes around its first effect (tests must be quick)."""
    whole = scenario_named(name)
    gone = min(effect.at for effect in whole.truth.effects) - BEFORE * 60
    duration = (BEFORE + after) * 60

    def moved(at: float | None) -> float | None:
        return None if at is None else min(max(at - gone, 0.0), duration)

    def shifted(parts: tuple[object, ...]) -> tuple[object, ...]:
        times = [(one, moved(one.at), moved(one.until)) for one in parts]  # type: ignore[attr-defined]
        return tuple(
            one.model_copy(update={"at": at, "until": until})  # type: ignore[attr-defined]
            for one, at, until in times
            if at is not None and at < duration
        )

    return whole.model_copy(
        update={
            "duration": duration,
            "start": whole.start + timedelta(seconds=gone),
            "faults": shifted(whole.faults),
            "traffic": whole.traffic.model_copy(
                update={
                    "changes": shifted(whole.traffic.changes),
                    "offset": whole.traffic.offset + gone,
                }
            ),
            "truth": whole.truth.model_copy(
                update={"baseline": None, "effects": shifted(whole.truth.effects)}
            ),
        }
    )


@cache
def one_server(name: str, number: int = 0, seed: int = 1, after: float = AFTER) -> Chunk:
    """One server of a shipped scenario, around its effect."""
    return whole_run(around_effect(name, after), number, seed)


def whole_run(made: Scenario, number: int = 0, seed: int = 1) -> Chunk:
    """One server of a scenario of at most a day."""
    run = ServerRun(made, seed, number, PoolTraffic.of(made, seed))
    (chunk,) = run.chunks()
    return chunk


def between(made: Scenario, rows: pl.DataFrame, since: float, until: float) -> pl.DataFrame:
    """Rows of the stretch, minutes from the scenario's start."""
    first, last = (made.start + timedelta(minutes=m) for m in (since, until))
    return rows.filter(pl.col("time").is_between(first, last, closed="left"))


def figures(made: Scenario, rows: pl.DataFrame, since: float, until: float) -> dict[str, float]:
    """What a stretch of one server's scrapes says; seconds, tokens, requests, ratios."""
    whole = between(made, rows, since, until).filter("ok")

    def grown(name: str) -> float:
        return float(whole[name][-1] - whole[name][0])

    def mean(values: pl.Series) -> float:
        return float(values.mean())  # type: ignore[arg-type]

    seconds = (whole["time"][-1] - whole["time"][0]).total_seconds()
    steps, itl = grown("iteration_tokens_count"), grown("itl_seconds_count")
    return {
        "requests_per_second": grown("finished_requests_total") / seconds,
        "prompt": grown("prompt_tokens_sum") / grown("prompt_tokens_count"),
        "generation": grown("generation_tokens_sum") / grown("generation_tokens_count"),
        "batch": itl / steps,
        "tokens_per_step": grown("iteration_tokens_sum") / steps,
        "itl": grown("itl_seconds_sum") / itl,
        "ttft": grown("ttft_seconds_sum") / grown("ttft_seconds_count"),
        "running": mean(whole["running_requests"]),
        "waiting": mean(whole["waiting_requests"]),
        "deferred": mean(whole["waiting_deferred_requests"]),
        "kv": mean(whole["kv_cache_usage_ratio"]),
        "preemptions": grown("preemptions_total"),
        "hits": grown("prefix_cache_hits_total") / max(1.0, grown("prefix_cache_queries_total")),
        "binds": mean((whole["waiting_capacity_requests"] > 0).cast(pl.Float64)),
    }


def before_and_after(name: str, number: int = 0) -> tuple[dict[str, float], dict[str, float]]:
    """Figures of one server in the minutes before its scenario's effect, and after it."""
    made, chunk = around_effect(name), one_server(name, number)
    return (
        figures(made, chunk.scrapes, 3.0, BEFORE),
        figures(made, chunk.scrapes, BEFORE + 8.0, BEFORE + AFTER),
    )
