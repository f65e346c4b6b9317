"""Minute rows by hand, and against a plain loop over scrapes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_cases import KEY, MINUTE, T0, at, floor_minute, rows_of, scrapes

from driftwatch.minutes.continuity import MAX_GAP_SECONDS
from driftwatch.minutes.rows import minute_rows
from driftwatch.pipeline.state import last_scrapes

COUNTER, GAUGE = "generation_tokens_total", "running_requests"
EDGES = [0.1, 1.0, math.inf]


def minutes(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return rows_of(scrapes(rows)).to_dicts()


def steady(n: int, every: float = 15.0) -> list[dict[str, Any]]:
    return [{"t": i * every, COUNTER: 100.0 * i, GAUGE: float(i % 3)} for i in range(n)]


# --- by hand


def test_a_minute_begins_at_the_scrape_before_it() -> None:
    first, second, third = minutes(steady(9))
    assert (first[COUNTER], first["duration_seconds"], first["scrapes"]) == (300.0, 45.0, 4.0)
    assert (second[COUNTER], second["duration_seconds"], second["scrapes"]) == (400.0, 60.0, 4.0)
    assert (third[COUNTER], third["scrapes"]) == (100.0, 1.0)  # the end belongs to the next
    assert second[GAUGE] == 1.0  # 1, 2, 0, 1
    assert [row["last_scrape_age_seconds"] for row in (first, third)] == [15.0, 60.0]


def test_a_minute_without_a_scrape_is_unknown() -> None:
    rows = [*steady(4), {"t": 130.0, "ok": False, "reason": "refused"}]
    _, nobody, failed = minutes(rows)
    for row in (nobody, failed):
        assert (row["scrapes"], row["duration_seconds"]) == (0.0, 0.0)
        for name in (COUNTER, "ttft_seconds_buckets", GAUGE, "restarted", "model_name"):
            assert row[name] is None, name
    assert (nobody["looks"], nobody["failure"]) == (None, None)
    assert (failed["looks"], failed["failure"]) == (1.0, "refused")


def test_both_sides_of_a_restart_count() -> None:
    """Down from 30 s to 70 s, then a fresh process that started at 65 s."""
    before = [{"t": t, COUNTER: 1000.0 + t, "process_start_time_seconds": 1.0} for t in (0, 15, 30)]
    started = at(65).timestamp()
    after = [
        {"t": t, COUNTER: 2.0 * (t - 65), "process_start_time_seconds": started}
        for t in (75, 90, 105)
    ]
    first, second = minutes([*before, *after])
    assert (first[COUNTER], first["restarted"]) == (30.0, False)
    assert (second[COUNTER], second["restarted"]) == (80.0, True)  # it began at zero
    assert second["duration_seconds"] == pytest.approx(40.0)
    (both,) = minutes([row | {"t": row["t"] / 2} for row in [*before, *after]])
    assert (both[COUNTER], both["restarted"], both["scrapes"]) == (110.0, True, 6.0)


@pytest.mark.parametrize(
    ("before", "after", "counted"),
    [
        # the counter passed its old value
        (
            {COUNTER: 100.0, "process_start_time_seconds": 1.0},
            {COUNTER: 5000.0, "process_start_time_seconds": 2000.0},
            {COUNTER: 5000.0},
        ),
        # several API servers: one counter fell, so all began anew, also the one that did not
        (
            {COUNTER: 100.0, "prompt_tokens_total": 50.0, "several_api_servers": True},
            {COUNTER: 120.0, "prompt_tokens_total": 3.0, "several_api_servers": True},
            {COUNTER: 120.0, "prompt_tokens_total": 3.0},
        ),
    ],
)
def test_how_a_restart_is_seen(
    before: dict[str, Any], after: dict[str, Any], counted: dict[str, float]
) -> None:
    row = minutes([{"t": 50.0} | before, {"t": 65.0} | after])[1]
    assert row["restarted"] is True
    assert {name: row[name] for name in counted} == counted


def test_a_counter_that_falls_in_a_process_that_goes_on_is_no_restart() -> None:
    """What it counted between the two scrapes nobody knows."""
    rows = [
        row
        | {"process_start_time_seconds": 1.0, "preemptions_total": 5.0 if row["t"] < 90 else 2.0}
        for row in steady(8)
    ]
    second = minutes(rows)[1]
    assert second["restarted"] is False
    assert (second[COUNTER], second["duration_seconds"]) == (300.0, 45.0)
    assert second["preemptions_total"] == 0.0


def test_what_cannot_be_is_unknown() -> None:
    """First tokens in no time at all, and more than the whole KV cache."""
    rows = [
        row
        | {
            "kv_cache_usage_ratio": 0.5 if row["t"] < 60 else 50.0,
            "ttft_seconds_count": float(row["t"]),
            "ttft_seconds_sum": min(row["t"], 60.0),
            "ttft_seconds_buckets": [row["t"]] * 3,
            "ttft_seconds_edges": EDGES,
        }
        for row in steady(12)
    ]
    first, _, third = minutes(rows)
    assert (first["kv_cache_usage_ratio"], first["ttft_seconds_sum"]) == (0.5, 45.0)
    assert (third["kv_cache_usage_ratio"], third["ttft_seconds_sum"]) == (None, None)
    assert (third["ttft_seconds_count"], third["ttft_seconds_buckets"]) == (60.0, None)


def test_changed_bucket_edges_are_not_added_up_as_if_they_were_the_same() -> None:
    def page(t: float, counts: list[float], edges: list[float]) -> dict[str, Any]:
        return {
            "t": t,
            "process_start_time_seconds": 1.0 if t < 30 else 1000.0,
            "prompt_tokens_buckets": counts,
            "prompt_tokens_edges": edges,
            "prompt_tokens_count": counts[-1],
            "prompt_tokens_sum": 10.0 * counts[-1],
        }

    (row,) = minutes(
        [
            page(0, [0.0, 0.0, 0.0], [100.0, 200.0, math.inf]),
            page(15, [7.0, 7.0, 7.0], [100.0, 200.0, math.inf]),
            page(30, [0.0, 3.0, 3.0], [100.0, 800.0, math.inf]),
        ]
    )
    assert row["prompt_tokens_count"] == 10.0
    assert row["prompt_tokens_edges"] == [100.0, 800.0, math.inf]
    assert row["prompt_tokens_buckets"] == [0.0, 3.0, 3.0]


# --- against a plain loop


@dataclass
class Server:
    """A server that counts; a restart puts everything back to zero."""

    t: float = 0.0
    started: float = 1.7e9
    tokens: float = 0.0
    buckets: tuple[float, float, float] = (0.0, 0.0, 0.0)
    seconds: float = 0.0

    def page(self) -> dict[str, Any]:
        return {
            "t": self.t,
            "process_start_time_seconds": self.started,
            COUNTER: self.tokens,
            "ttft_seconds_buckets": list(self.buckets),
            "ttft_seconds_edges": EDGES,
            "ttft_seconds_count": self.buckets[-1],
            "ttft_seconds_sum": self.seconds,
        }


# how long until the next scrape: usual, a boundary, one missed, just under and over the look-back
_STEP = st.sampled_from([0.5, 5.0, 5.0, 15.0, 60.0, 60.0, 180.0, 300.0, 300.5, 900.0])
_EVENT = st.sampled_from(["", "", "", "", "", "restart", "failed"])
_NULLS = st.sampled_from([(), (), (), (COUNTER,), (GAUGE,), ("ttft_seconds",), (COUNTER, GAUGE)])


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Pages of one server, oldest first."""
    server = Server(t=draw(st.sampled_from([0.0, 3.0, 59.5])), tokens=draw(st.integers(0, 900)))
    rows = []
    for _ in range(draw(st.integers(1, 14))):
        event, nulls = draw(_EVENT), draw(_NULLS)
        if event == "restart":
            server = Server(t=server.t, started=server.started + 40)
        fast, slow = draw(st.integers(0, 3)), draw(st.integers(0, 3))
        server.tokens += draw(st.integers(0, 50))
        low, mid, top = server.buckets
        server.buckets = (low + fast, mid + fast, top + fast + slow)
        server.seconds += 0.05 * fast + 2.0 * slow
        page = server.page() | {GAUGE: float(draw(st.integers(0, 9)))}
        for name in nulls:
            page |= (
                {f"{name}_{part}": None for part in ("sum", "count", "buckets", "edges")}
                if name == "ttft_seconds"
                else {name: None}
            )
        rows.append({"t": server.t, "ok": False} if event == "failed" else page)
        server.t += draw(_STEP)
    return rows


