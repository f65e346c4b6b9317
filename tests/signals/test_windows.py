"""Windows of minute rows: what they add up, and quantiles and shares of their buckets."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest
from pipeline_cases import HOST, at, same, windows

from driftwatch.minutes.schema import MINUTE_ROW_SCHEMA
from driftwatch.signals.histograms import quantile, share_within
from driftwatch.signals.windows import MinuteWindows

COUNTER, GAUGE = "generation_tokens_total", "running_requests"
BUCKETS, EDGES = "ttft_seconds_buckets", "ttft_seconds_edges"


def minute(n: int, **changes: Any) -> dict[str, Any]:
    """The n-th minute: 10 n tokens, n requests running in each of 4 scrapes."""
    return {
        "instance": HOST,
        "engine": "0",
        "end": at(60 * n),
        "scrapes": 4.0,
        "duration_seconds": 60.0,
        "restarted": False,
        "configuration_changed": False,
        "model_name": f"model-{n}",
        "running_requests_max": float(n),
        COUNTER: 10.0 * n,
        GAUGE: float(n),
        BUCKETS: [float(n), 2.0 * n],
        EDGES: [1.0, math.inf],
        **changes,
    }


NOTHING = {name: None for name in minute(1) if name not in ("instance", "engine", "end")}
NOBODY = NOTHING | {"scrapes": 0.0, "duration_seconds": 0.0}


def totals(
    changes: dict[int, dict[str, Any]], *spans: tuple[int, int], cut: bool = True
) -> list[dict[str, Any]]:
    """Of ten minutes with some changes the windows from one minute to another."""
    frame = pl.DataFrame(
        [minute(n, **changes.get(n, {})) for n in range(1, 11)],
        schema={**MINUTE_ROW_SCHEMA, "seconds_since_last_token": pl.Float64},
        orient="row",
    )
    minutes = MinuteWindows(frame)
    asked = windows(*((60.0 * first, 60.0 * last) for first, last in spans))
    spans = minutes.spans(asked, cut=cut)
    most = minutes.maximum("running_requests_max", spans).alias("most")
    return minutes.totals(asked, spans).with_columns(most).to_dicts()


RESTARTED, CHANGED = {"restarted": True}, {"configuration_changed": True}
HUNG = {"seconds_since_last_token": 120.0}
CASES: list[tuple[str, dict[int, dict[str, Any]], tuple[int, int], dict[str, Any]]] = [
    ("a sum", {}, (2, 5), {COUNTER: 120.0, "scrapes": 12.0, "duration_seconds": 180.0}),
    ("one minute", {}, (2, 3), {COUNTER: 30.0, GAUGE: 3.0, BUCKETS: [3.0, 6.0], "scrapes": 4.0}),
    ("the last labels and the most", {}, (2, 5), {"model_name": "model-5", "most": 5.0}),
    ("after a restart", {4: RESTARTED}, (2, 6), {COUNTER: 110.0, "restarted": False}),
    ("after a change", {4: CHANGED, 5: RESTARTED}, (2, 6), {COUNTER: 60.0, "scrapes": 4.0}),
    ("after a hang", dict.fromkeys((3, 4), HUNG), (1, 6), {COUNTER: 110.0, "scrapes": 8.0}),
    ("it was the last minute", {6: RESTARTED}, (2, 6), {COUNTER: 60.0, "restarted": True}),
    ("before the window", {2: RESTARTED}, (2, 4), {COUNTER: 70.0, "restarted": False}),
    # means by scrapes: (3 * 1 + 4 * 4 + 5 * 4) / 9
    ("a gauge's mean", {3: {"scrapes": 1.0}}, (2, 5), {GAUGE: 39 / 9}),
    ("a gauge unknown in a minute", {3: {GAUGE: None}}, (2, 5), {GAUGE: 4.5}),
    ("unknown in an observed minute", {4: {COUNTER: None}}, (2, 5), {COUNTER: None, GAUGE: 4.0}),
    ("nobody looked in a minute", {4: NOBODY}, (2, 5), {COUNTER: 80.0, GAUGE: 4.0}),
    ("nobody in the last", {5: NOBODY}, (2, 5), {"model_name": "model-4", BUCKETS: [7.0, 14.0]}),
    ("nobody in any", dict.fromkeys((3, 4), NOBODY), (2, 4), {COUNTER: None, "scrapes": 0.0}),
    ("buckets", {}, (2, 5), {BUCKETS: [12.0, 24.0], EDGES: [1.0, math.inf]}),
    ("buckets unknown", {4: {BUCKETS: None, EDGES: None}}, (2, 5), {BUCKETS: None, COUNTER: 120.0}),
    (
        "other edges",
        {3: {BUCKETS: [1.0, 2.0, 3.0], EDGES: [1.0, 2.0, math.inf]}},
        (1, 5),
        {BUCKETS: [9.0, 18.0], EDGES: [1.0, math.inf], COUNTER: 140.0},
    ),
    ("outside of the rows", {}, (20, 25), {COUNTER: None, "scrapes": 0.0, "model_name": None}),
]


@pytest.mark.parametrize(
    ("changes", "span", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_a_window(
    changes: dict[int, dict[str, Any]], span: tuple[int, int], expected: dict[str, Any]
) -> None:
    # beside others, the answer is the same
    for row in (totals(changes, span)[0], totals(changes, (1, 2), span, (1, 9))[1]):
        found = {name: row[f"{name}_mean" if name == GAUGE else name] for name in expected}
        assert same(list(found.values()), list(expected.values())), found


def test_without_cut_both_sides_of_a_restart_count() -> None:
    (row,) = totals({4: RESTARTED}, (2, 6), cut=False)
    assert (row[COUNTER], row["restarted"], row["scrapes"]) == (180.0, True, 16.0)


INF = math.inf
LISTS = pl.List(pl.Float64)
# counts by edge (cumulative) and edges, side by side in one column
PLAIN = ([2.0, 6.0, 10.0], [0.1, 1.0, INF])
BELOW_ZERO = ([3.0, 6.0, 6.0], [-1.0, 2.0, INF])
OTHERS = [(None, None), ([0.0, 0.0, 0.0], [0.1, 1.0, INF]), ([5.0], [INF])]


@pytest.mark.parametrize(
    ("q", "plain", "below_zero"),
    [
        # as histogram_quantile of the Prometheus documentation: value, lower and upper edge
        (0.1, (0.05, 0.0, 0.1), (-1.0, -1.0, -1.0)),
        (0.5, (0.1 + 0.9 * 3 / 4, 0.1, 1.0), (-1.0, -1.0, -1.0)),
        (0.75, (1.0, 1.0, None), (0.5, -1.0, 2.0)),
    ],
)
def test_quantiles_are_those_of_promql(
    q: float, plain: tuple[float | None, ...], below_zero: tuple[float | None, ...]
) -> None:
    counts, edges = zip(PLAIN, BELOW_ZERO, *OTHERS, strict=True)
    found = quantile(pl.Series(counts, dtype=LISTS), pl.Series(edges, dtype=LISTS), q)
    rows = list(zip(found.value, found.lower, found.upper, strict=True))
    assert rows[0] == pytest.approx(plain)
    assert rows[1] == pytest.approx(below_zero)
    assert rows[2:] == [(None, None, None)] * 3


def test_a_share_is_exact_at_an_edge_and_bounded_inside() -> None:
    counts, edges = (pl.Series([part] * 4, dtype=LISTS) for part in PLAIN)
    found = share_within(counts, edges, pl.Series([1.0, 0.5, None, 3.0], dtype=pl.Float64))
    assert found.rows() == [(0.6, 0.6), (0.2, 0.6), (None, None), (0.6, 1.0)]
