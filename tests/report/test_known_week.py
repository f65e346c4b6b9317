"""Every figure of the report lies within its interval of what the simulator logged."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
from click.testing import CliRunner
from known_week import (
    HANGS,
    LONGER,
    ROLLOUT,
    SLOW,
    SLOW_FACTOR,
    START,
    at,
    missed,
    recorded,
    share,
)

from driftwatch.cli.main import cli
from driftwatch.report.report import Moved, Range, Report

# a server is seen so long before or after the edge of a window
_SCRAPE = 30 / 3600
# A rule's windows are ten minutes long and its ``for`` as long: it begins and ends so late.
_LATE = timedelta(minutes=25)


class Figure(NamedTuple):
    """A figure of the report beside the truth."""

    name: str
    low: Any
    high: Any
    true: Any  # a value, or those that the edges of its window leave

    @property
    def holds(self) -> bool:
        values = self.true if isinstance(self.true, list) else [self.true]
        return bool(self.low <= max(values) and min(values) <= self.high)


def _of(name: str, known: Range, true: Any) -> Figure:
    assert known.low is not None and known.high is not None, (name, known)
    return Figure(name, known.low, known.high, true)


def _within(
    count: Callable[[pl.DataFrame, float, float], float], requests: pl.DataFrame, *window: float
) -> list[float]:
    """The truth of a window whose edges are a scrape earlier or later."""
    shifts = (-_SCRAPE, 0.0, _SCRAPE)
    return [count(requests, window[0] + a, window[1] + b) for a in shifts for b in shifts]


def _hours(at: datetime) -> float:
    return (at - START) / timedelta(hours=1)


def _figures(report: Report, requests: pl.DataFrame) -> Iterator[Figure]:
    (pool,) = report.pools
    yield _of("missed, the week", pool.missed, missed(requests, 0, 16))
    hours = pool.hours
    assert hours is not None
    for day in (1, 2):  # Tuesday and Wednesday
        low, high = (
            sum(v for v in values[24 * day : 24 * (day + 1)] if v)
            for values in (hours.missed_low, hours.missed_high)
        )
        first = report.week.start + timedelta(days=day)
        true = _within(missed, requests, _hours(first), _hours(first) + 24)
        yield Figure(f"missed, {first:%a}", low, high, true)
    by_family = {row.family: row for row in report.moved}
    for family, (first, last) in (("traffic", LONGER), ("speed", SLOW), ("stuck", HANGS)):
        yield from _of_cause(by_family[family], first, last, requests)
    longer = pool.prompts.stretch
    assert longer is not None and pool.prompts.usual is not None
    ended = requests.filter(
        pl.col("end_seconds").is_between(*(_hours(t) * 3600 for t in (longer.start, longer.end)))
        & (pl.col("status") == "finished")
    )
    ratio = ended["prompt_tokens"].mean() / pool.prompts.usual  # type: ignore[operator]
    yield Figure("prompts, ratio", longer.ratio * 0.98, longer.ratio * 1.02, ratio)
    yield Figure("prompts, from", longer.start - _LATE, longer.start + _LATE, at(LONGER[0]))
    yield Figure("prompts, to", longer.end - _LATE, longer.end + _LATE, at(LONGER[1]))


def _of_cause(row: Moved, first: float, last: float, requests: pl.DataFrame) -> Iterator[Figure]:
    name, ended = row.family, row.end or at(99)
    yield Figure(f"{name}, began", row.start - _LATE, row.start, at(first))
    # more budget ends the queue before the prompts are short again
    over = max(at(ROLLOUT), min(at(last), ended)) if name == "traffic" else at(last)
    yield Figure(f"{name}, ended", ended - _LATE, ended, over)
    window = _hours(row.counted_from), _hours(row.counted_to)
    mine = (
        requests
        if name == "traffic"
        else requests.filter(pl.col("server") == 1 + (name == "stuck"))
    )
    yield _of(f"{name}, missed", row.missed, _within(missed, mine, *window))
    for text, known, span in (
        ("before", row.before, (window[0] - 2, window[0])),
        ("during", row.during, window),
        ("after", row.after, (window[1], window[1] + 2)),
    ):
        yield _of(f"{name}, in target {text}", known, _within(share, requests, *span))
    if name == "speed":
        yield _of("speed at equal load", row.speed, 1 / SLOW_FACTOR)
        lost = (last - first) * (1 - 1 / SLOW_FACTOR)
        yield _of("speed, GPU-hours lost", row.gpu_hours_lost, lost)
    if name == "stuck":
        yield _of("stuck, GPU-hours lost", row.gpu_hours_lost, last - first)


def _line(one: Figure) -> str:
    true = one.true[4] if isinstance(one.true, list) else one.true
    values = "".join(map(_text, (one.low, one.high, true)))
    return f"{'' if one.holds else 'OUT':4}{one.name:26}{values}"


def _text(value: Any) -> str:
    return f"{value:%a %H:%M}".rjust(14) if isinstance(value, datetime) else f"{value:14.4g}"


@pytest.mark.slow
def test_every_figure_holds_the_truth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database, requests = recorded(tmp_path)
    options = ["--db", str(database), "-c", str(tmp_path / "fleet" / "driftwatch.yaml")]
    ran = CliRunner().invoke(cli, ["report", *options, "--json"])
    assert ran.exit_code == 0, ran.output
    report = Report.model_validate(json.loads(ran.stdout))
    figures = list(_figures(report, requests))
    with capsys.disabled():
        sys.stdout.write("\n" + "\n".join(map(_line, figures)) + "\n")
    assert [one.name for one in figures if not one.holds] == []
    # a rollout that nobody wrote into the configuration is asked about
    asked = [one.what for one in report.for_you if one.kind == "question"]
    assert (
        len(asked) == 1 and "3 restarts Tue 21:30: is max_num_batched_tokens still 256?" in asked[0]
    )
