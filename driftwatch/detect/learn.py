"""Learn: minutes of hours and days in, references out. The only module that fits models.

It runs at full hours, and every ten minutes for a pool without a step-time model. An hour's
result serves the next minutes, a day's result the trend over days.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta

import numpy as np
import polars as pl

from driftwatch.arrays import Indices
from driftwatch.collect.schema import KEY
from driftwatch.detect.baselines import Baselines
from driftwatch.detect.references import (
    Day,
    DayLengths,
    Loss,
    PoolHour,
    PoolSpeed,
    Reference,
    References,
)
from driftwatch.detect.score import Scored
from driftwatch.detect.speed.grid import grid_of
from driftwatch.detect.speed.model import StepTimeModel, TooLittle, fitted
from driftwatch.detect.speed.verdicts import Compared, keys_of
from driftwatch.detect.trend import with_day, with_lengths
from driftwatch.model import TargetKey

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
# Refit a pool's own model after so many hours of its data, then never again: otherwise a slow loss
# would become its usual speed.
STAGES = (1, 2, 4, 8, 24, 48)
EARLY = timedelta(minutes=10)  # interval between fits of a pool without a model,
EARLY_FOR = timedelta(hours=2)  # for its first hours: without one by then it lacks something else
MOST_TARGETS = 4  # of a pool: a model of its own is fitted to their minutes
LEAST_MINUTES = 15  # of an hour, for a median

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
    learnt = references.speed(pool)
    return learnt is None or (learnt[0].model is None and at - learnt[0].since < EARLY_FOR)


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
        reference: REFERENCE_SCHEMA, what lengths are compared with.
        work: reads older minutes.
    """
    keys = keys_of(scored.grid)
    found: list[Reference] = []
    full = at.minute == 0 and at.second == 0
    means = _means(reference)
    for pool, rows in scored.grid.by_pool:
        members = [keys[row] for row in rows]
        speed = _speed(pool, members, references, baselines, work, at, full=full)
        if speed is not None:
            found.append(Reference("speed", pool, None, at, speed))
        if full or speed is not None:
            hour, over = _hour(scored, rows, keys, references.hour(pool), at, full=full)
            found.append(Reference("hour", pool, None, at, hour))
            for key, day in over:
                trend = with_day(references.trend(pool, key), day)
                lengths = _lengths(references.lengths(pool, key), day, means.get(key))
                found.append(Reference("trend", pool, key, at, trend))
                found.append(Reference("lengths", pool, key, at, lengths))
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
    learnt = references.speed(pool)
    before = None if learnt is None else learnt[0]
    if before is None:
        own = work(members, at - EARLY_FOR)
        first = own["end"].min()
        before = PoolSpeed(since=first if isinstance(first, datetime) else at)
    age = int((at - before.since) / HOUR + 1e-6)
    if before.model is not None:
        stage = max((stage for stage in STAGES if stage <= age), default=0)
        if not full or stage <= before.stage:
            return None
        needed = any(baselines.of_target(*key, pool) is None for key in members)
        if not needed:
            return None
    elif not full and at - before.since >= EARLY_FOR:
        return None
    stage = max((stage for stage in STAGES if stage <= age), default=0)
    result = pool_model(work, members, max(before.since - MINUTE, at - STAGES[-1] * HOUR))
    if isinstance(result, StepTimeModel):
        return PoolSpeed(model=result, since=before.since, stage=stage)
    if before.model is not None:
        return before.model_copy(update={"stage": stage})
    return PoolSpeed(missing=result.reason, since=before.since)


