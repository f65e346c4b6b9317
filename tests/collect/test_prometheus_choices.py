"""Answers of an API that a choice is made between, and what cannot be asked."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from api_cases import JOB, RUNNING, T0, UP, histogram, seconds, series
from fakes.prometheus_api import PrometheusApi, Series, recorded

from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.source import PrometheusSource
from driftwatch.collect.schema import Collected


def test_buckets_are_sorted_by_their_edge(collect: Callable[..., Collected]) -> None:
    parts = histogram({"+Inf": [9] * 6, "10.0": [6] * 6, "2.5": [4] * 6}, 9)
    row = collect(UP, RUNNING, *parts).scrapes.row(0, named=True)
    assert row["ttft_seconds_edges"] == [2.5, 10, float("inf")]
    assert row["ttft_seconds_buckets"] == [4, 6, 9]
    assert (row["ttft_seconds_sum"], row["ttft_seconds_count"]) == (1.5, 9)


@pytest.mark.parametrize(
    ("edges", "count", "why"),
    [
        ({"1.0": [4] * 6}, 4, "incomplete"),
        ({"1.0": [5] * 6, "+Inf": [4] * 6}, 4, "falls from 5 to 4 at le=inf"),
        ({"1.0": ["NaN"] * 6, "+Inf": [4] * 6}, 4, "is NaN (6 times)"),
        ({"1.0": [1] * 6, "+Inf": [4] * 6}, 5, "has 4 in its +Inf bucket but a count of 5"),
        (
            {"one": [1] * 6, "1.0": [1] * 6, "+Inf": [4] * 6},
            4,
            "has a bucket whose le is not a number",
        ),
    ],
)
def test_a_histogram_that_is_not_sound_is_unknown(
    collect: Callable[..., Collected],
    edges: dict[str, Sequence[float | str]],
    count: float,
    why: str,
) -> None:
    found = collect(UP, RUNNING, *histogram(edges, count))
    for part in ("sum", "count", "buckets", "edges"):
        assert found.scrapes[f"ttft_seconds_{part}"].null_count() == 6
    assert found.scrapes["ok"].all()
    reasons = [p.reason for p in found.problems]
    assert len(reasons) == 1
    assert "vllm:time_to_first_token_seconds" in reasons[0]
    assert why in reasons[0]


@pytest.mark.parametrize("value", ["NaN", "-1"])
def test_numbers_that_cannot_be_are_unknown(collect: Callable[..., Collected], value: str) -> None:
    tokens = series("vllm:generation_tokens_total", [1, 2, value, 4, 5, 6], engine="0")
    found = collect(UP, RUNNING, tokens)
    assert found.scrapes["generation_tokens_total"].to_list() == [1, 2, None, 4, 5, 6]
    (problem,) = found.problems
    assert problem.where == "a:1"
    assert problem.reason.startswith("vllm:generation_tokens_total{")


def test_two_jobs_that_scrape_one_server(collect: Callable[..., Collected]) -> None:
    def job(name: str, values: Sequence[float], up: Sequence[float]) -> list[Series]:
        return [
            series("up", up, job=name),
            series("vllm:num_requests_running", values, engine="0", job=name),
            series("vllm:generation_tokens_total", values, engine="0", job=name),
        ]

    found = collect(*job("a", range(6), [1] * 6), *job("b", range(6), [1] * 6), selector={})
    assert seconds(found) == [0, 10, 20, 30, 40, 50]
    # both columns of one job
    assert found.scrapes["running_requests"].to_list() == [0, 1, 2, 3, 4, 5]
    assert found.scrapes["generation_tokens_total"].to_list() == [0, 1, 2, 3, 4, 5]
    (problem,) = found.problems
    assert problem.reason == (
        'one process that is scraped more than once, as job="a" and job="b": read once'
    )


def test_one_process_at_two_addresses_is_one_server(collect: Callable[..., Collected]) -> None:
    """A PodMonitor and an operator's own monitor, which scrapes the service (runlore#308)."""

    def scraped(first: float, **labels: str) -> list[Series]:
        return [
            series("up", [1] * 6, first=first, **labels),
            series("vllm:num_requests_running", [2] * 6, first=first, engine="0", **labels),
            series(
                "vllm:generation_tokens_created", [7.125] * 6, first=first, engine="0", **labels
            ),
            series(
                "vllm:generation_tokens_total",
                [100 * i + first for i in range(6)],
                first=first,
                engine="0",
                **labels,
            ),
        ]

    twice = [*scraped(0), *scraped(4, instance="chat.models.svc:1", job="services")]
    found = collect(*twice, selector={})
    assert found.scrapes["instance"].unique().to_list() == ["chat.models.svc:1"]
    assert len(found.targets) == 1
    assert "scraped more than once" in found.problems[0].reason


