"""Windows against a plain loop over intervals: random counters, restarts, gaps, NULLs, grids."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_cases import at, grid, scrapes, windows

from driftwatch.signals.continuity import MAX_GAP_SECONDS, with_epochs
from driftwatch.signals.windows import Kind, totals

EDGES = [0.1, 1.0, math.inf]
COUNTER, GAUGE = "generation_tokens_total", "running_requests"


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
        served = draw(st.integers(0, 50))
        fast, slow = draw(st.integers(0, 3)), draw(st.integers(0, 3))
        server.tokens += served
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


@st.composite
def grids(draw: st.DrawFn) -> list[tuple[float, float]]:
    """Windows of any place and length, ascending ends."""
    cuts = sorted(draw(st.lists(st.integers(-60, 1500), min_size=2, max_size=6, unique=True)))
    spans = [(float(a), float(b)) for a in cuts for b in cuts if a < b]
    return sorted(spans, key=lambda span: span[1])


@dataclass
class Epoch:
    """Usable pages that belong together; ``zero``: it began with a restart, and not in a gap."""

    zero: bool
    pages: list[dict[str, Any]]


def epochs_of(rows: list[dict[str, Any]]) -> list[Epoch]:
    """The same pages in epochs, by a plain loop."""
    found: list[Epoch] = []
    known: dict[str, Any] = {}
    for page in rows:
        if page.get("ok") is False:
            continue
        restarted = any(
            page[name] is not None and known.get(name) is not None and page[name] < known[name]
            for name in (COUNTER, "ttft_seconds_count")
        ) or (
            "process_start_time_seconds" in known
            and abs(page["process_start_time_seconds"] - known["process_start_time_seconds"]) > 1
        )
        gap = bool(known) and page["t"] - known["t"] > MAX_GAP_SECONDS
        if restarted or gap or not found:
            found.append(Epoch(restarted and not gap, []))
        found[-1].pages.append(page)
        known |= {name: value for name, value in page.items() if value is not None}
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


def _inside(page: dict[str, Any], start: float, end: float, kind: Kind) -> bool:
    return start <= page["t"] and (page["t"] < end if kind == "chained" else page["t"] <= end)


def increases(
    epochs: list[Epoch], start: float, end: float, name: str, kind: Kind, cut: bool
) -> Any:
    """The window's increase of one series, part by part."""
    parts: list[Any] = []
    seen_before = False  # a scrape of this target before the window
    seen_inside = False
    for epoch in epochs:
        chosen = [p for p in epoch.pages if _inside(p, start, end, kind)]
        before = [p for p in epoch.pages if p["t"] < start]
        if chosen:
            zero = 0.0 if not isinstance(chosen[0][name], list) else [0.0] * len(EDGES)
            continues = kind == "chained" and bool(before)
            restart_seen = (
                epoch.zero and not before and (seen_inside or (kind == "chained" and seen_before))
            )
            if restart_seen and isinstance(chosen[-1][name], list):
                zero = [0.0] * len(EDGES)
            base = zero if restart_seen else (before[-1] if continues else chosen[0])[name]
            parts.append(_minus(chosen[-1][name], base))
            seen_inside = True
        seen_before = seen_before or any(p["t"] < start for p in epoch.pages)
    return _plus(parts[-1:] if cut else parts)


def gauge_mean(
    epochs: list[Epoch], start: float, end: float, kind: Kind, cut: bool
) -> float | None:
    chosen = [[p for p in e.pages if _inside(p, start, end, kind)] for e in epochs]
    chosen = [pages for pages in chosen if pages]
    pages = [p for part in (chosen[-1:] if cut else chosen) for p in part]
    values = [p[GAUGE] for p in pages if p[GAUGE] is not None]
    return sum(values) / len(values) if values else None


def _close(found: Any, expected: Any) -> bool:
    if isinstance(found, float) and isinstance(expected, int | float):
        return math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(found, list) and isinstance(expected, list):
        return all(map(_close, found, expected))
    return bool(found == expected)


@pytest.mark.parametrize("kind", ["chained", "whole"])
@pytest.mark.parametrize("cut", [False, True])
@settings(max_examples=70, deadline=None)
@given(rows=histories(), spans=grids(), shuffle=st.randoms(use_true_random=False))
def test_totals_equal_the_plain_loop(
    kind: Kind,
    cut: bool,
    rows: list[dict[str, Any]],
    spans: list[tuple[float, float]],
    shuffle: Any,
) -> None:
    shuffled = list(rows)
    shuffle.shuffle(shuffled)
    found = totals(with_epochs(scrapes(shuffled)), windows(*spans), kind=kind, cut=cut)
    epochs = epochs_of(rows)
    for (start, end), row in zip(spans, found.to_dicts(), strict=True):
        for name in (COUNTER, "ttft_seconds_sum", "ttft_seconds_count", "ttft_seconds_buckets"):
            expected = increases(epochs, start, end, name, kind, cut)
            assert _close(row[name], expected), (start, end, name, row[name], expected)
            values = row[name] if isinstance(row[name], list) else [row[name]]
            assert all(value is None or value >= -1e-9 for value in values), (name, values)
        assert _close(row[f"{GAUGE}_mean"], gauge_mean(epochs, start, end, kind, cut))
        counted = [len([p for p in e.pages if _inside(p, start, end, kind)]) for e in epochs]
        counted = [n for n in counted if n]
        assert row["scrapes"] == sum(counted[-1:] if cut else counted)


