"""Which targets are slower than like work in the baseline, and which are slower than their peers.

A target becomes slower when the level of six minutes falls below the threshold of like work, and
stays so until most of the loss is regained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import polars as pl

from driftwatch.arrays import Flags, Floats, Indices, Texts
from driftwatch.detect.baselines import Baseline, Baselines
from driftwatch.detect.references import Loss, PoolHour, PoolSpeed, References
from driftwatch.detect.speed.grid import Grid, quantile, rolling
from driftwatch.detect.speed.like_work import (
    INPUTS,
    KINDS,
    KNOWN,
    WINDOW,
    kinds_of,
    level_of,
    may_be_low,
    peers_of,
    thresholds,
)
from driftwatch.detect.speed.load import LASTING, WHY_NOT
from driftwatch.detect.speed.model import StepTimeModel, ln_speed
from driftwatch.model import Reason

# Minutes whose median must be fast again, and how many of them must be known.
RECOVERY, RECOVERY_KNOWN = 10, 6
REGAINED = 0.6  # of the loss
LOW = float(np.log(0.92))  # no threshold lies above it (FLOOR)
LEAST_LOSS = 0.05
# A healthy engine wanders by 4 % for hours, so a loss is measured against its own minutes before.
# On one of four servers that lost 20 % this gave 17 to 23 % in 23 of 24 cases, the baseline in 18.
BEFORE, BEFORE_KNOWN, MOST_WANDER = 30, 10, 0.08
# minutes before an hour that its first minute needs
LOOKBACK = WINDOW + BEFORE + 6
PROVISIONAL = "provisional"
LEARNING, NO_BASELINE, UNLIKE = "learning", "no_baseline", "out_of_range"
_TOO_FEW = Reason("too_few_minutes", f"fewer than {KNOWN} of the last {WINDOW} minutes are known")
_NOT_ACCEPTED = Reason(
    NO_BASELINE,
    "no baseline in use yet: driftwatch baseline list proposes one, or names what is missing",
)
_UNLIKE = tuple(
    Reason(UNLIKE, f"the baseline has no minutes with {words}") for _, words, _ in KINDS
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What one target is compared with."""

    model: StepTimeModel | None  # without ``is_own`` it serves only to compare with peers
    is_own: bool = False  # the model judges the target by itself
    name: str | None = None  # own baseline, pool's baseline or provisional, and when it was learnt
    unknown: Reason | None = None  # why there is no speed at equal load
    id: str = ""  # of the model


def compared_with(
    targets: pl.DataFrame,
    baselines: Baselines,
    references: References,
    *,
    accepts: bool,
) -> list[Comparison]:
    """What each target is compared with: its baseline, else its pool's learnt model.

    ``targets``: instance, engine, pool; ``accepts``: whether a learnt model judges targets although
    no person accepted it.
    """
    found: dict[tuple[str, str], Comparison] = {}
    compared = []
    for instance, engine, pool in targets.with_columns(pl.col("pool").fill_null("")).iter_rows():
        own = baselines.of_target(instance, engine, pool)
        place = pool, "" if own is None else own.id
        if place not in found:
            learnt = _of_pool(pool, references, accepts=accepts)
            found[place] = learnt if own is None else _of_baseline(own, learnt)
        compared.append(found[place])
    return compared


def _of_pool(pool: str, references: References, *, accepts: bool) -> Comparison:
    speed, at = references.find(PoolSpeed, pool) or (None, None)
    if not accepts:
        return Comparison(None if speed is None else speed.model, unknown=_NOT_ACCEPTED)
    if speed is None or at is None:
        return Comparison(None, unknown=Reason(LEARNING, "not judged yet"))
    if speed.model is None:
        unknown = Reason(LEARNING, f"not judged yet: {speed.missing}")
        return Comparison(None, unknown=unknown)
    return Comparison(speed.model, is_own=True, name=_named(PROVISIONAL, at), id=PROVISIONAL)


