"""A condition as PromQL, answered by a real Prometheus, against its verdict in Polars."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest
import requests
from condition_cases import Tree, truths, write
from export_cases import END, served
from fakes import prometheus_server
from fakes.prometheus_server import PrometheusServer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from target_metric_cases import evidence_rows

from driftwatch.condition import Condition, parse_condition
from driftwatch.export.conditions import MOST_NODES, CannotExport, number_text, truth_of
from driftwatch.export.promql import Promql, text_of

needs_prometheus = pytest.mark.skipif(
    not prometheus_server.installed(), reason=prometheus_server.NOT_INSTALLED
)

# the generated names as evidence columns: one that dashboards have, and others of each type
COLUMNS = {
    "x": "running_requests",
    "y": "lost_prefix_hits_prefill_ratio",
    "z": "seconds_since_last_token",
    "flag": "slo_missed",
    "word": "engine_kind",
}
NUMBERS = [None, 0.0, -0.0, 1.0, 2.0, 0.5, 3.0, 1e308, -1.5, float("nan"), float("inf"), 100.0]
ROWS = 300


def _rows() -> list[dict[str, Any]]:
    choose = random.Random(1).choice
    rows = []
    for number in range(ROWS):
        values = {name: choose(NUMBERS) for name in ("x", "y", "z")}
        values["flag"] = choose([None, True, False])
        values["word"] = choose([None, "kv", "it's", "", "other", 'a"b\\'])
        named = {COLUMNS[name]: value for name, value in values.items()}
        rows.append({"instance": f"h{number}:1", "end": END, **named})
    return rows


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    types = {"slo_missed": pl.Boolean, "engine_kind": pl.String}
    floats = dict.fromkeys([COLUMNS["y"], COLUMNS["z"]], pl.Float64)
    return evidence_rows(*_rows(), **types, **floats)


@pytest.fixture(scope="module")
def server(
    rows: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrometheusServer]:
    blocks = tmp_path_factory.mktemp("blocks")
    page = served(rows, of_rules=COLUMNS.values())
    prometheus_server.backfill([(END.timestamp(), page)], {"job": "driftwatch"}, blocks)
    with PrometheusServer(blocks=blocks) as running:
        yield running


def _answer(server: PrometheusServer, query: Promql | None) -> set[str]:
    """Instances in the vector."""
    if query is None:
        return set()
    answer = requests.get(
        f"{server.url}/api/v1/query",
        params={"query": text_of(query), "time": f"{END.timestamp():.3f}"},
        timeout=10,
    )
    assert answer.ok, answer.text
    return {series["metric"]["instance"] for series in answer.json()["data"]["result"]}


def _verdicts(condition: Condition, rows: pl.DataFrame) -> tuple[set[str], set[str]]:
    """Instances for which it is true, and for which it is false."""
    judged = rows.select("instance", verdict=condition.expression)
    true, false = (judged.filter(pl.col("verdict") == value) for value in (True, False))
    return set(true["instance"].to_list()), set(false["instance"].to_list())


def _same(server: PrometheusServer, rows: pl.DataFrame, text: str) -> None:
    condition = parse_condition(text)
    truth = truth_of(condition)
    answers = _answer(server, truth.true), _answer(server, truth.false)
    assert answers == _verdicts(condition, rows), truth


def _with_columns(tree: Tree) -> str:
    return re.sub(r"\b(x|y|z|flag|word)\b", lambda name: COLUMNS[name[0]], write(tree))


@pytest.mark.prometheus
@needs_prometheus
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(tree=truths.filter(lambda tree: len(_with_columns(tree)) < 500))
def test_true_false_and_unknown_are_those_of_polars(
    server: PrometheusServer, rows: pl.DataFrame, tree: Tree
) -> None:
    _same(server, rows, _with_columns(tree))


@pytest.mark.prometheus
@needs_prometheus
@pytest.mark.parametrize(
    "text",
    [
        "NOT (running_requests > 1)",
        "running_requests / seconds_since_last_token > 1",
        "running_requests * 1000 > 1 OR running_requests + running_requests <= 3",
        "1 - running_requests - (1 - seconds_since_last_token) >= 0",
        "running_requests - (seconds_since_last_token - lost_prefix_hits_prefill_ratio) > 0",
        "running_requests / (seconds_since_last_token / lost_prefix_hits_prefill_ratio) > 0",
        "-running_requests < -1",
        "running_requests / 0 = 1",
        "running_requests NOT BETWEEN 1 AND seconds_since_last_token",
        "running_requests IN (1, -1.5) OR running_requests NOT IN (2, 3)",
        "slo_missed",
        "NOT slo_missed OR slo_missed IS NULL",
        "slo_missed = (running_requests > 1)",
        "slo_missed <> (running_requests IS NULL)",
        "slo_missed IN (TRUE)",
        "(running_requests > 1) IS NULL",
        "(running_requests / seconds_since_last_token) IS NOT NULL",
        "engine_kind = 'kv' OR engine_kind <> ''",
        "engine_kind NOT IN ('kv', 'it''s')",
        "'a\"b\\' = engine_kind",
        "engine_kind IS NULL AND 'a' = 'a'",
        "1 < 2 AND running_requests IS NOT NULL",
        "running_requests > 1e308 * 10",
        "TRUE OR running_requests > 1",
        "running_requests > 0 AND (slo_missed OR seconds_since_last_token < 2 AND NOT slo_missed)",
    ],
)
def test_by_hand(server: PrometheusServer, rows: pl.DataFrame, text: str) -> None:
    _same(server, rows, text)


def test_texts_of_two_columns_are_not_exported() -> None:
    with pytest.raises(CannotExport, match="engine_kind and binding_limit are texts"):
        truth_of(parse_condition("engine_kind = binding_limit"))


def test_a_query_that_doubles_with_every_level_is_not_exported() -> None:
    text = "slo_missed"
    for _ in range(12):
        text = f"({text}) = slo_missed"
    with pytest.raises(CannotExport, match=f"more than {MOST_NODES:,} parts"):
        truth_of(parse_condition(text))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_constant_is_read_back_as_it_was(value: float) -> None:
    assert float(number_text(value)) == value
