"""One target is one process: mark scrapes that another process answered as failed. Pure.

Behind a load balancer two servers answer at one address in turn. Their counters are unrelated: a
difference between them is no increase. A new process begins after the last scrape of the old one; a
process that was already running then is another server. It takes over the target once the old one
has not answered for
:data:`~driftwatch.minutes.continuity.MAX_GAP_SECONDS` (a name that moved to it).
"""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl

from driftwatch.collect.schema import KEY, in_order, scrape_frame
from driftwatch.minutes.continuity import (
    CLOCK_TOLERANCE_SECONDS,
    MAX_GAP_SECONDS,
    START_TIME_TOLERANCE_SECONDS,
)

ANOTHER_SERVER = "another server answers at this address"
_HELP = "scrape each server at its own address, not through a load balancer"
# When the process began, and when its counters were created, minutes later if a model is loaded. A
# scrape that lacks one of them (a failed query) is compared by the other.
_TIMES = ("process_start_time_seconds", "created_seconds")


def fail_foreign_scrapes(scrapes: pl.DataFrame, before: pl.DataFrame | None = None) -> pl.DataFrame:
    """The scrapes; those that another server answered are failed scrapes with the reason.

    ``scrapes``: scrape table, any order; ``before``: earlier scrapes of the same targets, at least
    the last usable ones.
    Returns: the rows in order; the same object where no target has two processes.
    """
    earlier = scrapes.clear() if before is None else before
    both = pl.concat(
        rows.filter("ok").select(
            *KEY, "time", *_TIMES, began=pl.coalesce(_TIMES), is_new=pl.lit(is_new)
        )
        for rows, is_new in ((earlier, False), (scrapes, True))
    ).drop_nulls("began")
    several = (
        both.group_by(KEY)
        .agg(spread=pl.col("began").max() - pl.col("began").min())
        .filter(pl.col("spread") > START_TIME_TOLERANCE_SECONDS)
        .select(KEY)
    )
    if several.is_empty():
        return scrapes
    foreign: list[dict[str, object]] = []
    rows = both.join(several, on=KEY, how="semi").sort(*KEY, "time")
    for (instance, engine), own in rows.group_by(KEY, maintain_order=True):
        for time, reason in _of_others(own):
            key = {"instance": instance, "engine": engine, "time": time}
            foreign.append({**key, "ok": False, "reason": reason})
    if not foreign:
        return scrapes
    failed = scrape_frame(foreign)
    others = scrapes.join(failed, on=[*KEY, "time"], how="anti", maintain_order="left")
    return in_order(pl.concat([others, failed]))


def _of_others(rows: pl.DataFrame) -> list[tuple[datetime, str]]:
    """When another server answered, and the reason for its row; rows of one target in order."""
    answers: list[tuple[datetime, str]] = []
    ours: tuple[float | None, ...] = (None, None)
    last = 0.0
    for time, *times, began, is_new in rows.select("time", *_TIMES, "began", "is_new").iter_rows():
        at = time.timestamp()
        both = [(a, b) for a, b in zip(ours, times, strict=True) if None not in (a, b)]
        is_same = not both or any(abs(a - b) <= START_TIME_TOLERANCE_SECONDS for a, b in both)
        is_younger = began >= last - CLOCK_TOLERANCE_SECONDS
        if is_same or is_younger or at - last > MAX_GAP_SECONDS:
            usual = ours if is_same else (None, None)
            ours = tuple(a if b is None else b for a, b in zip(usual, times, strict=True))
            last = at
        elif is_new:
            began_ours = next(a for a in ours if a is not None)
            answers.append(
                (
                    time,
                    f"{ANOTHER_SERVER}: its process began {_moment(began)}, this target's "
                    f"{_moment(began_ours)}; {_HELP}",
                )
            )
    return answers


def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
