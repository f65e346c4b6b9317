"""Values that each minute inherits from the minute before, also across ticks."""

from __future__ import annotations

import numpy as np
import polars as pl

from driftwatch.arrays import Floats
from driftwatch.collect.schema import KEY
from driftwatch.diagnose.plateau import PLATEAU_MIN_SCRAPES
from driftwatch.minutes.scheduler import BELIEVED_SECONDS

# While its peers get five requests each, a target gets none by chance once in 150 times.
SURELY_CAME_REQUESTS = 5.0
# iteration_tokens books a whole prompt at its first token. With this many decodes a step every step
# is observed, so the mean stays below the budget in force.
DECODES_A_STEP = 4.0
# GPU_UTIL is 1 for a kernel that spins, 0 for an engine that waits for a request.
SPINS_RATIO = 0.5

CARRIED = (
    # the cap that running requests showed, until a restart, a knob change, or more running requests
    "inferred_max_num_seqs",
    # most requests that ran at once since a restart or knob change
    "running_requests_max_of_process",
    # scrapes since then in which requests waited while that many ran
    "scrapes_at_most_requests",
    # the most tokens a step of a minute since then
    "step_tokens_max_of_process",
    # unix seconds: where the clock of ``seconds_since_last_token`` started
    "clock_started_seconds",
    # unix seconds: the last scrape with a longer queue than the one before
    "queue_grew_seconds",
    # minutes in a row in which the source answered without listing the target
    "unlisted_minutes",
    # unix seconds: the last scrape
    "last_scrape_seconds",
)


