"""Drawings of the report: the week of a pool. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from driftwatch.numbers import (
    clean,
    percent,
)
from driftwatch.plots.plot import Plot, Series, plot
from driftwatch.plots.scales import Axis
from driftwatch.report.drift import compact
from driftwatch.report.sections import Document, speed_text

Row = Mapping[str, Any]
_SPAN, _CHANGE, _GREY = 1, 3, 4  # colours of incidents, changes and a baseline


class _Signal(NamedTuple):
    """One signal of a timeline and how it is drawn."""

    name: str  # of the timeline's list, and of the baseline's band
    label: str
    axis: Axis
    factor: float = 1.0  # of the list's unit in the axis' unit


_SPEED = _Signal(
    "speed_median_ratio",
    "median server",
    Axis("speed, %", is_robust=True),
    100.0,
)
_IN_TARGET = _Signal(
    "in_target_ratio", "requests in target", Axis("in target, %", high=100.0), 100.0
)
_RATE = _Signal("tokens_per_second", "tokens/s", Axis("tokens/s", low=0.0, is_robust=True))


def plots_of(document: Document) -> list[Plot]:
    """The drawings of the week, of the pools that have a timeline."""
    return [one for timeline in document.get("timelines", ()) for one in week_plots(timeline)]


def week_plots(timeline: Row) -> Iterator[Plot]:
    """Speed, requests in target and throughput of a pool over the week; those with a value."""
    for signal, finding in (
        (_SPEED, _speed_finding), (_IN_TARGET, _target_finding), (_RATE, _rate_finding),
    ):  # fmt: skip
        if any(value is not None for value in timeline[signal.name]):
            title = f"{clean(timeline['pool'])}: {finding(timeline)}"
            yield _over_the_week(timeline, signal, title)


def _over_the_week(timeline: Row, signal: _Signal, title: str) -> Plot:
    start, step = _start(timeline), timeline["step_seconds"]
    values = timeline[signal.name]
    at = [start + step * (number + 0.5) for number in range(len(values))]
    ends = [start, start + step * len(values)]
    series = [*_background(timeline, signal, ends)]
    if signal is _SPEED and timeline["speed_lowest_ratio"] != values:
        lowest = _scaled(timeline["speed_lowest_ratio"], signal)
        series.append(Series("line", "slowest server", at, lowest, colour=2))
    series.append(Series("line", signal.label, at, _scaled(values, signal), colour=0))
    # without the midnight that ends it, whose day is not in the week
    across = Axis("", low=ends[0], high=ends[1] - 1.0, is_time=True)
    up = signal.axis
    if up.low is None:
        lines = [one.y for one in series if one.kind in ("line", "level")]
        up = replace(up, low=_share_low([v for values in lines for v in values if v is not None]))
    return plot(title, series, across, up, height=170.0)


def _share_low(percents: Sequence[float]) -> float:
    """Where the axis of a share begins: no lower than the values need, in steps that read well."""
    lowest = min(percents)
    return next((low for low in (90.0, 80.0, 60.0, 40.0, 20.0) if lowest >= low), 0.0)


def _start(timeline: Row) -> float:
    return datetime.fromisoformat(timeline["from"]).timestamp()


def _scaled(values: Sequence[float | None], signal: _Signal) -> list[float | None]:
    return [None if value is None else value * signal.factor for value in values]


def _background(timeline: Row, signal: _Signal, ends: Sequence[float]) -> Iterator[Series]:
    """Incidents, the baseline's band, the target's share, changes and restarts."""
    spans = timeline["incidents"]
    if spans:
        first, last = ([_stamp(one[name]) for one in spans] for name in ("from", "to"))
        yield Series("hatch", "page or ticket", first, last, colour=_SPAN)
    band = (timeline["baseline"] or {}).get(signal.name)
    if band:
        low, high = ([value * signal.factor] * 2 for value in band)
        yield Series("band", "usual in the baseline", ends, high, low, colour=_GREY)
    if signal is _IN_TARGET and timeline["target_share"]:
        yield Series("level", "required", y=[100.0 * timeline["target_share"]], colour=2)
    events = timeline["events"]
    if events:
        at, names = [_stamp(one["at"]) for one in events], [one["text"] for one in events]
        yield Series("ticks", "change or restart", at, names=names, colour=_CHANGE)


def _stamp(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _lowest(timeline: Row, name: str) -> tuple[float, str] | None:
    """The lowest value of a signal and when it was."""
    values = [(v, n) for n, v in enumerate(timeline[name]) if v is not None]
    if not values:
        return None
    value, number = min(values)
    at = datetime.fromisoformat(timeline["from"]) + number * timedelta(
        seconds=timeline["step_seconds"]
    )
    return value, f"{at:%a} {at.day} {at:%b %H:%M} UTC"


def _speed_finding(timeline: Row) -> str:
    lowest = _lowest(timeline, "speed_lowest_ratio")
    if lowest is None:
        return "speed unknown"
    return f"lowest speed at equal load {speed_text(lowest[0])}, {lowest[1]}"


def _target_finding(timeline: Row) -> str:
    lowest = _lowest(timeline, "in_target_ratio")
    if lowest is None:
        return "requests in target unknown"
    if lowest[0] == 1.0:
        return "all requests in target in every half hour"
    return f"fewest requests in target {percent(lowest[0])}, {lowest[1]}"


def _rate_finding(timeline: Row) -> str:
    values = [value for value in timeline["tokens_per_second"] if value is not None]
    return f"{compact(min(values))} to {compact(max(values))} tokens/s"
