"""Has the speed fallen: a sudden change, a low level, and how both end.

A healthy engine's ln r wanders slowly (like an AR(1) of 90 min with a sd of 3.5 %). Over ten
minutes it moves little, so a sudden loss of 15 % is ten standard deviations of the *change* while
it is three of the *level*. The change therefore decides within minutes; the level is for what came
slowly or during a restart.

A change alone is no loss: at the end of a burst that read 1.2 a healthy engine falls by a fifth.
What is left after it must be low itself: against the baseline, the peers, or the server's own long
median.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from driftwatch.arrays import Flags, Floats, Texts

KNOWN_RATIO = 0.6  # of a window's minutes must be known


def last_quantiles(
    values: Floats, minutes: int, shares: tuple[float, ...], start: int = 0
) -> list[Floats]:
    """Quantiles (linear) of the last minutes, up to and with each minute from ``start`` on.

    ``values``: (target, minute). NaN where fewer than KNOWN_RATIO of the window are known.
    """
    # what lies before the first window is not sorted only to be thrown away
    before = max(start - minutes + 1, 0)
    values, start = values[:, before:], start - before
    targets, count = values.shape
    quantiles = [np.full((targets, count), np.nan) for _ in shares]
    if count < minutes:
        return [one[:, start:] for one in quantiles]
    ordered = np.sort(sliding_window_view(values, minutes, axis=1), axis=-1)  # NaN last
    present = (~np.isnan(ordered)).sum(axis=-1)
    enough = present >= KNOWN_RATIO * minutes
    for into, share in zip(quantiles, shares, strict=True):
        place = share * (np.maximum(present, 1) - 1)
        low = np.floor(place).astype(np.intp)
        high = np.ceil(place).astype(np.intp)
        below = np.take_along_axis(ordered, low[..., None], axis=-1)[..., 0]
        above = np.take_along_axis(ordered, high[..., None], axis=-1)[..., 0]
        into[:, minutes - 1 :] = np.where(enough, below + (above - below) * (place - low), np.nan)
    return [one[:, start:] for one in quantiles]


def faded_mean(
    values: Floats, age: int, span: int, fading: float, least: int, start: int = 0
) -> Floats:
    """Mean of the minutes ``age`` to ``age + span - 1`` ago, the older the lighter.

    ``fading``: minutes in which a weight falls to 1/e; NaN of fewer than ``least`` known minutes.
    """
    before = max(start - age - span + 1, 0)
    values, start = values[:, before:], start - before
    count = values.shape[1]
    is_known = ~np.isnan(values)
    filled = np.where(is_known, values, 0.0)
    total, weight = np.zeros(values.shape), np.zeros(values.shape)
    counts = np.zeros(values.shape, dtype=np.int32)
    # minute by minute: all windows at once would take `span` times the room
    for back in range(age, min(age + span, count)):
        share = np.exp(-(back - age) / fading)
        total[:, back:] += share * filled[:, : count - back]
        weight[:, back:] += share * is_known[:, : count - back]
        counts[:, back:] += is_known[:, : count - back]
    enough = counts >= least
    means: Floats = np.where(enough, total / np.where(enough, weight, 1.0), np.nan)
    return means[:, start:]


def of_others(values: Floats) -> Floats:
    """Median of the other rows in the same minute; NaN for fewer than two others.

    ``values``: (target of one pool, minute).
    """
    rows, count = values.shape
    if rows < 3:
        return np.full((rows, count), np.nan)
    order = np.argsort(values, axis=0, kind="stable")  # NaN last
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(rows)[:, None].repeat(count, axis=1), axis=0)
    ordered = np.take_along_axis(values, order, axis=0)
    present = (~np.isnan(values)).sum(axis=0)
    # without a row of rank k the places from k on move up by one; an unknown row takes none away
    others = np.where(np.isnan(values), present, present - 1)
    low, high = np.maximum(others - 1, 0) // 2, others // 2
    cut = np.where(np.isnan(values), rows, rank)
    low, high = low + (low >= cut), high + (high >= cut)
    last = rows - 1
    below = np.take_along_axis(ordered, np.minimum(low, last), axis=0)
    above = np.take_along_axis(ordered, np.minimum(high, last), axis=0)
    return np.where(others >= 2, (below + above) / 2.0, np.nan)


LEVEL_MINUTES = 10
LEVEL_QUANTILE = 0.9  # nearly every minute is at most so fast
NOW_MINUTES = 8
NOW_QUANTILE = 0.9
BEFORE_MINUTES = 45
BEFORE_FADING = 6.0  # about where an AR(1) of 90 min under a noise of 1-2 % a minute is known best
BEFORE_LEAST = 6
RISE_QUANTILE = 0.25
BACK_MINUTES = 15
LOOKBACK = NOW_MINUTES + BEFORE_MINUTES + 1
# Where minutes scatter, nearly every one of eight hides a third of a loss; the median of twenty
# does not, and twice as many minutes are as sure.
LONG_MINUTES = 20
LONG_QUANTILE = 0.5

# A loss leaves the engine low: nearer to the smallest loss that pages (15 %) than to
# none. On held-out fleets 21 of 25 false changes ended above 0.92, and no true one.
LOW = float(np.log(0.85)) / 2.0
# Back: that share of the loss is regained. Less, and the wander ends an episode that goes on.
REGAINED = 0.6
WANDER_MINUTES = 90.0  # in which a chance deviation of before the loss is forgotten
_LEAST_BEFORE = -0.03


@dataclass(frozen=True, slots=True)
class Past:
    """What windows say of every target and minute, (target, minute), in ln; NaN is unknown."""

    median: Floats  # of the last 10 min
    level: Floats  # 90 % quantile of the last 10 min
    bound: Floats  # the same of ln r and what the model may be too low by
    # 90 % quantile of the last 8 min less what was before them, and what the model may be wrong by
    # between these loads
    change: Floats
    long_change: Floats  # median of the last 20 min less what was before them, likewise
    now: Floats  # median of the last 8 min
    before: Floats  # the faded mean before these 8 min
    long_before: Floats  # the same before the last 20 min
    rise: Floats  # 25 % quantile of the last 8 min less what was before them
    back: Floats  # median of the last 15 min

    def at(self, minutes: slice) -> Past:
        """Of some minutes."""
        return Past(*(getattr(self, field.name)[:, minutes] for field in fields(self)))

    def without(self, which: Flags) -> Past:
        """With nothing known of some targets."""
        if not which.any():
            return self
        statistics = {field.name: getattr(self, field.name).copy() for field in fields(self)}
        for values in statistics.values():
            values[which] = np.nan
        return Past(**statistics)


def past_of(
    ln_speed: Floats,
    outside: Floats,
    bunched: Floats,
    start: int,
    together: Floats | None = None,
) -> Past:
    """The windows' statistics of ``ln_speed`` (target, minute), from ``start`` on.

    ``outside``: by how much the model may be wrong, signed; ``bunched``: by how much too low where
    requests come together; ``together``: (target,), what of that was usual in the baseline.
    """
    median, level = last_quantiles(ln_speed, LEVEL_MINUTES, (0.5, LEVEL_QUANTILE), start)
    low, now, high = last_quantiles(
        ln_speed, NOW_MINUTES, (RISE_QUANTILE, 0.5, NOW_QUANTILE), start
    )
    (back,) = last_quantiles(ln_speed, BACK_MINUTES, (0.5,), start)
    (lasting,) = last_quantiles(ln_speed, LONG_MINUTES, (LONG_QUANTILE,), start)
    before, long_before = _before(ln_speed, start), _before(ln_speed, start, LONG_MINUTES)
    change, long_change, bound = high - before, lasting - long_before, level
    rows = np.nonzero((np.nan_to_num(outside) != 0.0).any(axis=1) | bunched.any(axis=1))[0]
    if len(rows):
        here_ln = ln_speed[rows]
        # what the model is wrong by at one load it is wrong by at the same load a little later
        for slack, times in ((outside[rows], np.abs), (bunched[rows], _above)):
            ln_slack = np.where(np.isnan(here_ln), np.nan, slack)
            for fallen, minutes in ((change, NOW_MINUTES), (long_change, LONG_MINUTES)):
                (here,) = last_quantiles(ln_slack, minutes, (0.5,), start)
                fallen[rows] += times(here - _before(ln_slack, start, minutes))
        bound = level.copy()
        usual = 0.0 if together is None else together[rows, None]
        most = here_ln + np.abs(outside[rows]) + np.maximum(bunched[rows] - usual, 0.0)
        (bound[rows],) = last_quantiles(most, LEVEL_MINUTES, (LEVEL_QUANTILE,), start)
    return Past(
        median, level, bound, change, long_change, now, before, long_before, low - before, back
    )


def _above(values: Floats) -> Floats:
    above: Floats = np.maximum(values, 0.0)
    return above


def _lost(change: Floats, before: Floats, normal: Floats | float = 0.0) -> Floats:
    """A change less what was above normal: so fast no engine becomes, it is the model's error."""
    lost: Floats = change + _above(before - (normal - LOW))
    return lost