def _of_baseline(baseline: Baseline, learnt: Comparison) -> Comparison:
    if baseline.why_no_speed is not None:
        why = f"the baseline in use has no load model: {baseline.why_no_speed}"
        return Comparison(learnt.model, unknown=Reason(LEARNING, why))
    name = "own baseline" if baseline.scope == "target" else "pool's baseline"
    if baseline.accepted_by == PROVISIONAL:
        name = PROVISIONAL
    name = _named(name, baseline.until)
    return Comparison(baseline.load_model, is_own=True, name=name, id=baseline.id)


def _named(name: str, learnt_at: datetime) -> str:
    return f"{name}, learnt {learnt_at:%Y-%m-%d %H:%M} UTC"


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Verdicts of targets in the minutes from the first scored one on."""

    columns: Mapping[str, Any]  # (target, minute) by column; NaN or None is unknown
    slower: Sequence[Loss | None]  # of each target, after the last minute
    slower_than_pool: Sequence[Loss | None]
    ln_speed: Floats  # ln r, (target, minute) of the whole grid


def verdicts(
    grid: Grid, compared: Sequence[Comparison], references: References, first: int
) -> Verdicts:
    """The verdicts of the minutes from number ``first`` on; ``compared``: of each target."""
    r = ln_speed(grid, [one.model for one in compared])
    relative = r - (others := peers_of(grid, r))
    starts, own, peer = _starts(grid, compared, references, first)
    start = max(int(starts.min(initial=first)) - 1, 0)  # the first verdict needs the minute before
    is_own = np.array([one.is_own for one in compared], dtype=bool)[:, None]
    now = np.arange(start, grid.minutes)[None, :]
    judged = now >= np.maximum(starts, WINDOW - 1)[:, None]
    reached = now >= np.maximum(starts - 1, WINDOW - 1)[:, None]
    # thresholds are needed for scored minutes, and for all of a target that is or was slow
    is_held = np.array([one is not None for one in own]) | [one is not None for one in peer]
    low = (may_be_low(r, LOW) & is_own | may_be_low(relative, LOW))[:, start:]
    low = (low.any(axis=1) | is_held)[:, None]
    at = np.nonzero(reached & (low | (now >= first - 1)))
    level, against = np.full((2, *judged.shape), np.nan)
    level[at] = level_of(_windows(r, at[0], start + at[1]))
    against[at] = level_of(_windows(relative, at[0], start + at[1]))
    low = np.fmin(np.where(is_own, level, np.nan), against) <= LOW
    low = (low.any(axis=1) | is_held)[:, None]
    at = np.nonzero(np.isfinite(level) & (low | (now >= first - 1)))
    found = _thresholds(grid, compared, r, at[0], start + at[1], start)
    limit, usual, smallest, against_limit, against_usual, unlike = found
    limit, against_limit = _lower(limit), _lower(against_limit)
    ids = [one.id for one in compared]
    begins = (level <= limit) & judged & is_own
    slower, losses, before = _slow_minutes(begins, usual, limit, level, r, starts, own, ids, start)
    begins = (against <= against_limit) & judged
    than_pool, peers_losses, _ = _slow_minutes(
        begins, against_usual, against_limit, against, relative, starts, peer, ids, start
    )
    scored = slice(first - start, None)
    has_limit = (than_pool | np.isfinite(against_limit)) & np.isfinite(against)
    others = np.where(is_own, rolling(others, WINDOW, 0.5, KNOWN, first), np.nan)
    parts: Any = (part[:, scored] for part in (limit, smallest, unlike, slower, before))
    columns = _own_columns(grid, compared, r, *parts) | {
        "pool_speed_at_equal_load_ratio": np.exp(others),
        "speed_against_pool_ratio": np.exp(rolling(relative, WINDOW, 0.5, KNOWN, first)),
        "slower_than_pool": np.where(has_limit, than_pool, np.nan)[:, scored],
    }
    return Verdicts(columns, losses, peers_losses, r)


def _starts(
    grid: Grid, compared: Sequence[Comparison], references: References, first: int
) -> tuple[Indices, list[Loss | None], list[Loss | None]]:
    """Each target's first minute without a verdict, and its loss where it was slower before."""
    count = len(compared)
    starts = np.zeros(count, dtype=np.intp)
    own: list[Loss | None] = [None] * count
    peer: list[Loss | None] = [None] * count
    for pool, rows in grid.by_pool:
        hour = references.find(PoolHour, pool)
        if hour is None or not 0 <= (after := grid.at(hour[1]) + 1) <= first:
            continue
        starts[rows] = after
        for held, there in ((own, hour[0].slower), (peer, hour[0].slower_than_pool)):
            for row in rows if there else ():
                loss = there.get(grid.keys[row].text)
                if loss is not None and loss.compared_with == compared[row].id:
                    held[row] = loss
    return np.minimum(starts, grid.minutes), own, peer


