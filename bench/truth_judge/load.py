"""What a simulated server was loaded with, minute by minute: truth that no page has to show.

Taken from the scheduler itself, whatever was scraped: how many waited for room, and which limit
they met. Written beside a compact recording (``NNNN.load.parquet``), for the judge.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.fleet.generate import generate_compact
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.servers import instance_of
from driftwatch.simulate.configuration import SchedulerConfiguration

Floats = npt.NDArray[np.float64]

LOAD_SECONDS = 60.0
SAMPLE_SECONDS = 5.0  # a queue comes and goes within a minute
LOAD_SCHEMA = pl.Schema(
    {
        "instance": pl.String(),
        "time": pl.Datetime("us", "UTC"),
        "arrived_requests": pl.Int64(),  # since the row before
        "running_requests": pl.Float64(),  # mean over the minute
        "waiting_requests": pl.Float64(),  # for room, not for an adapter or a transfer; mean
        "waiting_ratio": pl.Float64(),  # share of the minute in which any waits for room
        "preemptions": pl.Int64(),  # since the row before
        "ended_requests": pl.Int64(),  # since the row before, those that clients gave up left out
        "in_ttft_requests": pl.Int64(),  # of them, with their first token within the target
        "in_tpot_requests": pl.Int64(),  # of them, with their tokens within the target
        "busy_ratio": pl.Float64(),  # share of the time in which a step ran
        # of the samples in which any waits, where there are some, or of all:
        "sequences_ratio": pl.Float64(),  # of max_num_seqs, median
        "step_tokens_ratio": pl.Float64(),  # mean tokens of a step, of max_num_batched_tokens
        "kv_cache_ratio": pl.Float64(),  # of the blocks, median; null where they never bind
    }
)


def load_rows(
    scrapes: pl.DataFrame,
    arrivals: Floats,
    ended: pl.DataFrame,
    scenario: Scenario,
    number: int,
    configuration: SchedulerConfiguration,
) -> pl.DataFrame:
    """Rows of one process in LOAD_SCHEMA, of every minute that was sampled to its end.

    Args:
        scrapes: of ``Outcome.scrapes`` at :meth:`Load.times`, from a whole minute on.
        arrivals: of the requests that were sent in that time, in seconds.
        ended: requests that ended in that time (``Outcome.requests``).
        scenario: whose targets are met or missed; without a target each request meets it.
    """
    minutes = _minutes(scrapes, configuration)
    if minutes.is_empty():
        return LOAD_SCHEMA.to_frame()
    until = minutes["end"].to_numpy()

    def at_rows(which: Floats) -> npt.NDArray[np.int64]:
        which = np.sort(which)
        return np.searchsorted(which, until) - np.searchsorted(which, until - LOAD_SECONDS)

    judged = ended.filter(pl.col("status").is_in(["finished", "timed_out", "rejected"]))
    in_ttft, in_tpot = _in_targets(judged, scenario)
    return minutes.select(
        pl.lit(instance_of(scenario, number)).alias("instance"),
        pl.Series("time", [scenario.start + timedelta(seconds=float(at)) for at in until]),
        pl.Series("arrived_requests", at_rows(arrivals)),
        "running_requests",
        "waiting_requests",
        "waiting_ratio",
        "preemptions",
        pl.Series("ended_requests", at_rows(judged["end_seconds"].to_numpy())),
        pl.Series("in_ttft_requests", at_rows(in_ttft["end_seconds"].to_numpy())),
        pl.Series("in_tpot_requests", at_rows(in_tpot["end_seconds"].to_numpy())),
        "busy_ratio",
        "sequences_ratio",
        "step_tokens_ratio",
        "kv_cache_ratio",
    ).cast(dict(LOAD_SCHEMA))  # type: ignore[arg-type]


def _minutes(scrapes: pl.DataFrame, configuration: SchedulerConfiguration) -> pl.DataFrame:
    """What grew and stood in every whole minute, with its ``end`` in seconds."""
    most = configuration.max_num_active_seqs or configuration.max_num_seqs
    samples = scrapes.select(
        end=(pl.col("time_seconds") / LOAD_SECONDS).ceil() * LOAD_SECONDS,
        running=pl.col("running"),
        waiting=pl.col("waiting_capacity"),
        kv="kv_cache_usage_ratio",
        steps=pl.col("steps_all").cast(pl.Float64).diff(),
        preemptions=pl.col("preemptions").cast(pl.Int64).diff(),
        busy=pl.col("busy_seconds").diff(),
        tokens=(pl.col("prefill_tokens_total") + pl.col("decode_seqs_total"))
        .cast(pl.Float64)
        .diff(),
    ).slice(1)
    waits = pl.col("waiting") > 0
    counted = waits | ~waits.any()
    return (
        samples.group_by("end", maintain_order=True)
        .agg(
            samples=pl.len(),
            running_requests=pl.col("running").mean(),
            waiting_requests=pl.col("waiting").mean(),
            waiting_ratio=waits.mean(),
            preemptions=pl.col("preemptions").sum(),
            busy_ratio=pl.col("busy").sum() / LOAD_SECONDS,
            sequences_ratio=pl.col("running").filter(counted).median() / most,
            step_tokens_ratio=pl.col("tokens").filter(counted).sum()
            / pl.max_horizontal(pl.col("steps").filter(counted).sum(), 1.0)
            / configuration.max_num_batched_tokens,
            kv_cache_ratio=pl.col("kv").filter(counted).median(),
        )
        .filter(pl.col("samples") == round(LOAD_SECONDS / SAMPLE_SECONDS))
    )


def _in_targets(judged: pl.DataFrame, scenario: Scenario) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Requests that met each of the two targets."""
    slo = scenario.pool.slo
    ttft = np.inf if slo is None or slo.ttft_seconds is None else slo.ttft_seconds
    tpot = np.inf if slo is None or slo.tpot_seconds is None else slo.tpot_seconds
    after = (pl.col("generated_tokens") - 1).clip(lower_bound=1)
    each = (pl.col("e2e_seconds") - pl.col("ttft_seconds")) / after
    done = judged.filter(pl.col("status") == "finished")
    return done.filter(pl.col("ttft_seconds") <= ttft), done.filter(each <= tpot)