def pool_model(
    work: Work, members: Sequence[TargetKey], since: datetime
) -> StepTimeModel | TooLittle:
    """The model of a pool's own good minutes."""
    some = list(members)[:: -(-len(members) // MOST_TARGETS)]
    rows = work(some, since)
    if rows.is_empty():
        return TooLittle("no minute was seen", 0)
    grid = grid_of(rows)
    good = grid.settled & grid.sound
    slow = np.zeros(good.shape, dtype=bool)
    slow[grid.target, grid.minute] = rows["slower"].fill_null(value=False).to_numpy()
    return fitted(grid, good & ~slow, shared=len(members) > 1)


def _hour(
    scored: Scored,
    rows: Indices,
    keys: Sequence[TargetKey],
    before: tuple[PoolHour, datetime] | None,
    at: datetime,
    *,
    full: bool,
) -> tuple[PoolHour, list[tuple[TargetKey, Day]]]:
    """The pool's document of the hour, and the days that ended with it."""
    verdicts = scored.verdicts
    slower, than_pool = (
        {keys[row].text: losses[row] for row in rows if losses[row] is not None}
        for losses in (verdicts.slower, verdicts.slower_than_pool)
    )
    days = dict(before[0].days) if before is not None else {}
    over: list[tuple[TargetKey, Day]] = []
    if full:
        ended = (at - HOUR).astimezone(UTC).date()
        for row, day in _days(scored, rows, ended):
            key = keys[row]
            known = days.get(key.text)
            if known is not None and known.day == ended:
                day = _added(known, day)
            if at.astimezone(UTC).hour == 0:
                over.append((key, day))
                days.pop(key.text, None)
            else:
                days[key.text] = day
    hour = PoolHour(slower=_losses(slower), slower_than_pool=_losses(than_pool), days=days)
    return hour, over


def _losses(found: dict[str, Loss | None]) -> dict[str, Loss]:
    return {name: loss for name, loss in found.items() if loss is not None}


def _days(scored: Scored, rows: Indices, day: date) -> Iterator[tuple[int, Day]]:
    """Target → its day as the last hour alone gives it."""
    grid = scored.grid
    hour = slice(max(grid.minutes - 60, 0), grid.minutes)
    for row in rows:
        one: Compared = scored.compared[row]
        speeds = scored.verdicts.ln_speed[row, hour]
        known = speeds[np.isfinite(speeds)]
        has_median = one.is_own and len(known) >= LEAST_MINUTES
        yield (
            int(row),
            Day(
                day=day,
                speeds=(float(np.median(known)),) if has_median else (),
                compared_with=one.id if has_median else "",
                lengths=tuple(float(of[row, hour].sum()) for of in grid.lengths),  # type: ignore[arg-type]
                hours=int((grid.scrapes[row, hour] > 0).sum() >= 30),
                limited_minutes=int(grid.limited[row, hour].sum()),
            ),
        )


def _added(known: Day, hour: Day) -> Day:
    return Day(
        day=hour.day,
        # speeds against two models cannot be mixed: the later model counts
        speeds=(*known.speeds, *hour.speeds)
        if hour.compared_with in ("", known.compared_with) or not known.compared_with
        else hour.speeds,
        compared_with=hour.compared_with or known.compared_with,
        lengths=tuple(a + b for a, b in zip(known.lengths, hour.lengths, strict=True)),  # type: ignore[arg-type]
        hours=known.hours + hour.hours,
        limited_minutes=known.limited_minutes + hour.limited_minutes,
    )


Means = tuple[float | None, float | None, bool]


def _means(reference: pl.DataFrame) -> dict[TargetKey, Means]:
    """Target → mean lengths of its baseline, and whether it covers a whole day."""
    whole = (pl.col("until") - pl.col("since") >= pl.duration(hours=20)).fill_null(value=False)
    means = ("reference_prompt_tokens_mean", "reference_generation_tokens_mean")
    rows = reference.filter(pl.col("kind") != "tuned_for")
    rows = rows.select(*KEY, *means, whole.alias("whole"))
    return {TargetKey(instance, engine): of for instance, engine, *of in rows.iter_rows()}  # type: ignore[misc]


def _lengths(before: DayLengths, day: Day, means: Means | None) -> DayLengths:
    if means is None:
        return DayLengths()
    prompts, answers, whole = means
    return with_lengths(before, day, (prompts, answers), whole=whole)