def _windows(values: Any, target: Indices, last: Indices) -> Any:
    """The windows that end with these minutes, (window, minute)."""
    return values[target[:, None], last[:, None] - np.arange(WINDOW)]


def _thresholds(
    grid: Grid, compared: Sequence[Comparison], r: Floats, target: Indices, end: Indices, start: int
) -> Floats:
    """The thresholds of the windows that end with these minutes: (row, target, minute)."""
    values = {name: _windows(grid[name], target, end) for name in INPUTS}
    is_known = np.isfinite(_windows(r, target, end))[..., None]
    kinds = quantile(np.moveaxis(np.where(is_known, kinds_of(values), np.nan), 1, -1), 0.5)
    models = {id(one.model): one.model for one in compared}
    number = {name: k for k, name in enumerate(models)}
    of = np.array([number[id(one.model)] for one in compared], dtype=np.intp)[target]
    order = np.argsort(of, kind="stable")
    alike = np.split(order, np.searchsorted(of[order], np.arange(1, len(models))))
    found = thresholds(
        [
            (model.like_work, model.minutes, rows)
            for model, rows in zip(models.values(), alike, strict=True)
            if len(rows) and model is not None and model.like_work is not None
        ],
        kinds,
    )
    whole = np.full((len(found), len(compared), grid.minutes - start), np.nan)
    whole[-1] = -1
    whole[:, target, end - start] = found
    return whole


def _lower(limit: Floats) -> Floats:
    """The lower of each minute's limit and the one before: fifty neighbours give a noisy limit."""
    lower = limit.copy()
    lower[:, 1:] = np.where(np.isnan(limit[:, 1:]), np.nan, np.fmin(limit[:, 1:], limit[:, :-1]))
    return lower


