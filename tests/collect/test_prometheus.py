"""The scrape table from a Prometheus API, on recorded answers and on small made ones."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import polars as pl
from api_cases import JOB, RUNNING, T0, UP, seconds, series
from fakes.prometheus_api import PrometheusApi, Series

from driftwatch.collect.pages.foreign import STATS_DISABLED
from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.collect.schema import SCRAPE_SCHEMA, Collected
from driftwatch.model import TargetKey


def test_one_row_a_scrape_in_the_published_schema(collect: Callable[..., Collected]) -> None:
    found = collect(UP, RUNNING)
    assert dict(found.scrapes.schema) == dict(SCRAPE_SCHEMA)
    assert found.problems == ()
    assert seconds(found) == [0, 10, 20, 30, 40, 50]
    assert found.scrapes["running_requests"].to_list() == [0, 1, 2, 3, 4, 5]
    assert found.scrapes["ok"].all()
    assert found.scrapes["reason"].null_count() == 6
    assert found.scrapes["generation_tokens_total"].null_count() == 6
    assert found.scrapes["model_name"].unique().to_list() == ["m"]
    (target,) = found.targets.values()
    assert target.key == TargetKey("a:1", "0")
    assert target.labels == {"instance": "a:1", "engine": "0", "model_name": "m", **JOB}


def test_looking_back_brings_no_scrape_of_the_interval_before() -> None:
    up, running = (
        series("up", [1] * 7, first=-8),
        series("vllm:num_requests_running", range(7), first=-8, engine="0"),
    )
    with PrometheusApi([up, running]) as api:
        source = PrometheusSource(PrometheusAsker(api.address), selector=JOB)
        minute = timedelta(seconds=20)
        one = source.collect(T0 - minute, T0)
        two = source.collect(T0, T0 + minute)
        three = source.collect(T0 + minute, T0 + 2 * minute)
        source.close()
    assert seconds(one) == [-8]
    assert seconds(two) == [2, 12]
    assert seconds(three) == [22, 32]
    assert two.scrapes["running_requests"].to_list() == [1, 2]


def test_a_failed_scrape_is_a_row_for_each_engine(collect: Callable[..., Collected]) -> None:
    found = collect(
        series("up", [1, 1, 0, 0, 1, 1]),
        *(
            series("vllm:num_requests_running", [4, 4], engine=engine, first=first)
            for engine in ("0", "1")
            for first in (0, 40)
        ),
    )
    down = found.scrapes.filter(~pl.col("ok"))
    assert down.select("engine", "reason").rows() == [
        *[("0", "up == 0")] * 2,
        *[("1", "up == 0")] * 2,
    ]
    assert down["running_requests"].null_count() == 4
    assert found.scrapes.filter("ok").height == 8


def test_up_without_any_vllm_series_is_stats_disabled(collect: Callable[..., Collected]) -> None:
    found = collect(UP, series("process_start_time_seconds", [7] * 6))
    assert found.scrapes["ok"].to_list() == [False] * 6
    assert found.scrapes["reason"].unique().to_list() == [STATS_DISABLED]
    assert found.scrapes["engine"].unique().to_list() == ["0"]


def test_without_a_selector_other_exporters_are_no_vllm_servers(
    collect: Callable[..., Collected],
) -> None:
    other = Series({"__name__": "up", "instance": "node:9100", "job": "node"}, UP.points, 10)
    found = collect(UP, RUNNING, other, selector={})
    assert set(found.targets) == {TargetKey("a:1", "0")}
    assert found.scrapes["instance"].unique().to_list() == ["a:1"]


def test_an_api_without_up_takes_samples_as_their_own_proof(
    collect: Callable[..., Collected],
) -> None:
    found = collect(RUNNING)
    assert found.scrapes["ok"].to_list() == [True] * 6
    assert found.scrapes["running_requests"].to_list() == [0, 1, 2, 3, 4, 5]


def test_a_server_whose_up_carries_other_labels_is_read(
    collect: Callable[..., Collected],
) -> None:
    other = Series({**RUNNING.labels, "instance": "b:1"}, RUNNING.points, 10)
    found = collect(UP, RUNNING, other)
    assert found.scrapes["instance"].unique().sort().to_list() == ["a:1", "b:1"]
    assert found.scrapes["ok"].all()
    assert found.problems == ()


def test_samples_with_times_of_their_own_are_no_failed_scrapes(
    collect: Callable[..., Collected],
) -> None:
    moved = Series(RUNNING.labels, [(at - 1, value) for at, value in RUNNING.points[1:]], 10)
    found = collect(UP, moved)
    assert seconds(found) == [9, 19, 29, 39, 49]
    assert found.scrapes["ok"].all()


def test_old_names_fill_the_column_and_the_new_name_wins(
    collect: Callable[..., Collected],
) -> None:
    found = collect(
        UP,
        RUNNING,
        series("vllm:gpu_cache_usage_perc", [0.9] * 6, engine="0"),
        series("vllm:kv_cache_usage_perc", [0.2] * 3, engine="0", first=30),
    )
    assert found.scrapes["kv_cache_usage_ratio"].to_list() == [0.9] * 3 + [0.2] * 3
    assert found.problems == ()


def test_labels_select_and_sum_series(collect: Callable[..., Collected]) -> None:
    name = "vllm:request_success_total"
    found = collect(
        UP,
        RUNNING,
        series(name, [5] * 6, engine="0", finished_reason="stop"),
        series(name, [3] * 6, engine="0", finished_reason="length"),
        series(name, [2] * 6, engine="0", finished_reason="abort"),
        series("vllm:num_requests_waiting_by_reason", [7] * 6, engine="0", reason="capacity"),
    )
    row = found.scrapes.row(0, named=True)
    assert row["finished_requests_total"] == 10
    assert row["aborted_requests_total"] == 2
    assert row["waiting_capacity_requests"] == 7
    assert row["waiting_deferred_requests"] is None


def test_a_process_gauge_holds_for_each_engine_a_counter_counts_once(
    collect: Callable[..., Collected],
) -> None:
    found = collect(
        UP,
        *(series("vllm:num_requests_running", [1] * 6, engine=e) for e in ("10", "2")),
        series("process_start_time_seconds", [99] * 6),
        series("vllm:admission_rejections_total", [4] * 6, reason="max_num_queued_reqs"),
    )
    first = found.scrapes.filter(pl.col("time") == T0)
    assert first.select(
        "engine", "process_start_time_seconds", "rejected_requests_total", "several_api_servers"
    ).rows() == [("10", 99, None, False), ("2", 99, 4, False)]


def test_neither_start_nor_created_means_several_api_servers(
    collect: Callable[..., Collected],
) -> None:
    assert collect(UP, RUNNING).scrapes["several_api_servers"].all()
    created = series("vllm:generation_tokens_created", [5] * 6, engine="0")
    assert not collect(UP, RUNNING, created).scrapes["several_api_servers"].any()
