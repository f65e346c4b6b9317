"""Which targets are slower than like work in the baseline, and which are slower than their peers.

A target becomes slower when the level of six minutes falls below the threshold of like work, and
stays so until most of the loss is regained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

import numpy as np

from driftwatch.arrays import Flags, Floats, Indices, Texts
from driftwatch.detect.baselines import Baseline, Baselines
from driftwatch.detect.references import Loss, PoolHour, PoolSpeed, References
from driftwatch.detect.speed.grid import Grid, quantile, rolling
from driftwatch.detect.speed.like_work import (
    KINDS,
    KNOWN,
    WINDOW,
    Thresholds,
    kinds_of,
    level_of,
    peers_of,
    thresholds,
)
from driftwatch.detect.speed.load import FOR_GOOD, WHY_NOT, Unknown
from driftwatch.detect.speed.model import StepTimeModel, ln_speed
from driftwatch.model import TargetKey

# Minutes whose median must be fast again.
BACK, BACK_KNOWN = 10, 6
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
_TOO_FEW = Unknown("too_few_minutes", f"fewer than {KNOWN} of the last {WINDOW} minutes are known")
_PROPOSED = Unknown(NO_BASELINE, "no baseline in use yet: driftwatch baseline propose has one")
_UNLIKE = tuple(
    Unknown(UNLIKE, f"work that the baseline has not seen: {words}") for _, words, _ in KINDS
)
_VARIES = Unknown(
    "too_variable", "like work varied too much in the baseline to tell a loss of 30 %"
)


@dataclass(frozen=True, slots=True)
class Compared:
    """What one target is compared with."""

    model: StepTimeModel | None  # compares at least with peers
    is_own: bool = False  # the model is a reference of the target itself
    name: str | None = None  # own baseline, pool's baseline or provisional, and when it was learnt
    unknown: Unknown | None = None  # why there is no speed at equal load
    id: str = ""  # which model it is


def compared_with(
    targets: Sequence[tuple[TargetKey, str]],
    baselines: Baselines,
    references: References,
    *,
    accepts: bool,
) -> list[Compared]:
    """What each target (key, pool) is compared with: its baseline, else its pool's learnt model.

    ``accepts``: whether a learnt model is a reference although no person pinned it.
    """
    pools = {
        pool: _of_pool(pool, references, accepts=accepts) for pool in {pool for _, pool in targets}
    }
    found: dict[tuple[str, str], Compared] = {}
    every = []
    for key, pool in targets:
        own = baselines.of_target(*key, pool)
        place = pool, "" if own is None else own.id
        if place not in found:
            found[place] = pools[pool] if own is None else _of(own, pools[pool])
        every.append(found[place])
    return every


def _of_pool(pool: str, references: References, *, accepts: bool) -> Compared:
    learnt = references.find(PoolSpeed, pool)
    head = "not judged yet" if accepts else "no baseline in use yet"
    if learnt is None:
        return Compared(None, unknown=Unknown(LEARNING, head))
    speed, at = learnt
    if speed.model is None:
        unknown = Unknown(LEARNING, f"{head}: {speed.missing}")
        return Compared(None, unknown=unknown)
    if not accepts:
        return Compared(speed.model, unknown=_PROPOSED)
    return Compared(speed.model, is_own=True, name=_named(PROVISIONAL, at), id=PROVISIONAL)


def _of(baseline: Baseline, learnt: Compared) -> Compared:
    if baseline.load_model is None or baseline.load_model.like_work is None:
        what = baseline.arming or "accept it anew"
        why = f"the baseline in use has no load model: {what}"
        return Compared(learnt.model, unknown=Unknown(LEARNING, why))
    name = "own baseline" if baseline.scope == "target" else "pool's baseline"
    if baseline.accepted_by == PROVISIONAL:
        name = PROVISIONAL
    name = _named(name, baseline.until)
    return Compared(baseline.load_model, is_own=True, name=name, id=baseline.id)


def _named(name: str, learnt_at: datetime) -> str:
    return f"{name}, learnt {learnt_at:%Y-%m-%d %H:%M} UTC"


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Verdicts of targets in the minutes from the first scored one on."""

    columns: Mapping[str, Any]  # (target, minute) by column; NaN or None is unknown
    slower: Sequence[Loss | None]  # of each target, after the last minute
    slower_than_pool: Sequence[Loss | None]
    ln_speed: Floats  # ln r, (target, minute) of the whole grid


