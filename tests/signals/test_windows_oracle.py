"""Totals of windows equal a plain loop over scrapes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_cases import grid, scrapes, windows
from window_cases import COUNTER, GAUGE

from driftwatch.signals.continuity import MAX_GAP_SECONDS, with_epochs
from driftwatch.signals.windows import Kind, totals

EDGES = [0.1, 1.0, math.inf]


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
@settings(max_examples=25, deadline=None)
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


@settings(max_examples=25, deadline=None)
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
