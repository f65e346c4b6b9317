"""RESULT: whether what was done worked, by what was measured before and after it. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

import polars as pl

from driftwatch.incidents.incident import Incident
from driftwatch.model import Slo
from driftwatch.numbers import duration, percent_range, times
from driftwatch.report.cells import CELL
from driftwatch.report.costs import between, in_target, of_pool, wander
from driftwatch.report.incidents import end_of, keys_of
from driftwatch.report.material import Material
from driftwatch.report.report import Range, Restarts
from driftwatch.verify.figures import IN_TARGET
from driftwatch.verify.verification import Verification

NOT_JUDGED = "cannot be judged"
BESIDE = timedelta(hours=2)
_LATER = timedelta(hours=1)  # a restart so long after an incident is what somebody did about it
_RECOVERED = 0.95  # of the usual speed
_LAST_CELLS = 36  # six hours: a speed of ten minutes wanders
_ALIKE = 1.25  # loads that differ by less are alike
_LEAST_CELLS = 3
_LOAD = ("requests", "prompts")


def restarts_of(
    material: Material, incidents: Sequence[Incident], first: datetime
) -> Restarts | None:
    """Restarts of their servers; ``first``: their first missed request. None: there was none."""
    keys = tuple({key: None for one in incidents for key in keys_of(one)})
    ends = [end_of(one, material) or material.until for one in incidents]
    mine = of_pool(material, incidents[0].pool, keys)
    after = between(mine, min(one.started_at for one in incidents), max(ends) + _LATER)
    again = after.filter(pl.col("restarted").fill_null(value=False))
    if again.is_empty():
        return None
    begins = [end - CELL for end in again["end"].sort()]
    cells, done = of_pool(material, incidents[0].pool), begins[-1] + CELL
    before, since = between(cells, first, begins[0]), between(cells, done, done + BESIDE)
    alike, other = _alike(before, since)
    return Restarts(
        count=again.n_unique(["instance", "engine"]),
        first=begins[0],
        last=begins[-1],
        before=in_target(material, before),
        after=in_target(material, alike),
        other_load=other,
    )


def _alike(before: pl.DataFrame, after: pl.DataFrame) -> tuple[pl.DataFrame, str | None]:
    """The ten minutes after a change with the load that was before: as long prompts, no fewer
    requests; all of them, and what changed, where these are fewer than three.
    """
    was, now = _loads(before), _loads(after)
    if was.is_empty() or now.is_empty():
        return after, None
    ratios = now.select("end", *(pl.col(name) / was[name].mean() for name in _LOAD))
    is_alike = pl.col("prompts").is_between(1 / _ALIKE, _ALIKE) & (pl.col("requests") >= 1 / _ALIKE)
    alike = ratios.filter(is_alike)
    if len(alike) >= _LEAST_CELLS:
        return after.join(alike, on="end", how="semi"), None
    means = {name: float(ratios[name].to_numpy().mean()) for name in _LOAD}
    name = max(means, key=lambda one: abs(math.log(means[one])))
    return after, f"{name} {times(means[name])}"


def _loads(cells: pl.DataFrame) -> pl.DataFrame:
    """Requests and the mean length of prompts by ten minutes, where both are known."""
    sums = cells.group_by("end").agg(
        requests=pl.col("ttft_seconds_count").sum(),
        prompts=pl.col("prompt_tokens_sum").sum() / pl.col("prompt_tokens_count").sum(),
    )
    return sums.filter((pl.col("requests") > 0) & (pl.col("prompts") > 0))


def result_text(
    material: Material,
    family: str,
    incidents: Sequence[Incident],
    again: Restarts | None,
    changed: Sequence[Verification],
) -> str:
    """``not enough: 64–80 % still missed in the two hours after``; without a change how long it
    lasted; ``changed``: the verifications of what was changed.
    """
    still = [one.started_at for one in incidents if end_of(one, material) is None]
    is_open = f"open {duration((material.until - min(still)).total_seconds())}" if still else ""
    if again is not None:
        judged = _judged(material, family, incidents, again, changed)
        return f"{judged}; {is_open}" if is_open else judged
    if is_open:
        return is_open
    covered, last = timedelta(0), material.since - BESIDE
    for one in incidents:  # what overlaps counts once
        end = material.until if one.resolved_at is None else min(one.last_true_at, one.resolved_at)
        covered += max(end - max(one.started_at, last), timedelta(0))
        last = max(last, end)
    speed = _speed(material, incidents, last) if family == "speed" else None
    now = "" if speed is None else f", speed since {_range(speed)}"
    return f"over after {duration(covered.total_seconds())}{now}"


def _judged(
    material: Material,
    family: str,
    incidents: Sequence[Incident],
    again: Restarts,
    changed: Sequence[Verification],
) -> str:
    """Whether restarts worked: on servers that hung by their tokens, on slow ones by their speed,
    else by the share of requests in target."""
    if family == "stuck":
        keys = tuple({key: None for one in incidents for key in keys_of(one)})
        mine = of_pool(material, incidents[0].pool, keys)
        after = between(mine, again.last + CELL, again.last + CELL + BESIDE)
        if after.is_empty():
            return f"{NOT_JUDGED}: no data after it"
        return "did not work: hung again" if after["stuck_seconds"].sum() else "worked: tokens come"
    if family == "speed":
        speed = _speed(material, incidents, again.last + CELL)
        if speed is None or speed.low is None or speed.high is None:
            return f"{NOT_JUDGED}: no verdict on speed"
        is_back = (speed.low + speed.high) / 2 >= _RECOVERED
        return f"{'worked' if is_back else 'did not work'}: speed {_range(speed)}"
    closed = [v for v in changed if v.closed_at is not None and v.closed_at < material.until]
    return _by_share(again, material.slos.get(incidents[0].pool, Slo()).share, closed)


def _by_share(again: Restarts, share: float, closed: Sequence[Verification]) -> str:
    """``share``: of the requests that must be in target; ``closed``: verifications of it."""
    before, after = again.before, again.after
    if before.high is None or after.low is None or after.high is None:
        return f"{NOT_JUDGED}: {after.reason or before.reason}"
    if again.other_load is not None:
        return f"{NOT_JUDGED}: {again.other_load} after it"
    was = _range(Range(low=1 - before.high, high=1 - (before.low or 0.0)))
    now = _range(Range(low=1 - after.high, high=1 - after.low))
    if after.high < share:
        better = after.low > before.high or any(
            effect.name == IN_TARGET and effect.low > 0 for one in closed for effect in one.effects
        )
        text = f"{'not enough' if better else 'did not work'}: {now} still missed"
        verdicts = Counter(one.verdict for one in closed)
        counts = ", ".join(f"{n} {name}" for name, n in sorted(verdicts.items(), reverse=True))
        return f"{text} in the two hours after, {was} before{f'; {counts}' if counts else ''}"
    if after.low < share or before.high >= share:
        return f"{NOT_JUDGED}: {was} missed before it, {now} after"
    return f"worked: {was} missed before it, {now} after"


def _speed(material: Material, incidents: Sequence[Incident], since: datetime) -> Range | None:
    """Speed at equal load of the servers of the last one since a time; None without a verdict."""
    mine = of_pool(material, incidents[-1].pool, keys_of(incidents[-1]))
    speeds = mine.filter(pl.col("end") > since)["speed_at_equal_load_ratio"].drop_nulls()
    if speeds.is_empty():
        return None
    mean, error = float(speeds.tail(_LAST_CELLS).to_numpy().mean()), wander(mine)
    return Range(low=mean - error, high=mean + error)


def _range(of: Range) -> str:
    return percent_range(max(0.0, of.low or 0.0), of.high or 0.0)