def verdicts(grid: Grid, every: Sequence[Compared], references: References, first: int) -> Verdicts:
    """The verdicts of the minutes from number ``first`` on; ``every``: of each target."""
    r = ln_speed(grid, [one.model for one in every])
    relative = r - (others := peers_of(grid, r))
    starts, own, peer = _starts(grid, every, references, first)
    start = int(starts.min(initial=first))
    level, against = level_of(r, start), level_of(relative, start)
    is_own = np.array([one.is_own for one in every], dtype=bool)[:, None]
    now = np.arange(start, grid.minutes)[None, :]
    judged = now >= starts[:, None]
    # thresholds are needed for scored minutes, for slow ones, and for the minute before each
    low = np.fmin(np.where(is_own, level, np.nan), against) <= LOW
    low[:, :-1] |= low[:, 1:].copy()
    wanted = judged & (low | (now >= first - 1)) & np.isfinite(level)
    found = _thresholds(every, kinds_of(grid), r, wanted, start)
    found = replace(found, limit=_lower(found.limit), against=_lower(found.against))
    ids = [one.id for one in every]
    begins = (level <= found.limit) & judged & is_own
    slower, losses, before = _held(begins, found.usual, level, r, starts, own, ids, start)
    begins = (against <= found.against) & judged
    than_pool, peers_losses, _ = _held(
        begins, found.against_usual, against, relative, starts, peer, ids, start
    )
    scored = slice(first - start, None)
    has_limit = (than_pool | np.isfinite(found.against)) & np.isfinite(against)
    others = np.where(is_own, rolling(others, WINDOW, 0.5, KNOWN, first), np.nan)
    columns = _own_columns(grid, every, r, found, slower, before, first, scored) | {
        "pool_speed_at_equal_load_ratio": np.exp(others),
        "speed_against_pool_ratio": np.exp(rolling(relative, WINDOW, 0.5, KNOWN, first)),
        "slower_than_pool": np.where(has_limit, than_pool, np.nan)[:, scored],
    }
    return Verdicts(columns, losses, peers_losses, r)


def _starts(
    grid: Grid, every: Sequence[Compared], references: References, first: int
) -> tuple[Indices, list[Loss | None], list[Loss | None]]:
    """Each target's first minute without a verdict, and its loss where it was slower before."""
    count = len(every)
    starts = np.zeros(count, dtype=np.intp)
    own: list[Loss | None] = [None] * count
    peer: list[Loss | None] = [None] * count
    keys = keys_of(grid)
    for pool, rows in grid.by_pool:
        hour = references.find(PoolHour, pool)
        if hour is None or not 0 <= (after := grid.at(hour[1]) + 1) <= first:
            continue
        starts[rows] = after
        for row in rows:
            for held, there in ((own, hour[0].slower), (peer, hour[0].slower_than_pool)):
                loss = there.get(keys[row].text)
                if loss is not None and loss.compared_with == every[row].id:
                    held[row] = loss
    return np.minimum(starts, grid.minutes), own, peer


def _thresholds(
    every: Sequence[Compared], kinds: Floats, r: Floats, wanted: Flags, start: int
) -> Thresholds:
    """The thresholds of the wanted windows, (target, minute) each."""
    whole = Thresholds.unknown(wanted.shape)
    target, minute = np.nonzero(wanted)
    if len(target):
        # the medians of the wanted windows alone
        at = start + minute[:, None] - np.arange(WINDOW)[None, :]
        inside = at >= 0
        at = np.maximum(at, 0)
        known = np.isfinite(r[target[:, None], at]) & inside
        own = np.where(known[..., None], kinds[target[:, None], at], np.nan)
        medians = quantile(np.moveaxis(own, 1, -1), 0.5)
        models = np.array([id(one.model) for one in every])[target]
        by_id = {id(one.model): one.model for one in every}
        order = np.argsort(models, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(models[order])) + 1):
            model = by_id[models[rows[0]]]
            if model is None or model.like_work is None:
                continue
            found = thresholds(model.like_work, medians[rows], model.minutes)
            for field in fields(Thresholds):
                getattr(whole, field.name)[target[rows], minute[rows]] = getattr(found, field.name)
    return whole


def _lower(limit: Floats) -> Floats:
    """The lower of each minute's limit and the one before: fifty neighbours are a sample."""
    lower = limit.copy()
    lower[:, 1:] = np.where(np.isnan(limit[:, 1:]), np.nan, np.fmin(limit[:, 1:], limit[:, :-1]))
    return lower