def test_one_address_in_two_namespaces_is_two_servers(collect: Callable[..., Collected]) -> None:
    """Managed Prometheus calls a pod POD:PORT (ai-on-gke#937)."""

    def of(namespace: str, running: int) -> list[Series]:
        labels = {"namespace": namespace}
        return [
            series("up", [1] * 6, **labels),
            series("vllm:num_requests_running", [running] * 6, engine="0", **labels),
        ]

    found = collect(*of("prod", 9), *of("dev", 1))
    rows = found.scrapes.group_by("instance", maintain_order=True).first()
    assert rows.select("instance", "running_requests").rows() == [("dev/a:1", 1), ("prod/a:1", 9)]
    assert {t.labels["namespace"] for t in found.targets.values()} == {"prod", "dev"}
    assert found.problems == ()


def test_a_series_without_instance_is_named_and_left_out(
    collect: Callable[..., Collected],
) -> None:
    bare = Series({"__name__": "vllm:num_requests_running", **JOB}, RUNNING.points, 10)
    found = collect(UP, RUNNING, bare)
    assert found.scrapes.height == 6
    assert ["has no instance label" in p.reason for p in found.problems] == [True]


def test_two_days_are_asked_in_pieces_that_prometheus_answers() -> None:
    day = 86_400
    up, running = (
        series("up", [1] * (2 * day // 600), every=600),
        series("vllm:num_requests_running", range(2 * day // 600), every=600, engine="0"),
    )
    with PrometheusApi([up, running]) as api:
        source = PrometheusSource(PrometheusAsker(api.address), selector=JOB)
        found = source.collect(T0, T0 + timedelta(days=2))
        source.close()
        asked = [q for q in api.queries if q["query"].startswith('up{job="vllm"}[')]
    assert len(asked) == 2  # ten minutes first, then as much as it takes
    assert found.problems == ()
    assert found.scrapes["running_requests"].to_list() == list(range(2 * day // 600))


NASTY = 'a "quoted" \\back\\slash\nnew line {job="x"} or vector(1) é'


def test_a_selector_value_cannot_leave_its_quotes(collect: Callable[..., Collected]) -> None:
    inside = [Series({**s.labels, "pool": NASTY}, s.points, 10) for s in (UP, RUNNING)]
    outside = [
        Series({**s.labels, "instance": "b:1", "pool": "x"}, s.points, 10) for s in (UP, RUNNING)
    ]
    found = collect(*inside, *outside, selector={"pool": NASTY})
    assert found.problems == ()
    assert found.scrapes["instance"].unique().to_list() == ["a:1"]
    assert found.scrapes["running_requests"].to_list() == [0, 1, 2, 3, 4, 5]


def test_the_name_has_no_password_in_it() -> None:
    source = PrometheusSource(PrometheusAsker("http://user:canary@host:9090/prefix/"), selector={})
    assert source.name == "prometheus host:9090"
    source.close()


def _recorded_api(path: Path, unpack: Callable[[Any], dict[str, Any]]) -> PrometheusApi:
    with gzip.open(path) as file:
        return PrometheusApi(recorded(unpack(json.load(file)), step_seconds=5))


def test_the_main_run_as_a_real_prometheus_answered(shared_data: Path) -> None:
    path = shared_data / "vllm-0.32/run_main/query_range.json.gz"
    held = json.loads(gzip.decompress(path.read_bytes()))
    api = _recorded_api(path, lambda d: {n: q["response"] for n, q in d["queries"].items()})
    with api:
        source = PrometheusSource(PrometheusAsker(api.address), selector=JOB)
        found = source.collect(
            datetime.fromtimestamp(held["start"] - 10, UTC),
            datetime.fromtimestamp(held["end"] + 10, UTC),
        )
        source.close()
    assert found.problems == ()
    good = found.scrapes.filter("ok")
    answers = {n: q["response"]["data"]["result"] for n, q in held["queries"].items()}
    # the first three scrapes found no server yet
    assert found.scrapes.height == len(answers["up"][0]["values"])
    assert found.scrapes.filter(~pl.col("ok"))["reason"].to_list() == ["up == 0"] * 3
    for name, column in {
        "num_requests_running": "running_requests",
        "generation_tokens_total": "generation_tokens_total",
        "iteration_tokens_total_sum": "iteration_tokens_sum",
        "request_queue_time_seconds_count": "queue_seconds_count",
        "kv_cache_usage_perc": "kv_cache_usage_ratio",
    }.items():
        truth = [float(value) for _, value in answers[name][0]["values"]]
        assert good[column].to_list() == truth, column
    buckets = sorted(
        answers["request_prompt_tokens_bucket"], key=lambda s: float(s["metric"]["le"])
    )
    last = good.row(-1, named=True)
    assert last["prompt_tokens_buckets"] == [float(s["values"][-1][1]) for s in buckets]
    assert last["prompt_tokens_edges"] == [float(s["metric"]["le"]) for s in buckets]
    config = json.loads(last["cache_config"])
    assert config["kv_cache_size_tokens"] == "262144"
    assert not {"instance", "job", "deployment", "engine", "__name__"} & config.keys()


def test_two_restarts_as_a_real_prometheus_answered(shared_data: Path) -> None:
    path = shared_data / "vllm-0.32/restart/query_range_restart.json.gz"
    held = json.loads(gzip.decompress(path.read_bytes()))
    with _recorded_api(path, lambda d: dict(d["queries"])) as api:
        source = PrometheusSource(PrometheusAsker(api.address), selector=JOB)
        found = source.collect(
            datetime.fromtimestamp(held["start"] - 5, UTC),
            datetime.fromtimestamp(held["end"] + 5, UTC),
        )
        source.close()
    assert found.problems == ()
    answers = {n: q["data"]["result"] for n, q in held["queries"].items()}
    up = [value == "1" for _, value in answers["up"][0]["values"]]
    assert found.scrapes["ok"].to_list() == up
    down = found.scrapes.filter(~pl.col("ok"))
    assert down["reason"].unique().to_list() == ["up == 0"]
    assert down["generation_tokens_total"].null_count() == down.height == up.count(False)
    good = found.scrapes.filter("ok")
    tokens = good["generation_tokens_total"]
    assert tokens.null_count() == 0
    assert tokens.min() >= 0  # type: ignore[operator]
    drops = good.filter(tokens.diff() < 0)
    assert drops.height == 2
    # the drop is where the process is another one, and so is the configuration
    starts = good.with_columns(
        (pl.col("process_start_time_seconds").diff() > 0).alias("restarted"),
        (pl.col("cache_config") != pl.col("cache_config").shift()).alias("reconfigured"),
    )
    assert starts.filter("restarted")["time"].to_list() == drops["time"].to_list()
    assert starts.filter("reconfigured")["time"].to_list() == drops["time"].to_list()
    blocks = [
        json.loads(text)["num_gpu_blocks"]
        for text in good["cache_config"].unique(maintain_order=True)
    ]
    truth = sorted(answers["vllm:cache_config_info"], key=lambda s: s["values"][0][0])
    assert blocks == [s["metric"]["num_gpu_blocks"] for s in truth]