def _slow_minutes(
    begins: Flags,
    usual: Floats,
    limit: Floats,
    level: Floats,
    r: Floats,
    starts: Indices,
    held: Sequence[Loss | None],
    ids: Sequence[str],
    start: int,
) -> tuple[Flags, list[Loss | None], Floats]:
    """Which minutes are slow: from the first slow one until most of the loss is regained.

    Where ``limit`` is unknown after a loss ended, it becomes the level at which the loss ended: the
    target is not slower while its speed stays above it. Returns also the losses after the last
    minute, and ln r before the loss in slow minutes, else 0.
    """
    slow, own = np.zeros(begins.shape, dtype=bool), np.zeros(begins.shape)
    ends = list(held)
    was_slow = np.array([one is not None for one in held], dtype=bool)
    rows = np.flatnonzero(was_slow | begins.any(axis=1))
    back = rolling(r[rows], RECOVERY, 0.5, RECOVERY_KNOWN, start)
    recent = rolling(r[rows], WINDOW, 0.5, KNOWN, max(start, r.shape[1] - 60))
    known = np.isfinite(recent).sum(axis=1) > 0
    for number, row in enumerate(rows.tolist()):
        now = held[row]
        for minute in range(max(int(starts[row]) - start, 0), begins.shape[1]):
            enough = np.inf if now is None else now.before - (1.0 - REGAINED) * now.loss
            is_back, is_like = back[number, minute] >= enough, np.isfinite(limit[row, minute])
            if now is not None and now.is_over and (is_like or not is_back):
                now = None
            if now is None and begins[row, minute]:
                was = min(float(np.nan_to_num(usual[row, minute])), 0.0)
                fell = max(was - float(level[row, minute]), LEAST_LOSS)
                ended = start + minute + 1 - WINDOW
                past = r[row, max(ended - BEFORE, 0) : max(ended, 0)]
                # only known minutes before the loss count, however late it was found
                past = past[past > was - fell / 2]
                wander = float(np.median(past)) if len(past) >= BEFORE_KNOWN else 0.0
                wander = min(max(wander, -MOST_WANDER), MOST_WANDER)
                now = Loss(before=was, loss=fell, own=wander, compared_with=ids[row])
            elif now is not None and is_back:
                now = None if is_like else now.model_copy(update={"is_over": True})
            if now is not None and now.is_over:
                limit[row, minute] = enough
            elif now is not None:
                slow[row, minute], own[row, minute] = True, now.own
        # a loss is dropped once the speed was unknown for an hour
        ends[row] = now if known[number] else None
    return slow, ends, own


def _own_columns(
    grid: Grid,
    compared: Sequence[Comparison],
    r: Floats,
    limit: Floats,
    smallest: Floats,
    unlike: Floats,
    slower: Flags,
    before: Floats,
) -> dict[str, Any]:
    """The columns about a target's own speed in the last minutes."""
    first = grid.minutes - limit.shape[1]
    is_own = np.array([one.is_own for one in compared], dtype=bool)[:, None]
    median = np.where(is_own, rolling(r, WINDOW, 0.5, KNOWN, first), np.nan)
    is_known = np.isfinite(median)
    verdict = np.where(is_known & (slower | np.isfinite(limit)), slower, np.nan)
    why = _reasons(grid, compared, unlike.astype(np.intp), is_known, np.isfinite(verdict), first)
    names = np.array([one.name for one in compared], dtype=object)[:, None]
    shape = median.shape
    there = why != None  # noqa: E711 (of objects)
    texts, codes = np.full(shape, None, dtype=object), np.full(shape, None, dtype=object)
    texts[there] = [one.text for one in why[there]]
    codes[there] = [one.code for one in why[there]]
    return {
        "speed_at_equal_load_ratio": np.exp(median - before),
        "speed_threshold_ratio": np.exp(np.where(is_own, limit, np.nan)),
        "speed_smallest_detectable_loss_ratio": np.where(is_own, smallest, np.nan),
        "slower_at_equal_load": verdict,
        "speed_reference": np.broadcast_to(names, shape),
        "speed_unknown_reason": texts,
        "speed_unknown_code": codes,
    }


def _reasons(
    grid: Grid,
    compared: Sequence[Comparison],
    unlike: Any,
    is_known: Flags,
    has_verdict: Flags,
    first: int,
) -> Texts:
    """Why there is no verdict, an :class:`Reason` each; None where there is one."""
    why: Texts = np.full(is_known.shape, None, dtype=object)
    codes = grid.why[:, first:]
    out = ~has_verdict & is_known
    why[out] = np.array([*_UNLIKE, _TOO_FEW], dtype=object)[unlike[out]]
    few = ~is_known
    why[few] = _TOO_FEW
    # the minute's own reason is better than "too few"
    own = few & (codes > 0)
    why[own] = np.array(WHY_NOT, dtype=object)[codes[own]]
    # a missing model is the better reason, unless the minute's own one lasts
    passes = ~np.isin(codes, LASTING)
    missing = np.array([one.unknown for one in compared], dtype=object)[:, None]
    return np.where(passes & (missing != None), missing, why)  # noqa: E711 (of objects)