class Load:
    """Notes the load of one server of a scenario while it is simulated."""

    def __init__(self, scenario: Scenario, number: int) -> None:
        self._scenario, self._number = scenario, number
        self._rows: list[pl.DataFrame] = []
        self._last: tuple[pl.DataFrame, Floats, pl.DataFrame] | None = None

    @property
    def rows(self) -> pl.DataFrame:
        """All of it, in LOAD_SCHEMA."""
        return pl.concat([LOAD_SCHEMA.to_frame(), *self._rows])

    def begin(self) -> None:
        """Another process begins."""
        self._last = None

    def times(self, first: float, last: float) -> Floats:
        """When the load is sampled in first <= time < last: whole minutes are among them."""
        begun = np.ceil(first / SAMPLE_SECONDS) * SAMPLE_SECONDS
        return np.arange(begun, last, SAMPLE_SECONDS)

    def note(
        self,
        samples: pl.DataFrame,
        arrivals: Floats,
        ended: pl.DataFrame,
        configuration: SchedulerConfiguration,
    ) -> None:
        """What the scheduler had to do, whether or not anybody scraped it."""
        if self._last is not None:  # the minute that the last part began
            before, arrived, over = self._last
            samples, ended = pl.concat([before, samples]), pl.concat([over, ended])
            arrivals = np.concatenate([arrived, arrivals])
        if samples.is_empty():  # a life of under five seconds so far
            return
        self._rows.append(
            load_rows(samples, arrivals, ended, self._scenario, self._number, configuration)
        )
        at = samples["time_seconds"].to_numpy()
        begun = at[-1] // LOAD_SECONDS * LOAD_SECONDS
        self._last = (
            samples.filter(pl.col("time_seconds") >= begun),
            arrivals[arrivals >= begun],
            ended.filter(pl.col("end_seconds") >= begun),
        )


def generate_with_load(scenario: Scenario, seed: int, folder: Path) -> None:
    """A compact recording with the load of each server beside it; the folder is made."""
    loads = {number: Load(scenario, number) for number in range(scenario.servers)}
    generate_compact(scenario, seed, folder, observers=loads)
    for number, load in loads.items():
        load.rows.write_parquet(folder / f"{number:04d}.load.parquet", compression="zstd")
