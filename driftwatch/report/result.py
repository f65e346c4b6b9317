"""RESULT where no change was verified: restarts by what was measured around them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import polars as pl

from driftwatch.collect.schema import KEY
from driftwatch.incidents.incident import Incident
from driftwatch.numbers import duration, percent_range, plural
from driftwatch.report.cells import CELL
from driftwatch.report.costs import between, of_pool, wander
from driftwatch.report.incidents import keys_of
from driftwatch.report.lengths import Drift
from driftwatch.report.material import Material
from driftwatch.report.report import Range, Stretch
from driftwatch.report.week import day_time
from driftwatch.verify.verification import Verification

_UNKNOWN = "cannot be judged"
_AFTER = timedelta(hours=2)
LATER = timedelta(hours=1)  # a restart so long after an incident is what somebody did about it
_RECOVERED = 0.95  # of the usual speed
_NEXT_CELLS = 36  # of six hours: a speed of ten minutes wanders


def restarts_of(
    material: Material,
    incidents: Sequence[Incident],
    end: datetime | None,
    drift: Stretch | None,
) -> pl.DataFrame:
    """The cells in which their servers restarted, by time; ``end``: of the last one, None = open.

    A restart after lengths are as usual again mends nothing.
    """
    keys = tuple({key: None for one in incidents for key in keys_of(one)})
    mine = of_pool(material, incidents[0].pool, keys)
    last = (end or material.until) + LATER
    if drift is not None and drift.end < material.until - LATER:
        last = min(last, drift.end)
    after = between(mine, min(one.started_at for one in incidents), last)
    return after.filter(pl.col("restarted").fill_null(value=False)).sort("end")


def last_restarts(material: Material, pool: str, since: datetime, until: datetime) -> pl.DataFrame:
    """The cells with the last restarts of a pool in a span, an hour of them, by time.

    A setting changes with a restart only, and no metric shows it.
    """
    again = of_pool(material, pool).filter(
        pl.col("restarted").fill_null(value=False),
        pl.col("end") > since,
        pl.col("end") <= until,
    )
    return again.filter(pl.col("end") > pl.col("end").max() - timedelta(hours=1)).sort("end")


def without_changes(again: pl.DataFrame, known: Iterable[Verification]) -> pl.DataFrame:
    """The cells with restarts that none of these changes explains."""
    changes = {(one.instance, one.engine, one.change.at) for one in known}
    is_known = [
        any((i, e) == (a, b) and -CELL < end - at < 2 * CELL for a, b, at in changes)
        for i, e, end in again.select(*KEY, "end").iter_rows()
    ]
    return again.filter(~pl.Series(is_known, dtype=pl.Boolean))


def starts_text(again: pl.DataFrame) -> str:
    """``the restart of Tue 19:00 (2 servers)``."""
    servers = plural(again.n_unique(["instance", "engine"]), "server")
    return f"the restart of {day_time(again['end'][0] - CELL)} ({servers})"


def is_over(material: Material, drift: Drift) -> bool:
    """Whether the drift ended before the week did."""
    return drift.stretch.end < material.until - LATER


def over_text(material: Material, drift: Drift | None) -> str:
    """``prompts back to normal Sat 10:00``; empty where they are not."""
    if drift is None or drift.is_followed or not is_over(material, drift):
        return ""
    return f"{drift.text.split()[0]} back to normal {day_time(drift.stretch.end)}"


def restarts_text(again: pl.DataFrame) -> str:
    """``4 servers restarted Tue 11:00``: begin of the ten minutes in which the first one did."""
    servers = again.n_unique(["instance", "engine"])
    return f"{plural(servers, 'server')} restarted {day_time(again['end'][0] - CELL)}"


def result_of(
    material: Material,
    family: str,
    incidents: Sequence[Incident],
    again: pl.DataFrame,
    spans: Sequence[tuple[datetime, datetime | None]],
    drift: Drift | None,
) -> str:
    """RESULT: ``since then 96–104 % of the usual speed``; of a restart that verify cannot judge and
    without one how long it lasted.

    ``again``: from :func:`restarts_of`; ``spans``: begin and end of each incident, None = open.
    """
    over = over_text(material, drift)
    still = [begin for begin, end in spans if end is None]
    is_open = f"open {duration((material.until - min(still)).total_seconds())}" if still else ""
    judged = "" if again.is_empty() else _judged(material, family, incidents, again)
    if judged or is_open:
        return "; ".join(filter(None, (judged, is_open, over)))
    if over and again.is_empty():
        return f"over by itself: {over}"
    if family == "stuck":
        return "over by itself"
    covered, last = timedelta(0), material.since
    for begin, ended in spans:  # what overlaps counts once
        end = ended or material.until
        covered += max(end - max(begin, last), timedelta(0))
        last = max(last, end)
    speed = _speed(material, incidents, last) if family == "speed" else None
    now = "" if speed is None else f", then {_range(speed)} of the usual speed"
    # lengths that stay far from the usual ones miss no target any more
    word = "over" if drift is None or over else "pages over"
    text = f"{word} after {duration(covered.total_seconds())}{now}"
    return "; ".join(filter(None, (text, over)))


def _judged(
    material: Material, family: str, incidents: Sequence[Incident], again: pl.DataFrame
) -> str:
    """What came after restarts: on servers that hung their tokens, on slow ones their speed; empty
    of anything else, as no metric shows what a restart changed.
    """
    done = again["end"][-1]
    if family == "stuck":
        keys = tuple({key: None for one in incidents for key in keys_of(one)})
        since = between(of_pool(material, incidents[0].pool, keys), done, done + _AFTER)
        if since.is_empty():
            return f"{_UNKNOWN}: no data after it"
        return "hung again" if float(since["stuck_seconds"].sum()) else "tokens come since then"
    if family != "speed":
        return ""
    speed = _speed(material, incidents, done)
    if speed is None or speed.low is None or speed.high is None:
        return f"{_UNKNOWN}: no verdict on speed"
    is_back = (speed.low + speed.high) / 2 >= _RECOVERED
    return f"{'since then' if is_back else 'still slow:'} {_range(speed)} of the usual speed"


def _speed(material: Material, incidents: Sequence[Incident], since: datetime) -> Range | None:
    """Speed at equal load of the servers of the last one since a time; None without a verdict."""
    mine = of_pool(material, incidents[-1].pool, keys_of(incidents[-1]))
    speeds = mine.filter(pl.col("end") > since)["speed_at_equal_load_ratio"].drop_nulls()
    if speeds.is_empty():
        return None
    mean, error = float(speeds.head(_NEXT_CELLS).to_numpy().mean()), wander(mine)
    return Range(low=mean - error, high=mean + error)


def _range(of: Range) -> str:
    return percent_range(max(0.0, of.low or 0.0), of.high or 0.0)
