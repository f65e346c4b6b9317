"""Learn: minutes of hours and days in, references out. The only module that fits models.

It runs at full hours, and every ten minutes for a pool without a step-time model. An hour's
result serves the next minutes, a day's result the trend over days.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta

import numpy as np
import polars as pl

from driftwatch.arrays import Indices
from driftwatch.collect.schema import KEY
from driftwatch.detect.baselines import Baselines
from driftwatch.detect.days import Means, with_day
from driftwatch.detect.lengths import WHOLE_DAY
from driftwatch.detect.references import (
    Day,
    PoolHour,
    PoolSpeed,
    Reference,
    References,
)
from driftwatch.detect.score import Scored
from driftwatch.detect.speed.grid import grid_of
from driftwatch.detect.speed.load import LENGTH_PARTS
from driftwatch.detect.speed.model import StepTimeModel, TooFewMinutes, fitted
from driftwatch.model import TargetKey

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
# Hours of its data after which a pool's own model is refitted, then never again: otherwise a slow
# loss would become its usual speed.
STAGES = (1, 2, 4, 8, 24, 48)
EARLY = timedelta(minutes=10)  # interval between fits of a pool without a model
EARLY_FOR = timedelta(hours=2)  # how long; a pool without a model by then lacks something else
MOST_TARGETS = 4  # targets of a pool whose minutes its own model is fitted to
LEAST_MINUTES = 15  # of an hour, for a median
LEAST_SCRAPED = 30  # minutes of an hour that counts as scraped

# Targets and a start → their rows of work from there up to now, with ``slower`` (Boolean).
Work = Callable[[Sequence[TargetKey], datetime], pl.DataFrame]


def next_due(after: datetime, references: References, pools: Sequence[str]) -> datetime:
    """The next time after ``after`` at which something is learnt."""
    hour = after.replace(minute=0, second=0, microsecond=0) + HOUR
    if not any(_is_early(references, pool, after) for pool in pools):
        return hour
    minute = after.minute // 10 * 10
    return min(after.replace(minute=minute, second=0, microsecond=0) + EARLY, hour)


def _is_early(references: References, pool: str, at: datetime) -> bool:
    learnt = references.find(PoolSpeed, pool)
    if learnt is None:
        return True
    return learnt[0].model is None and at - learnt[0].since < EARLY_FOR


def learn(
    scored: Scored,
    references: References,
    baselines: Baselines,
    reference: pl.DataFrame,
    work: Work,
    at: datetime,
) -> list[Reference]:
    """The new references at ``at``, the end of a minute.

    Args:
        scored: the scored minutes up to ``at``.
        reference: REFERENCE_SCHEMA, to compare lengths with.
        work: reads older minutes.
    """
    keys = scored.grid.keys
    found: list[Reference] = []
    full = at.minute == 0 and at.second == 0
    ended = (at - HOUR).astimezone(UTC).date()
    is_midnight = full and at.astimezone(UTC).hour == 0
    means = _means(reference) if is_midnight else {}
    for pool, rows in scored.grid.by_pool:
        members = [keys[row] for row in rows]
        speed = _speed(pool, members, references, baselines, work, at, full=full)
        if speed is not None:
            found.append(Reference(pool, None, at, speed))
        if not full and speed is None:
            continue
        hour = references.find(PoolHour, pool)
        days = {} if hour is None else hour[0].days
        if full:
            days = _days(days, scored, rows, keys, ended)
        if is_midnight:
            for key in members:
                document = with_day(references.days(pool, key), days[key.text], means.get(key))
                found.append(Reference(pool, key, at, document))
            days = {}
        found.append(Reference(pool, None, at, _hour(scored, rows, keys, days)))
    return found


def _speed(
    pool: str,
    members: Sequence[TargetKey],
    references: References,
    baselines: Baselines,
    work: Work,
    at: datetime,
    *,
    full: bool,
) -> PoolSpeed | None:
    """The model of the pool's own minutes if a fit is due, else None."""
    learnt = references.find(PoolSpeed, pool)
    if learnt is not None:
        before, _ = learnt
    else:
        first = work(members, at - EARLY_FOR)["end"].min()
        before = PoolSpeed(since=first if isinstance(first, datetime) else at)
    age = at - before.since
    stage = max((hours for hours in STAGES if hours <= age / HOUR + 1e-6), default=0)
    if before.model is None:
        is_due = full or age < EARLY_FOR
    else:
        is_due = full and stage > before.stage
        is_due = is_due and any(baselines.of_target(*key, pool) is None for key in members)
    if not is_due:
        return None
    result = pool_model(work, members, max(before.since - MINUTE, at - STAGES[-1] * HOUR))
    if isinstance(result, StepTimeModel):
        return PoolSpeed(model=result, since=before.since, stage=stage)
    if before.model is not None:
        return before.model_copy(update={"stage": stage})
    return PoolSpeed(missing=result.reason, since=before.since)