def _telescoped(rows: list[dict[str, Any]], name: str) -> float:
    """last - first, plus the value after each restart, gaps left out."""
    return sum(
        epoch.pages[-1][name] - (0.0 if epoch.zero else epoch.pages[0][name])
        for epoch in epochs_of(rows)
    )


@settings(max_examples=70, deadline=None)
@given(rows=histories())
def test_chained_minutes_lose_and_double_nothing(rows: list[dict[str, Any]]) -> None:
    known = [
        row
        for row in rows
        if row.get("ok") is not False
        and row[COUNTER] is not None
        and row["ttft_seconds_sum"] is not None
    ]
    if not known:
        return
    frame = scrapes(known)
    minutes = totals(with_epochs(frame), grid(frame), kind="chained", cut=False)
    for name in (COUNTER, "ttft_seconds_sum", "ttft_seconds_count"):
        assert math.isclose(minutes[name].sum(), _telescoped(known, name), abs_tol=1e-6)
    assert minutes["scrapes"].sum() == len(known)


@settings(max_examples=60, deadline=None)
@given(rows=histories(), spans=grids())
def test_a_second_target_changes_nothing(
    rows: list[dict[str, Any]], spans: list[tuple[float, float]]
) -> None:
    asked = windows(*spans)
    alone = totals(with_epochs(scrapes(rows)), asked, kind="chained", cut=True)
    busy = [{**row, "running_requests": 50.0} for row in _steady(40)]
    both = pl.concat([scrapes(busy, instance="a:1"), scrapes(rows), scrapes(busy, engine="1")])
    beside = totals(with_epochs(both), asked, kind="chained", cut=True)
    assert alone.drop(f"{GAUGE}_total", "running_requests_mean", strict=False).equals(
        beside.drop(f"{GAUGE}_total", "running_requests_mean", strict=False)
    )


def _steady(n: int, every: float = 15.0) -> Iterator[dict[str, Any]]:
    for i in range(n):
        yield {"t": i * every, COUNTER: 100.0 * i, GAUGE: float(i % 3)}


def _first(frame: pl.DataFrame, name: str) -> datetime:
    value = frame[name][0]
    assert isinstance(value, datetime)
    return value


def test_a_whole_window_is_the_first_to_the_last_scrape_inside() -> None:
    epochs = with_epochs(scrapes(list(_steady(20))))
    row = totals(epochs, windows((15.0, 60.0)), kind="whole", cut=False)
    assert row[COUNTER][0] == 300.0  # 15, 30, 45, 60: both ends count
    assert (_first(row, "first_time"), _first(row, "last_time")) == (at(15), at(60))
    assert row["duration_seconds"][0] == 45.0
    assert row["scrapes"][0] == 4.0
    between = totals(epochs, windows((15.1, 59.9)), kind="whole", cut=False)
    assert between[COUNTER][0] == 100.0
    assert between["duration_seconds"][0] == 15.0


def test_a_chained_window_begins_at_the_scrape_before_it() -> None:
    epochs = with_epochs(scrapes(list(_steady(20))))
    row = totals(epochs, windows((60.0, 120.0)), kind="chained", cut=False)
    assert row[COUNTER][0] == 400.0
    assert row["duration_seconds"][0] == 60.0
    assert row["scrapes"][0] == 4.0  # 60, 75, 90, 105: the end belongs to the next


@pytest.mark.parametrize("kind", ["chained", "whole"])
def test_a_window_without_scrapes_is_unknown(kind: Kind) -> None:
    epochs = with_epochs(scrapes(list(_steady(4))))
    row = totals(epochs, windows((46.0, 100.0), (-100.0, -1.0)), kind=kind, cut=False)
    assert row["scrapes"].to_list() == [0.0, 0.0]
    assert row["duration_seconds"].to_list() == [0.0, 0.0]
    for name in (COUNTER, "ttft_seconds_buckets", f"{GAUGE}_mean", "restarted", "model_name"):
        assert row[name].to_list() == [None, None], name


def test_no_scrape_at_all() -> None:
    row = totals(with_epochs(scrapes([])), windows((0.0, 60.0)), kind="chained", cut=False)
    assert row[COUNTER].to_list() == [None]
    assert row["scrapes"].to_list() == [0.0]


@pytest.mark.parametrize("missing", [0, 3])
def test_null_at_an_edge_is_unknown_and_not_zero(missing: int) -> None:
    rows = [dict(row) for row in _steady(4)]
    rows[missing][COUNTER] = None
    row = totals(with_epochs(scrapes(rows)), windows((0.0, 45.0)), kind="whole", cut=False)
    assert row[COUNTER][0] is None
    assert row[f"{GAUGE}_mean"][0] == 0.75