@dataclass
class Epoch:
    """Usable pages that belong together; ``zero``: it began with a restart, and not in a gap."""

    zero: bool
    pages: list[dict[str, Any]]


def epochs_of(rows: list[dict[str, Any]]) -> list[Epoch]:
    """The same pages in epochs, by a plain loop."""
    found: list[Epoch] = []
    before: dict[str, Any] = {}
    for page in rows:
        if page.get("ok") is False:
            continue
        restarted = bool(before) and (
            page["process_start_time_seconds"] != before["process_start_time_seconds"]
        )
        gap = bool(before) and page["t"] - before["t"] > MAX_GAP_SECONDS
        if restarted or gap or not found:
            found.append(Epoch(restarted and not gap, []))
        found[-1].pages.append(page)
        before = page
    return found


def _minus(last: Any, base: Any) -> Any:
    if last is None or base is None:
        return None
    if isinstance(last, list):
        return [a - b for a, b in zip(last, base, strict=True)]
    return last - base


def _plus(values: list[Any]) -> Any:
    if not values or any(v is None for v in values):
        return None
    if isinstance(values[0], list):
        return [sum(column) for column in zip(*values, strict=True)]
    return sum(values)


def increase(epochs: list[Epoch], start: float, name: str) -> Any:
    """The minute's increase of one series, part by part."""
    parts: list[Any] = []
    for epoch in epochs:
        chosen = [p for p in epoch.pages if start <= p["t"] < start + 60]
        before = [p for p in epoch.pages if p["t"] < start]
        if not chosen:
            continue
        zero = [0.0] * len(EDGES) if name.endswith("buckets") else 0.0
        base = zero if epoch.zero and not before else (before[-1] if before else chosen[0])[name]
        parts.append(_minus(chosen[-1][name], base))
    return _plus(parts)