def pool_model(
    work: Work, members: Sequence[TargetKey], since: datetime
) -> StepTimeModel | TooFewMinutes:
    """The model of a pool's own good minutes."""
    some = list(members)[:: -(-len(members) // MOST_TARGETS)]
    rows = work(some, since)
    if rows.is_empty():
        return TooFewMinutes("no minute was scraped", 0)
    grid = grid_of(rows)
    good = grid.settled & grid["sound"]
    slow = np.zeros(good.shape, dtype=bool)
    slow[grid.target, grid.minute] = rows["slower"].fill_null(value=False).to_numpy()
    return fitted(grid, good & ~slow)


def _hour(
    scored: Scored, rows: Indices, keys: Sequence[TargetKey], days: dict[str, Day]
) -> PoolHour:
    """The pool's document of the hour."""
    verdicts = scored.verdicts
    slower, than_pool = (
        {keys[row].text: loss for row in rows if (loss := losses[row]) is not None}
        for losses in (verdicts.slower, verdicts.slower_than_pool)
    )
    return PoolHour(slower=slower, slower_than_pool=than_pool, days=days)


def _days(
    known: Mapping[str, Day],
    scored: Scored,
    rows: Indices,
    keys: Sequence[TargetKey],
    today: date,
) -> dict[str, Day]:
    """The days of a pool's targets, with the last hour added."""
    grid, days = scored.grid, dict(known)
    hour = slice(max(grid.minutes - 60, 0), grid.minutes)
    for row in rows:
        name, compared = keys[row].text, scored.compared[row]
        before = days.get(name)
        if before is None or before.day != today:
            before = Day(day=today)
        speeds = scored.verdicts.ln_speed[row, hour]
        speeds = speeds[np.isfinite(speeds)]
        has_median = compared.is_own and len(speeds) >= LEAST_MINUTES
        own = ((float(np.median(speeds)), compared.id),) if has_median else ()
        sums = (float(np.nansum(grid[part][row, hour])) for part in LENGTH_PARTS)
        days[name] = Day(
            day=today,
            speeds=before.speeds + own,
            lengths=tuple(a + b for a, b in zip(before.lengths, sums, strict=True)),
            hours=before.hours + int((grid["scrapes"][row, hour] > 0).sum() >= LEAST_SCRAPED),
            limited_minutes=before.limited_minutes + int(grid["limited"][row, hour].sum()),
        )
    return days


def _means(reference: pl.DataFrame) -> dict[TargetKey, Means]:
    """Target → mean lengths of its baseline, if it covers a whole day."""
    whole = pl.col("until") - pl.col("since") >= WHOLE_DAY
    means = ("reference_prompt_tokens_mean", "reference_generation_tokens_mean")
    rows = reference.filter(pl.col("kind") != "tuned_for", whole).select(*KEY, *means)
    return {TargetKey(*key): (prompts, answers) for *key, prompts, answers in rows.iter_rows()}