def _held(
    begins: Flags,
    usual: Floats,
    level: Floats,
    r: Floats,
    starts: Indices,
    held: Sequence[Loss | None],
    ids: Sequence[str],
    start: int,
) -> tuple[Flags, list[Loss | None], Floats]:
    """Which minutes are slow (from a beginning until most of the loss is regained); the losses
    after the last minute; ln r before the loss in slow minutes, else 0.
    """
    slow, own = np.zeros(begins.shape, dtype=bool), np.zeros(begins.shape)
    ends = list(held)
    was_slow = np.array([one is not None for one in held], dtype=bool)
    rows = np.flatnonzero(was_slow | begins.any(axis=1))
    back = rolling(r[rows], BACK, 0.5, BACK_KNOWN, start)
    for number, row in enumerate(rows.tolist()):
        now = held[row]
        for minute in range(max(int(starts[row]) - start, 0), begins.shape[1]):
            if now is None and begins[row, minute]:
                was = min(float(np.nan_to_num(usual[row, minute])), 0.0)
                fell = max(was - float(level[row, minute]), LEAST_LOSS)
                ended = start + minute + 1 - WINDOW
                past = r[row, max(ended - BEFORE, 0) : max(ended, 0)]
                past = past[np.isfinite(past)]
                wander = float(np.median(past)) if len(past) >= BEFORE_KNOWN else 0.0
                wander = min(max(wander, -MOST_WANDER), MOST_WANDER)
                now = Loss(before=was, loss=fell, own=wander, compared_with=ids[row])
            elif now is not None and (
                back[number, minute] >= now.before - (1.0 - REGAINED) * now.loss
            ):
                now = None
            slow[row, minute] = now is not None
            own[row, minute] = now.own if now is not None else 0.0
        # a loss is dropped once the speed was unknown for an hour
        ends[row] = now if np.isfinite(level[row, -60:]).any() else None
    return slow, ends, own


def keys_of(grid: Grid) -> list[TargetKey]:
    """The targets of a grid."""
    return [TargetKey(*row) for row in grid.targets.select("instance", "engine").iter_rows()]


def _own_columns(
    grid: Grid,
    every: Sequence[Compared],
    r: Floats,
    found: Thresholds,
    slower: Flags,
    before: Floats,
    first: int,
    scored: slice,
) -> dict[str, Any]:
    """The columns about a target's own speed."""
    is_own = np.array([one.is_own for one in every], dtype=bool)[:, None]
    median = np.where(is_own, rolling(r, WINDOW, 0.5, KNOWN, first), np.nan)
    is_known, limit = np.isfinite(median), found.limit[:, scored]
    verdict = np.where(slower[:, scored] | np.isfinite(limit), slower[:, scored], np.nan)
    verdict = np.where(is_known, verdict, np.nan)
    why = _reasons(grid, every, found.unlike[:, scored], is_known, np.isfinite(verdict), first)
    names = np.array([one.name for one in every], dtype=object)[:, None]
    shape = median.shape
    there = why != None  # noqa: E711 (of objects)
    texts, codes = np.full(shape, None, dtype=object), np.full(shape, None, dtype=object)
    texts[there] = [one.text for one in why[there]]
    codes[there] = [one.code for one in why[there]]
    return {
        "speed_at_equal_load_ratio": np.exp(median - before[:, scored]),
        "speed_threshold_ratio": np.exp(np.where(is_own, limit, np.nan)),
        "speed_smallest_detectable_loss_ratio": np.where(is_own, found.smallest[:, scored], np.nan),
        "slower_at_equal_load": verdict,
        "speed_reference": np.broadcast_to(names, shape),
        "speed_unknown_reason": texts,
        "speed_unknown_code": codes,
    }


def _reasons(
    grid: Grid,
    every: Sequence[Compared],
    unlike: Any,
    is_known: Flags,
    has_verdict: Flags,
    first: int,
) -> Texts:
    """Why there is no verdict, an :class:`Unknown` each; None where there is one."""
    why: Texts = np.full(is_known.shape, None, dtype=object)
    codes = grid.why[:, first:]
    known_reasons = np.array(WHY_NOT, dtype=object)
    out = ~has_verdict & is_known
    why[out] = np.array([*_UNLIKE, _VARIES, _TOO_FEW], dtype=object)[unlike[out]]
    few = ~is_known
    why[few] = _TOO_FEW
    # the minute's own reason is better than "too few"
    own = few & (codes > 0)
    why[own] = known_reasons[codes[own]]
    # a missing model is the better reason, unless the minute's own one does not pass with time
    mends = ~np.isin(codes, FOR_GOOD)
    for row, one in enumerate(every):
        if one.unknown is not None:
            why[row, mends[row]] = one.unknown
    return why
