"""Learn from a server's days: a slow loss of speed, lengths that moved for good, and usual values
without an accepted baseline.

A day's speed is the median of its hours' medians of ln r; all days are compared with one model. The
slope is Theil and Sen's (Sen 1968) with its interval, the test Kendall's (Mann 1945), both scipy's.

Usual values exist for figures that no daily rhythm moves by half: tokens of a decode step, prefix
hits and given-up requests. Each is the median of up to seven days, so one bad day does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from statistics import median
from typing import Any

import numpy as np
import polars as pl

from driftwatch.collect.schema import KEY
from driftwatch.detect.reference import MEASURED, combined
from driftwatch.detect.references import MEASURES, Day, Reference, References, TargetDays
from driftwatch.model import TargetKey

KEPT_DAYS, SPAN_DAYS = 28, 14
LEAST_DAYS, LEAST_HOURS = 7, 4  # of a day, with a known speed
LEAST_CHANGE = 0.03  # over SPAN_DAYS
# Seven days that wander by 1 % each easily give a slope of 3 %: few days must agree better.
MOST_P_VALUE, MOST_P_VALUE_EARLY, EARLY_DAYS = 0.02, 0.01, 14
# A stale tune: on RETUNE_DAYS days in a row a mean length is this far from the baseline's, and a
# batch limit holds requests back. Without the limit 5 of 29 pools of changing clients got a ticket.
RETUNE_RATIO, RETUNE_DAYS, RETUNE_HOURS, RETUNE_REQUESTS = 1.3, 2, 20, 100
RETUNE_LIMITED_MINUTES = 10
USUAL_DAYS = 7
LONGEST_ABSENCE = timedelta(days=7)  # a server that returns later begins anew
OLDEST = LONGEST_ABSENCE + timedelta(days=USUAL_DAYS)  # older days do not count as usual
LEAST_SECONDS = 12 * 3600.0  # of a day that were scraped

# Mean prompt and mean generation of a baseline.
Means = tuple[float | None, float | None]


def with_day(days: TargetDays, day: Day, means: Means | None) -> TargetDays:
    """The days with one more complete day.

    ``means``: of a baseline that covers a whole day; None = there is none.
    """
    return days.model_copy(update=_speeds(days, day) | _lengths(days, day, means))


def _speeds(days: TargetDays, day: Day) -> dict[str, Any]:
    """The medians of days with one more, and the slope of those against the same model."""
    kept = [one for one in days.speeds if one[0] < day.day]
    # speeds against two models cannot be mixed: the later model counts
    own = [speed for speed, model in day.speeds if model == day.speeds[-1][1]]
    if len(own) >= LEAST_HOURS:
        kept.append((day.day, median(own), day.speeds[-1][1]))
    kept = kept[-KEPT_DAYS:]
    alike = [(at, value) for at, value, model in kept if model == kept[-1][2]]
    slope, upper, creeps = _slope(alike) if len(alike) >= LEAST_DAYS else (None,) * 3
    return {
        "speeds": tuple(kept),
        "speed_slope_14d_ratio": slope,
        "speed_slope_14d_upper_ratio": upper,
        "latency_creeps": creeps,
    }


def _slope(days: Sequence[tuple[date, float]]) -> tuple[float, float, bool]:
    """Slope over SPAN_DAYS with the upper end of its interval, and whether it is a loss."""
    at = np.array([day.toordinal() for day, _ in days], dtype=np.float64)
    values = np.array([value for _, value in days])
    from scipy.stats import kendalltau, theilslopes  # loaded where it is needed

    slope, _, _, upper = (float(SPAN_DAYS * x) for x in theilslopes(values, at, 0.95))
    p_value = float(kendalltau(at, values).pvalue)
    most = MOST_P_VALUE if len(days) >= EARLY_DAYS else MOST_P_VALUE_EARLY
    creeps = upper < 0 and slope <= -LEAST_CHANGE and p_value <= most
    return slope, upper, creeps


def _lengths(days: TargetDays, day: Day, means: Means | None) -> dict[str, Any]:
    """The lengths of a complete day against the means of the baseline."""
    ratios: list[float | None] = []
    sums, counts = day.lengths[::2], day.lengths[1::2]
    for mean, total, count in zip(means or (None, None), sums, counts, strict=True):
        known = mean and count >= RETUNE_REQUESTS and day.hours >= RETUNE_HOURS
        ratios.append(total / count / mean if known and mean else None)
    seen = [ratio for ratio in ratios if ratio]
    moved = any(not 1 / RETUNE_RATIO < ratio < RETUNE_RATIO for ratio in seen)
    costs = day.limited_minutes >= RETUNE_LIMITED_MINUTES
    in_a_row = days.moved_days + 1 if moved and costs else 0
    return {
        "prompt_tokens_day_ratio": ratios[0],
        "generation_tokens_day_ratio": ratios[1],
        "baseline_lengths_moved": in_a_row >= RETUNE_DAYS if seen else None,
        "moved_days": in_a_row,
    }


def day_before(midnight: datetime) -> tuple[datetime, datetime]:
    """The 24 hours that are learnt at a midnight.

    They end an hour before it: the store has all of them, however many minutes a tick covers.
    """
    return midnight - timedelta(hours=25), midnight - timedelta(hours=1)


def is_due(at: datetime) -> bool:
    """Whether a day is learnt at this end of a minute."""
    utc = at.astimezone(UTC)
    return utc.hour == utc.minute == 0


def learn_usual(
    minutes: pl.DataFrame, references: References, midnight: datetime
) -> list[Reference]:
    """The last days of each target with the measures of one more day.

    ``minutes``: MINUTE_SCHEMA without histograms, those of :func:`day_before`; minutes or longer.
    """
    day = (midnight.astimezone(UTC) - timedelta(hours=12)).date()
    scraped = minutes.filter(pl.col("scrapes") > 0)
    rows = scraped.group_by(*KEY, pl.col("pool").fill_null(""), maintain_order=True).agg(
        **{name: MEASURED[name] for name in MEASURES}, observed=pl.col("duration_seconds").sum()
    )
    found = []
    for instance, engine, pool, *values, observed in rows.iter_rows():
        if observed < LEAST_SECONDS:
            continue
        key = TargetKey(instance, engine)
        before = references.days(pool, key)
        known = [one for one in before.measures if one[0] < day]
        measures = (*known, (day, tuple(values)))[-USUAL_DAYS:]
        document = before.model_copy(update={"measures": measures})
        found.append(Reference(pool, key, midnight, document))
    return found


def with_usual(
    measured: pl.DataFrame, declared: pl.DataFrame, references: References, before: date
) -> pl.DataFrame:
    """REFERENCE_SCHEMA: the ``measured`` rows; other targets get the medians of their own days.

    ``declared``: rows of ``tuned_for``; ``before``: days before this one count.
    """
    counts = pl.col("day").is_between(before - OLDEST, before, closed="left")
    days = references.measured_days.filter(counts)
    own = days.group_by(KEY, maintain_order=True).agg(
        pl.col(MEASURES).median().name.prefix("reference_")
    )
    return combined(measured, declared.update(own, on=KEY, how="full"))
