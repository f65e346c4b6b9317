"""When a rule's condition began: a rule fires only after some minutes of it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from statistics import median
from typing import Any

import polars as pl

from driftwatch.collect.schema import KEY
from driftwatch.detect.speed.like_work import WINDOW
from driftwatch.minutes.engine import STUCK_SECONDS
from driftwatch.model import TargetKey
from driftwatch.pipeline.minutes import PastMinutes

# A rule's longest window is 20 min; its condition may have begun an hour before that.
LOOK_BACK = timedelta(minutes=80)
_MINUTE = timedelta(minutes=1)
# Minutes on a scale from the normal level (0) to the level at which the rule fired (1). A step
# passes half-way in its minute. The foot of a ramp comes earlier: twice the usual deviation of the
# first half of the minutes, within these bounds.
_HALF_WAY, _NEAREST, _FARTHEST = 0.5, 0.15, 0.25
_RAMP_MINUTES = 20
_LEAST, _MOST = -1.0, 2.0  # on that scale: limits the weight of one outlier
_SPEED_LATE = WINDOW // 2 - 1  # minutes: a median moves when a third to half of its minutes did
_LEVEL_MINUTES = 5  # the level at which the rule fired is the median of the last five minutes,
# or of half of them if that is fewer
_FEWEST_MINUTES = 6


def _mean_length(stem: str) -> pl.Expr:
    return pl.col(f"{stem}_tokens_sum").sum() / pl.col(f"{stem}_tokens_count").sum()


def _share(part: str, whole: str) -> pl.Expr:
    return pl.col(part).sum() / pl.col(whole).sum()


_LENGTHS = {"lengths_moved", "phase_mix"}
# Columns of a rule; the measure of a minute, over the servers concerned; its normal level: an
# evidence column or a number, None = the lower quartile of the minutes. The first measure that
# moved counts.
_MEASURES: tuple[tuple[set[str], pl.Expr, str | float | None], ...] = (
    ({"slower_at_equal_load", "slower"}, pl.col("speed_at_equal_load_ratio").mean(), 1.0),
    ({"slower_than_pool"}, pl.col("speed_against_pool_ratio").mean(), 1.0),
    *(
        (
            {f"{stem}_tokens_drift", f"{stem}_tokens_mean_ratio", *_LENGTHS},
            _mean_length(stem),
            f"reference_{stem}_tokens_mean",
        )
        for stem in ("prompt", "generation")
    ),
    (
        {"limit_full", "limit_binding_share_10m_ratio"},
        pl.col("limit_binding_share_10m_ratio").mean(),
        None,
    ),
    (
        {"requests_deferred", "waiting_deferred_share_10m_ratio"},
        pl.col("waiting_deferred_share_10m_ratio").mean(),
        None,
    ),
    (
        {"batch_assembly_wait_10m_seconds", "requests_wait"},
        _share("queue_seconds_sum", "queue_seconds_count"),
        "reference_batch_assembly_wait_seconds",
    ),
    (
        {"rejected_requests_ratio", "rejected_requests_per_second"},
        pl.col("rejected_requests_total").sum() / pl.col("duration_seconds").sum(),
        0.0,
    ),
    (
        {"given_up_10m_low_ratio"},
        _share("given_up_requests", "ttft_seconds_count"),
        "reference_given_up_ratio",
    ),
    (
        {"drafts_rejected"},
        _share("spec_decode_accepted_tokens_total", "spec_decode_draft_tokens_total"),
        "reference_spec_decode_acceptance_ratio",
    ),
    (
        {"prefix_hits_lost"},
        _share("prefix_cache_hits_total", "prefix_cache_queries_total"),
        "reference_prefix_cache_hit_ratio",
    ),
)
COLUMNS = tuple(
    dict.fromkeys(
        name
        for _, measure, _ in _MEASURES
        for name in (
            *(*KEY, "end", "release_changed", "seconds_since_last_token"),
            *measure.meta.root_names(),
        )
    )
)


def condition_onset(
    columns: Collection[str],
    keys: Collection[TargetKey],
    at: datetime,
    evidence: Mapping[str, Any],
    past: PastMinutes,
) -> datetime | None:
    """When the rule's measure left its normal level; None where the minutes do not show it.

    ``columns``: of the rule; ``keys``: the servers concerned; ``at``: the minute in which it fired;
    ``evidence``: of the page, with the baseline's levels (``reference_*``).
    """
    measures = [(by, normal) for names, by, normal in _MEASURES if not names.isdisjoint(columns)]
    if not measures:
        return None
    minutes = past.rows(keys, at - LOOK_BACK, at, COLUMNS).sort("end")
    # what filled a limit before a hang is not what fills it after it
    hung = pl.col("end").filter(pl.col("seconds_since_last_token") >= STUCK_SECONDS)
    minutes = minutes.filter((pl.col("end") > hung.max().over(KEY)).fill_null(value=True))
    each = [*_onsets(measures, minutes, evidence)]
    first = None if minutes.is_empty() else minutes["end"][0] - _MINUTE
    # a length that moved long before did not fill the limit now
    return next((one for one in each if one != first), first if each else None)


def _onsets(
    measures: Sequence[tuple[pl.Expr, str | float | None]],
    minutes: pl.DataFrame,
    evidence: Mapping[str, Any],
) -> Iterator[datetime]:
    for measure, of in measures:
        of_minute = minutes.group_by("end", maintain_order=True).agg(value=measure)
        known = of_minute.filter(pl.col("value").is_finite())
        normal = evidence.get(of) if isinstance(of, str) else of
        values: list[float] = known["value"].to_list()
        if of is None and values:
            normal = sorted(values)[len(values) // 4]
        is_speed = any("speed" in name for name in measure.meta.root_names())
        # a speed is a median of minutes already, and few of them may be slow
        level = 1 if is_speed else _LEVEL_MINUTES
        if normal is not None and (left := change_point(values, normal, level)) is not None:
            if not is_speed:
                yield known["end"][left] - _MINUTE
                continue
            start = known["end"][max(0, left - _SPEED_LATE)]
            # the speed is unknown for minutes after a start: a slower release is slow from there
            changed = minutes.filter("release_changed", pl.col("end") > start)["end"]
            yield (changed[-1] if len(changed) else start) - _MINUTE


def change_point(
    values: Sequence[float], normal: float, level_minutes: int = _LEVEL_MINUTES
) -> int | None:
    """Index of the first value that left a level for good.

    There the sum of values minus a bound is lowest (Page's cumulative sum, Biometrika 41, 1954).

    Returns:
        None with too few values, or where the last ones are at the level.

    >>> change_point([1.0] * 20 + [2.0] * 6, normal=1.0)
    20
    """
    if len(values) < _FEWEST_MINUTES:
        return None
    shift = median(values[-min(level_minutes, len(values) // 2) :]) - normal
    if abs(shift) < 1e-9:
        return None
    way = [min(max((value - normal) / shift, _LEAST), _MOST) for value in values]
    step = _lowest_sum(way, _HALF_WAY)
    usual = median(abs(one) for one in way[: len(way) // 2])
    foot = min(max(2 * usual, _NEAREST), _FARTHEST)
    first = max(0, step - _RAMP_MINUTES)
    place = first + _lowest_sum(way[first : step + 1], foot)
    return place if place < len(values) else None


def _lowest_sum(way: Sequence[float], bound: float) -> int:
    """After how many values the sum of the values minus a bound is lowest."""
    sums = [0.0, *accumulate(one - bound for one in way)]
    return min(range(len(sums)), key=lambda place: (sums[place], -place))