def test_null_inside_is_bridged() -> None:
    rows = [dict(row) for row in _steady(4)]
    rows[1][COUNTER] = None
    row = totals(with_epochs(scrapes(rows)), windows((0.0, 45.0)), kind="whole", cut=False)
    assert row[COUNTER][0] == 300.0


def test_a_counter_that_never_was_there_stays_unknown() -> None:
    row = totals(
        with_epochs(scrapes(list(_steady(4)))), windows((0.0, 60.0)), kind="whole", cut=False
    )
    assert row["preemptions_total"][0] is None


def _restarting() -> list[dict[str, Any]]:
    """Down from 30 s to 70 s, then a fresh process that started at 65 s."""
    before = [{"t": t, COUNTER: 1000.0 + t, "process_start_time_seconds": 1.0} for t in (0, 15, 30)]
    started = at(65).timestamp()
    after = [
        {"t": t, COUNTER: 2.0 * (t - 65), "process_start_time_seconds": started}
        for t in (75, 90, 105)
    ]
    return [*before, *after]


def test_cut_leaves_out_what_lies_before_a_restart() -> None:
    epochs = with_epochs(scrapes(_restarting()))
    row = totals(epochs, windows((0.0, 120.0)), kind="whole", cut=True)
    assert row[COUNTER][0] == 80.0  # the new process began at zero
    assert row["duration_seconds"][0] == pytest.approx(40.0)
    assert row["restarted"][0] is True
    assert _first(row, "first_time") == at(75)


def test_without_cut_both_sides_of_a_restart_count() -> None:
    epochs = with_epochs(scrapes(_restarting()))
    row = totals(epochs, windows((0.0, 120.0)), kind="whole", cut=False)
    assert row[COUNTER][0] == 30.0 + 80.0
    assert row["duration_seconds"][0] == pytest.approx(30.0 + 40.0)
    assert row["scrapes"][0] == 6.0
    assert row["restarted"][0] is True


def test_a_restart_is_seen_although_the_counter_passed_its_old_value() -> None:
    rows = [
        {"t": 0, COUNTER: 100.0, "process_start_time_seconds": 1.0},
        {"t": 60, COUNTER: 5000.0, "process_start_time_seconds": 2000.0},
    ]
    row = totals(with_epochs(scrapes(rows)), windows((30.0, 90.0)), kind="chained", cut=False)
    assert row[COUNTER][0] == 5000.0
    assert row["restarted"][0] is True


def test_several_api_servers_tell_a_restart_by_a_counter_that_fell() -> None:
    rows = [
        {"t": 0, COUNTER: 100.0, "prompt_tokens_total": 50.0, "several_api_servers": True},
        {"t": 15, COUNTER: 120.0, "prompt_tokens_total": 3.0, "several_api_servers": True},
    ]
    row = totals(with_epochs(scrapes(rows)), windows((10.0, 20.0)), kind="chained", cut=False)
    # one counter fell, so all began anew, also the one that did not
    assert row[COUNTER][0] == 120.0
    assert row["prompt_tokens_total"][0] == 3.0


def test_a_changed_cache_configuration_cuts() -> None:
    rows = [
        {**row, "cache_config": '{"num_gpu_blocks":"10"}' if row["t"] < 60 else '{"n":"20"}'}
        for row in _steady(8)
    ]
    row = totals(with_epochs(scrapes(rows)), windows((0.0, 105.0)), kind="whole", cut=True)
    assert row["configuration_changed"][0] is True
    assert row["restarted"][0] is False
    assert row[COUNTER][0] == 300.0  # 60 to 105


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

    rows = [
        page(0, [0.0, 0.0, 0.0], [100.0, 200.0, math.inf]),
        page(15, [7.0, 7.0, 7.0], [100.0, 200.0, math.inf]),
        page(30, [0.0, 3.0, 3.0], [100.0, 800.0, math.inf]),
    ]
    row = totals(with_epochs(scrapes(rows)), windows((0.0, 45.0)), kind="whole", cut=False)
    assert row["prompt_tokens_count"][0] == 10.0
    assert row["prompt_tokens_edges"][0].to_list() == [100.0, 800.0, math.inf]
    assert row["prompt_tokens_buckets"][0].to_list() == [0.0, 3.0, 3.0]


def test_duplicated_scrapes_count_once() -> None:
    frame = scrapes(list(_steady(8)))
    doubled = pl.concat([frame, frame.reverse(), frame])
    asked = windows((0.0, 60.0), (15.0, 90.0))
    for kind in ("chained", "whole"):
        once = totals(with_epochs(frame), asked, kind=kind, cut=False)
        assert once.equals(totals(with_epochs(doubled), asked, kind=kind, cut=False))


def test_a_scrape_told_twice_with_other_numbers_is_no_restart() -> None:
    rows = [dict(row) for row in _steady(5)]
    again = {**rows[2], COUNTER: rows[2][COUNTER] - 50}  # an older answer with the same time
    row = totals(
        with_epochs(scrapes([*rows, again])), windows((0.0, 60.0)), kind="whole", cut=False
    )
    assert row[COUNTER][0] == 400.0
    assert row["restarted"][0] is False
