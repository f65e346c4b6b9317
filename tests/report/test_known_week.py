"""Every figure of the report lies within its interval of what the simulator logged."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from driftwatch.arrays import Floats
from driftwatch.cli.main import cli
from driftwatch.fleet.generate import generate_compact
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.truth import write_truth
from driftwatch.numbers import times
from driftwatch.report.report import Moved, Range, Report

TTFT_SECONDS, TPOT_SECONDS = 1.0, 0.1
SLOW_FACTOR, PROMPT_FACTOR = 1.25, 2.3
HUNG = 2  # the server that hangs
# hours from the start
SLOW, LONGER, ROLLOUT, HANGS = (5.0, 6.5), (8.0, 11.0), 9.5, (13.0, 13.75)
SCENARIO = Scenario.model_validate(
    {
        "name": "known-week",
        "title": "a slow server, longer prompts, a rollout and a hang",
        "duration": "16h",
        "start": "2026-11-17T12:00:00Z",
        "scrape": {"interval": "30s"},
        "pool": {
            "name": "rag-8b",
            "replicas": 3,
            "slo": {"ttft_seconds": TTFT_SECONDS, "tpot_seconds": TPOT_SECONDS},
            "serving": {"max_num_batched_tokens": 256},
        },
        "traffic": {
            "requests_per_second": 17,
            "wander_ratio": 0.35,
            "timeout": "60s",
            "changes": [{"at": "8h", "until": "11h", "prompt_factor": PROMPT_FACTOR}],
        },
        "faults": [
            {
                "kind": "slowdown",
                "at": "5h",
                "until": "6h30m",
                "replicas": [1],
                "factor": SLOW_FACTOR,
            },
            {
                "kind": "rollout",
                "at": "9h30m",
                "every": "3m",
                "down": "40s",
                "serving": {"max_num_batched_tokens": 1024},
            },
            {"kind": "wedge", "at": "13h", "until": "13h45m", "replicas": [HUNG]},
        ],
        "truth": {"effects": []},
    }
)
START = SCENARIO.start
# a server is seen so long before or after the edge of a window
_SCRAPE = 30 / 3600


@dataclass
class Log:
    """What the simulator tells of the requests of one server, and no scrape does."""

    ended: list[pl.DataFrame]

    def begin(self) -> None: ...

    def times(self, first: float, last: float) -> Floats:
        return np.empty(0)

    def note(self, samples: Any, arrivals: Any, ended: pl.DataFrame, configuration: Any) -> None:
        self.ended.append(ended)


def recorded(folder: Path) -> tuple[Path, pl.DataFrame]:
    """The replayed database, and a row a request: server, ends of TTFT and TPOT, late or not."""
    logs = {number: Log([]) for number in range(SCENARIO.servers)}
    generate_compact(SCENARIO, 7, folder / "fleet", observers=logs)
    write_truth(SCENARIO, 7, folder / "fleet")
    requests = pl.concat(
        pl.concat(log.ended).with_columns(server=pl.lit(number)) for number, log in logs.items()
    )
    baseline = f"{at(0.2):%Y-%m-%dT%H:%M:%SZ}..{at(4):%Y-%m-%dT%H:%M:%SZ}"
    ran = CliRunner().invoke(
        cli,
        [
            *("replay", str(folder / "fleet"), "--db", str(folder / "week.db")),
            *("--baseline", baseline, "-c", str(folder / "fleet" / "driftwatch.yaml")),
        ],
    )
    assert ran.exit_code == 0, (ran.output, ran.exception)
    steps = pl.col("generated_tokens") - 1
    # vLLM's time per output token: of an answer of one token it is 0
    tpot = (pl.col("end_seconds") - pl.col("first_token_seconds")) / steps.clip(1)
    hung = [hours * 3600 for hours in (HANGS[0], HANGS[1] + 2 * _SCRAPE)]
    no_answer = (
        (pl.col("status") == "timed_out")
        & (pl.col("server") == HUNG)
        & pl.col("end_seconds").is_between(*hung)
    )
    late_first = pl.col("ttft_seconds") > TTFT_SECONDS
    late_tokens = (pl.col("status") == "finished") & (tpot > TPOT_SECONDS)
    return folder / "week.db", requests.with_columns(
        no_answer=no_answer,
        is_late=late_first.fill_null(value=False) | late_tokens | no_answer,
        # when it is counted: with its first token, or where a hang left it without an answer
        at=pl.when(no_answer).then("end_seconds").otherwise("first_token_seconds"),
    )


def at(hours: float) -> datetime:
    """A time of the scenario."""
    return START + timedelta(hours=hours)


def missed(requests: pl.DataFrame, start: float, end: float) -> float:
    """Requests over a target, or without an answer in a hang, in hours [start, end)."""
    return float(_counted(requests, start, end)["is_late"].sum())


def share(requests: pl.DataFrame, start: float, end: float) -> float:
    """Share of them in target."""
    return 1 - float(_counted(requests, start, end).select(pl.col("is_late").mean()).item())


def unanswered(requests: pl.DataFrame, start: float, end: float) -> float:
    """Those without an answer."""
    return float(_counted(requests, start, end)["no_answer"].sum())


def _counted(requests: pl.DataFrame, start: float, end: float) -> pl.DataFrame:
    return requests.filter(pl.col("at").is_between(start * 3600, end * 3600, closed="left"))


# A rule's windows are ten minutes long and its ``for`` as long: it begins and ends so late.
_LATE = timedelta(minutes=25)
# A burst just before a drift belongs to its run of full scrapes.
_EARLY = timedelta(minutes=2)


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
    by_family = {row.family: row for row in reversed(report.moved)}  # of two the costlier
    for family, (first, last) in (("traffic", LONGER), ("speed", SLOW), ("stuck", HANGS)):
        yield from _of_cause(by_family[family], first, last, requests)
    (longer,) = pool.prompts.stretches
    assert pool.prompts.usual is not None
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
    yield Figure(f"{name}, began", row.start - _LATE, row.start + _EARLY, at(first))
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
    yield _of(f"{name}, in target", row.in_target, _within(share, requests, *window))
    if name == "speed":
        lost = (last - first) * (1 - 1 / SLOW_FACTOR)
        yield _of("speed, GPU-hours lost", row.gpu_hours_lost, lost)
    if name == "stuck":
        yield _of("stuck, GPU-hours lost", row.gpu_hours_lost, last - first)
        yield _of("stuck, without an answer", row.unanswered, _within(unanswered, mine, *window))


def _sums_nest(report: Report) -> None:
    """What a cause missed is within its days, and these within the week."""
    (pool,) = report.pools
    assert pool.hours is not None and pool.missed.low is not None and pool.missed.high is not None
    hours = [pool.hours.missed_low, pool.hours.missed_high]
    low, high = ([sum(v or 0.0 for v in ends[d : d + 24]) for d in (24, 48)] for ends in hours)
    assert sum(low) == pytest.approx(pool.missed.low)
    assert sum(high) == pytest.approx(pool.missed.high)
    for row in report.moved:
        assert row.missed.low is not None and row.missed.high is not None
        assert row.missed.low <= sum(low) and row.missed.high <= sum(high)


@pytest.mark.slow
def test_every_figure_holds_the_truth(tmp_path: Path) -> None:
    database, requests = recorded(tmp_path)
    options = ["--db", str(database), "-c", str(tmp_path / "fleet" / "driftwatch.yaml")]
    ran = CliRunner().invoke(cli, ["report", *options, "--json"])
    assert ran.exit_code == 0, ran.output
    report = Report.model_validate(json.loads(ran.stdout))
    figures = list(_figures(report, requests))
    _sums_nest(report)
    assert [one for one in figures if not one.holds] == []
    by_family = {row.family: row for row in reversed(report.moved)}  # of two the costlier
    (longer,) = report.pools[0].prompts.stretches
    assert by_family["traffic"].what == f"prompts {times(longer.ratio)}", "one size of one drift"
    assert by_family["traffic"].result.startswith("worked")
    assert report.pools[0].generations.stretches == ()
    # a rollout that nobody wrote into the configuration: the report asks what runs
    (wrong,) = [one.what for one in report.for_you]
    proven = re.search(r"says 256, and the servers run at least (\d+)", wrong)
    assert proven is not None and 512 < int(proven[1]) <= 1024, report.for_you