def deepest_falls(
    ln_speed: Floats, outside: Floats, bunched: Floats, least: int = 1
) -> tuple[float, float]:
    """How far ln r fell at most while it was low as well, in either window, ≥ 0.

    A model errs for as long as work of another kind lasts: only windows of the same length know how
    far. Infinite of fewer than ``least`` windows.
    """
    past = past_of(ln_speed, outside, bunched, 0)
    changes = (past.change, past.before), (past.long_change, past.long_before)
    falls = [np.maximum(_lost(*change), past.now) for change in changes]
    few = [np.isfinite(fall).sum() < least for fall in falls]
    short, long = (-float(np.nan_to_num(fall).min(initial=0.0)) for fall in falls)
    return np.inf if few[0] else short, np.inf if few[1] else long


def _before(values: Floats, start: int, minutes: int = NOW_MINUTES) -> Floats:
    span = NOW_MINUTES + BEFORE_MINUTES - minutes
    return faded_mean(values, minutes, span, BEFORE_FADING, BEFORE_LEAST, start)


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds of targets, in ln; NaN where there is no model."""

    level: Floats  # at or below it the level is too low
    usual: Floats  # the usual level, at most 0
    normal: Floats  # the own median over days, at least 0; 0 where it is not known
    change: Floats  # at or below it a change is a sudden loss
    long_change: Floats  # at or below it the same of 20 min
    # the smallest change that is found in 95 of 100 cases, as a share of the speed
    smallest: Floats
    source: Texts  # own, pool or shipped; None without a model


@dataclass(slots=True)
class Holding:
    """Which targets are slower, from the moment it is found until the speed is back."""

    slower: Flags  # (target,)
    before: Floats  # ln r before the loss
    loss: Floats  # how much ln r fell, above 0
    age: Floats  # minutes since it was found
    deepest: Floats  # the most that it fell while it lasted

    @classmethod
    def of(cls, rows: Floats) -> Holding:
        """Of what :meth:`rows` gave (target, 5)."""
        slower, *others = rows.T.copy()
        return cls(slower > 0, *others)

    @classmethod
    def nobody(cls, targets: int) -> Holding:
        """Nobody is slower."""
        return cls.of(np.zeros((targets, 5)))

    def rows(self) -> Floats:
        """As an array (target, 5), to be remembered."""
        columns = (self.slower, self.before, self.loss, self.age, self.deepest)
        return np.stack(columns, axis=1).astype(np.float64)

    def step(
        self,
        past: Past,
        minute: int,
        limits: Limits,
        may_change: Flags | None = None,
        others: Floats | None = None,
    ) -> None:
        """One minute on; ``may_change``: whose change counts; None is everybody's.

        ``others``: ln r over that of the peers, median of the last 8 min; None is unknown.
        """
        with np.errstate(invalid="ignore"):
            now = past.now[:, minute]
            # what leaves less than half of the smallest loss that can be found fell from high
            enough = np.fmin(LOW, 0.5 * np.log1p(-limits.smallest))
            low_here = now - limits.normal <= enough
            # its peers did not fall: what it had before was speed, however much
            alone = np.zeros_like(low_here) if others is None else others <= enough
            normal = np.where(alone, np.inf, limits.normal)
            change = past.change[:, minute], past.before[:, minute]
            long_change = past.long_change[:, minute], past.long_before[:, minute]
            short = _lost(*change, normal) <= limits.change
            sudden = short | (_lost(*long_change, normal) <= limits.long_change)
            sudden &= low_here | alone
            if may_change is not None:
                sudden &= may_change
            low = past.bound[:, minute] <= limits.level
            begins = (sudden | low) & ~self.slower
            before = np.where(short, past.before[:, minute], past.long_before[:, minute])
            before = np.where(sudden, before, limits.usual)
            fallen = before - np.where(sudden, now, past.median[:, minute])
            lost = np.maximum(fallen, 0.05)
            # where it would be without the loss: what was chance before it fades, and what is
            # left is its own usual level, which may lie well below the reference
            own = np.nan_to_num(limits.usual)
            chance = (self.before - own) * np.exp(-self.age / WANDER_MINUTES)
            usual = own + np.maximum(chance, _LEAST_BEFORE)
            regained = past.back[:, minute] >= usual - (1.0 - REGAINED) * self.loss
            # just found, most of the last 15 min are from before the loss
            regained &= self.age >= BACK_MINUTES - NOW_MINUTES
            # a second loss that ends leaves the first one
            deepest = np.fmax(self.deepest, usual - now)
            jumped = past.rise[:, minute] >= REGAINED * deepest
            ends = self.slower & (regained | jumped)
        self.slower = (self.slower & ~ends) | begins
        self.before = np.where(begins, before, self.before)
        self.loss = np.where(begins, lost, self.loss)
        self.age = np.where(begins, 0.0, self.age + 1.0)
        self.deepest = np.where(begins, lost, np.where(self.slower, deepest, 0.0))

    @property
    def fresh(self) -> Flags:
        """Slower since so shortly that the last 10 min still hold minutes from before."""
        return self.slower & (self.age < LEVEL_MINUTES - NOW_MINUTES)

    def reset(self, which: Flags) -> None:
        """Nothing is known any more of these: their reference is another one."""
        self.slower = self.slower & ~which
