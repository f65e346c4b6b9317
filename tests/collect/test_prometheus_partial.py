"""Answers of which some is missing, or that are not as they were asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import polars as pl
import pytest
from fakes.loopback import Answer
from fakes.prometheus_api import PrometheusApi, Series
from fault_cases import JOB, T0, collected, series

NAMES = ("vllm:num_requests_running", "vllm:generation_tokens_total")


def answered(*held: Series, warnings: Sequence[str] = (), late: float = 0.0) -> Answer:
    """What the API says of these series on the minute's grid, with times shifted."""
    grid = [T0.timestamp() + 9.999 + 10 * i for i in range(6)]
    result = [
        {
            "metric": dict(one.labels),
            "values": [
                [at + late, value] for at, (_, value) in zip(grid, one.points, strict=False)
            ],
        }
        for one in held
    ]
    data = {"resultType": "matrix", "result": result}
    answer = {"status": "success", "data": data, "warnings": list(warnings)}
    return Answer(200, json.dumps(answer))


def on(instance: str, name: str) -> Series:
    one = series(name)
    return Series({**one.labels, "instance": instance}, one.points, 10)


@pytest.fixture
def pair() -> Iterator[PrometheusApi]:
    ups = [
        Series({"__name__": "up", "instance": one, **JOB}, series("up").points, 10)
        for one in ("a:1", "b:1")
    ]
    with PrometheusApi([*ups, *(on(i, n) for i in ("a:1", "b:1") for n in NAMES)]) as api:
        yield api


def test_what_a_partial_answer_lacks_is_unread_not_switched_off(pair: PrometheusApi) -> None:
    pair.faults = [
        (name, answered(on("a:1", name), warnings=["store-1 did not answer"])) for name in NAMES
    ]
    found = collected(pair)
    rows = found.scrapes
    there, lost = (rows.filter(pl.col("instance") == one) for one in ("a:1", "b:1"))
    assert there["running_requests"].to_list() == [0, 1, 2, 3, 4, 5]
    assert there["ok"].all()
    assert there["reason"].null_count() == 6
    assert lost["ok"].to_list() == [False] * 6
    assert set(lost["reason"]) == {"no vllm: series was read (Partial: store-1 did not answer)"}


def test_native_histograms_are_named_and_the_rest_is_read(pair: PrometheusApi) -> None:
    native = {
        "metric": on("b:1", NAMES[0]).labels,
        "histograms": [[T0.timestamp() + 9.999, {"count": "1", "sum": "1", "buckets": []}]],
    }
    answer = json.loads(answered(on("a:1", NAMES[0])).body)
    answer["data"]["result"].append(native)
    for separators in ((",", ":"), (", ", ": ")):
        pair.faults = [(NAMES[0], Answer(200, json.dumps(answer, separators=separators)))]
        found = collected(pair)
        (problem,) = found.problems
        assert problem.reason == (
            'BadPage: vllm:num_requests_running{engine="0",instance="b:1",job="vllm"} in the form '
            "of a native histogram: not read"
        )
        there, lost = (found.scrapes.filter(pl.col("instance") == o) for o in ("a:1", "b:1"))
        assert there["running_requests"].to_list() == [0, 1, 2, 3, 4, 5]
        assert there["reason"].null_count() == 6
        assert set(lost["reason"]) == {f"no vllm: series was read ({problem.reason})"}