def carried_values(
    new: pl.DataFrame, caps: pl.Series, at_most: pl.Series, last: pl.DataFrame
) -> pl.DataFrame:
    """:data:`CARRIED` of new minutes, row for row.

    ``new``: minute rows, the same minutes of every target, by target and end; ``caps``: their
    :func:`driftwatch.diagnose.plateau.shown_caps`; ``at_most``: their
    :func:`driftwatch.diagnose.plateau.scrapes_at_most`; ``last``: instance, engine and
    :data:`CARRIED` of the minute before the first, for targets that have one.
    """
    keys = new.select(KEY).unique(maintain_order=True)
    before = keys.join(last, on=KEY, how="left", maintain_order="left")
    shape = (len(keys), len(new) // max(len(keys), 1))
    cap, most, held, step, clock, grew, unlisted, scraped = (_numbers(before, n) for n in CARRIED)
    unlisted = np.nan_to_num(unlisted)
    flags = (_numbers(new, name) for name in ("restarted", "configuration_changed"))
    changes = np.logical_or(*(flag == 1.0 for flag in flags)).reshape(shape)
    running = _numbers(new, "running_requests_max").reshape(shape)
    shown, full = (one.to_numpy().reshape(shape) for one in (caps, at_most))
    steps = _tokens_a_step(new).reshape(shape)
    newest, looks = _newest(new).reshape(shape), _numbers(new, "looks").reshape(shape)
    alive = newest - _numbers(new, "alive_age_seconds").reshape(shape)
    growing = newest - _numbers(new, "queue_grew_age_seconds").reshape(shape)
    every = np.empty((len(CARRIED), *shape))
    for minute in range(shape[1]):
        here = changes[:, minute]
        # the minute of a change has requests and steps of both sides
        now, so_far = running[:, minute], most
        most = np.where(here, np.nan, np.fmax(so_far, now))
        held = np.where(here | (now > so_far), 0.0, np.nan_to_num(held))
        held = held + np.where(now == most, full[:, minute], 0.0)
        step = np.where(here, np.nan, np.fmax(step, steps[:, minute]))
        cap = np.where(here, np.nan, cap)
        cap = np.where(shown[:, minute] >= most, shown[:, minute], cap)
        cap = np.where(held >= PLATEAU_MIN_SCRAPES, most, cap)
        cap = np.where(cap >= most, cap, np.where(np.isnan(most), cap, np.nan))
        clock = np.fmax(clock, alive[:, minute])
        # without any sign of work the clock starts at the first scrape
        clock = np.where(np.isnan(clock), newest[:, minute], clock)
        grew = np.fmax(grew, growing[:, minute])
        looked = looks[:, minute]
        unlisted = np.where(looked > 0, 0.0, np.where(looked == 0, unlisted + 1.0, unlisted))
        scraped = np.fmax(scraped, newest[:, minute])
        for number, values in enumerate((cap, most, held, step, clock, grew, unlisted, scraped)):
            every[number, :, minute] = values
    return pl.DataFrame(
        every.reshape(len(CARRIED), -1).T.copy(), schema=list(CARRIED), nan_to_null=True
    )


def _tokens_a_step(new: pl.DataFrame) -> Floats:
    """Mean tokens of a minute's steps; NaN where steps without a decode may be missing."""
    steps, decodes = pl.col("iteration_tokens_count"), pl.col("itl_seconds_count")
    counted = (steps > 0) & (decodes >= DECODES_A_STEP * steps)
    means = new.select(tokens=pl.when(counted).then(pl.col("iteration_tokens_sum") / steps))
    return _numbers(means, "tokens")


def since_last_token(new: pl.DataFrame, carried: pl.DataFrame) -> pl.Series:
    """Seconds without any work while requests are present, at each minute's last scrape.

    NULL without a scrape, or where the presence of requests is unknown.
    """
    elapsed = _newest(new) - _numbers(carried, "clock_started_seconds")
    known = pl.Series(np.maximum(elapsed, 0.0).round(3), nan_to_null=True)
    return new.select(
        pl.when(pl.col("presence_known").fill_null(False)).then(known).alias("elapsed")
    ).to_series()


def gauges_live(
    new: pl.DataFrame, carried: pl.DataFrame, silent: pl.Series, pools: pl.DataFrame
) -> pl.Series:
    """Whether the requests that the gauges show exist; NULL where ``silent`` is.

    vLLM sets its gauges in a step. An engine whose requests were all cancelled runs no step and may
    show them forever (vllm#29928), and so does an engine that hangs. Only three signs show a hang:
    requests that came since the last work, requests that peers got, and a GPU that computes.

    ``silent``: from :func:`since_last_token`; ``pools``: instance, engine, pool.
    """
    pool = new.select(KEY).join(pools, on=KEY, how="left", maintain_order="left")["pool"]
    begun, group = pl.col("ttft_seconds_count"), ["pool", "end"]
    peers = begun.count().over(group) - begun.is_not_null()
    of_peers = begun.sum().over(group) - begun.fill_null(0.0)
    came = pl.col("queue_grew_seconds") > pl.col("clock_started_seconds")
    # at its peers' rate of this minute requests would have come here too
    came |= (pl.col("pool").is_not_null() & (peers > 0)) & (
        of_peers * pl.col("silent") >= SURELY_CAME_REQUESTS * 60.0 * peers
    )
    spins = pl.col("gpu_utilization_ratio") >= SPINS_RATIO
    proven = (pl.col("silent") <= BELIEVED_SECONDS) | came.fill_null(False) | spins.fill_null(False)
    of = new.select("end", "ttft_seconds_count", "gpu_utilization_ratio").with_columns(
        pool,
        silent.alias("silent"),
        *carried.select("queue_grew_seconds", "clock_started_seconds").get_columns(),
    )
    return of.select(pl.when(pl.col("silent").is_not_null()).then(proven).alias("live")).to_series()


def _newest(new: pl.DataFrame) -> Floats:
    """Unix seconds of each minute's last usable scrape; NaN without one."""
    ends = new["end"].dt.epoch("us").to_numpy() / 1e6
    newest: Floats = ends - _numbers(new, "last_scrape_age_seconds")
    return newest


def _numbers(frame: pl.DataFrame, column: str) -> Floats:
    numbers: Floats = frame[column].cast(pl.Float64).to_numpy()
    return numbers