def _close(found: Any, expected: Any) -> bool:
    if isinstance(found, list) and isinstance(expected, list):
        return all(map(_close, found, expected))
    if found is None or expected is None:
        return found is expected
    return math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-9)


@settings(max_examples=60, deadline=None)
@given(rows=histories(), shuffle=st.randoms(use_true_random=False))
def test_minutes_are_those_of_the_plain_loop(rows: list[dict[str, Any]], shuffle: Any) -> None:
    shuffled = list(rows)
    shuffle.shuffle(shuffled)
    epochs = epochs_of(rows)
    for row in rows_of(scrapes(shuffled)).to_dicts():
        start = (row["end"] - T0).total_seconds() - 60
        for name in (COUNTER, "ttft_seconds_sum", "ttft_seconds_count", "ttft_seconds_buckets"):
            expected = increase(epochs, start, name)
            assert _close(row[name], expected), (start, name, row[name], expected)
        pages = [p for e in epochs for p in e.pages if start <= p["t"] < start + 60]
        values = [p[GAUGE] for p in pages if p[GAUGE] is not None]
        assert _close(row[GAUGE], sum(values) / len(values) if values else None)
        assert row["scrapes"] == len(pages)


@settings(max_examples=60, deadline=None)
@given(rows=histories())
def test_minutes_lose_and_double_nothing(rows: list[dict[str, Any]]) -> None:
    known = [r for r in rows if r.get(COUNTER) is not None and r["ttft_seconds_sum"] is not None]
    if not known:
        return
    found = rows_of(scrapes(known))
    for name in (COUNTER, "ttft_seconds_sum", "ttft_seconds_count"):
        # last - first, plus the value after each restart, gaps left out
        telescoped = sum(
            epoch.pages[-1][name] - (0.0 if epoch.zero else epoch.pages[0][name])
            for epoch in epochs_of(known)
        )
        assert math.isclose(found[name].sum(), telescoped, abs_tol=1e-6)
    assert found["scrapes"].sum() == len(known)


@settings(max_examples=60, deadline=None)
@given(rows=histories(), cut=st.integers(1, 20))
def test_a_minute_needs_no_more_than_the_last_scrape_before_it(
    rows: list[dict[str, Any]], cut: int
) -> None:
    frame = scrapes(rows)
    targets, since, until = frame.select(KEY), T0, at(rows[-1]["t"]) + MINUTE
    until, middle = floor_minute(until), T0 + cut * timedelta(minutes=1)
    if middle >= until:
        return
    whole = minute_rows(frame, targets, since, until)
    first = minute_rows(frame, targets, since, middle)
    rest = minute_rows(last_scrapes(frame, middle), targets, middle, until, first.samples)
    assert pl.concat([first.rows, rest.rows]).equals(whole.rows)
