"""The scrape table from a Prometheus API, on recorded answers and on small made ones."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from api_cases import JOB, RUNNING, T0, UP, collect, minutes, seconds, series, server, source_of
from fakes.prometheus_api import PrometheusApi, Series, recorded
from polars.testing import assert_frame_equal

from driftwatch.collect.schema import SCRAPE_SCHEMA, Collected
from driftwatch.model import TargetKey


def test_one_row_a_scrape_in_the_published_schema() -> None:
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


def test_a_failed_scrape_is_a_row_for_each_engine() -> None:
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


NODE = Series({"__name__": "up", "instance": "node:9100", "job": "node"}, UP.points, 10)
LATE = Series(RUNNING.labels, [(at - 1, value) for at, value in RUNNING.points[1:]], 10)
NO_UP = Series({**RUNNING.labels, "instance": "b:1"}, RUNNING.points, 10)


@pytest.mark.parametrize(
    ("held", "instances", "times"),
    [
        ([UP, RUNNING, NODE], ["a:1"], 6),  # another exporter is no vLLM server
        ([RUNNING], ["a:1"], 6),  # without up samples are their own proof
        ([UP, RUNNING, NO_UP], ["a:1", "b:1"], 12),
        ([UP, LATE], ["a:1"], 5),  # samples with times of their own are no failed scrapes
    ],
)
def test_which_scrapes_there_are(held: list[Series], instances: list[str], times: int) -> None:
    found = collect(*held, selector={})
    assert found.scrapes["instance"].unique().sort().to_list() == instances
    assert sorted({key.instance for key in found.targets}) == instances
    assert (len(found.scrapes), found.scrapes["ok"].all()) == (times, True)
    assert found.problems == ()


def test_a_series_without_instance_is_named_and_left_out() -> None:
    bare = Series({"__name__": "vllm:num_requests_running", **JOB}, RUNNING.points, 10)
    found = collect(UP, RUNNING, bare)
    assert found.scrapes.height == 6
    assert ["has no instance label" in p.reason for p in found.problems] == [True]


def test_a_histogram_whose_edges_change() -> None:
    name = "vllm:request_prompt_tokens_bucket"
    own = {"engine": "0", "model_name": "m"}
    held = server("a:1", scrapes=12)
    held += [
        series(name, [1] * 6, first=first, le=le, **own) for le, first in (("1.0", 0), ("2.0", 60))
    ]
    before, after = minutes(held)
    for found, edge in ((before, 1.0), (after, 2.0)):
        assert found.scrapes["prompt_tokens_edges"].to_list() == [[edge, float("inf")]] * 6
    with PrometheusApi(held) as api:  # and in the middle of one answer
        source = source_of(api)
        whole = source.collect(T0, T0 + timedelta(minutes=2))
        source.close()
    assert whole.scrapes.equals(pl.concat([before.scrapes, after.scrapes]))


@pytest.mark.parametrize(
    "note",
    [
        *("{x}", '],["values":[[', '"values":[[1,"2"]]}', "a\\\nb\x1f\t", "\u00e9{\u2028}", "]]}"),
        '"quotes" \\ <!channel>\n]},{"metric": ,"values":[ é ' + "x" * 4096,
    ],
)
def test_labels_that_look_like_an_answer_are_labels(note: str) -> None:
    plain = [*server("a:1"), *server("b:1")]
    odd = [Series({**one.labels, "note": note}, one.points, 10) for one in plain]
    answers: list[Collected] = []
    for held in (plain, odd, [*plain[: len(plain) // 2], *odd[len(plain) // 2 :]]):
        with PrometheusApi(held) as api:
            source = source_of(api)
            for _ in range(2):  # as new series, and as known ones
                answers.append(source.collect(T0, T0 + timedelta(minutes=1)))
                assert answers[-1].problems == ()
            source.close()
    for one in answers[1:]:
        assert_frame_equal(one.scrapes, answers[0].scrapes, check_exact=True)
    assert {target.labels.get("note") for target in answers[2].targets.values()} == {note}


def _recorded(path: Path) -> tuple[dict[str, list[dict[str, Any]]], Collected]:
    """Series of the recorded answers by name, and what is collected of them."""
    held = json.loads(gzip.decompress(path.read_bytes()))
    answers = {name: one.get("response", one) for name, one in held["queries"].items()}
    with PrometheusApi(recorded(answers, step_seconds=5)) as api:
        source = source_of(api)
        first, last = (datetime.fromtimestamp(held[end], UTC) for end in ("start", "end"))
        found = source.collect(first - timedelta(seconds=5), last + timedelta(seconds=10))
        source.close()
    assert found.problems == ()
    return {name: one["data"]["result"] for name, one in answers.items()}, found


def test_the_main_run_as_a_real_prometheus_answered(shared_data: Path) -> None:
    answers, found = _recorded(shared_data / "vllm-0.32/run_main/query_range.json.gz")
    good = found.scrapes.filter("ok")
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
