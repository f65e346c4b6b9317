"""Axes of a plot: round ends around the numbers, labels, numbers into pixels. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from driftwatch.numbers import brief


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: its title, its ends, and the kind of its scale."""

    title: str  # with the unit: "prompt tokens, log scale"
    low: float | None = None  # None = from the values
    high: float | None = None
    is_log: bool = False
    is_time: bool = False  # numbers are seconds since 1970, UTC


_LABEL_WIDTH = 52.0  # of a label of a horizontal axis, in pixels


class Scale:
    """Maps values of an axis to pixels."""

    def __init__(self, axis: Axis, first: float, last: float) -> None:
        assert axis.low is not None and axis.high is not None  # noqa: S101 - fitted
        self.axis, self.first, self.last = axis, first, last
        self._low, self._high = self._of(axis.low), self._of(axis.high)

    def _of(self, value: float) -> float:
        return math.log10(max(value, 1e-12)) if self.axis.is_log else value

    def __call__(self, value: float) -> float:
        """The pixel of a value; beyond an end it is the end's."""
        share = (self._of(value) - self._low) / (self._high - self._low)
        return self.first + min(max(share, 0.0), 1.0) * (self.last - self.first)

    def ticks(self) -> list[tuple[float, str]]:
        """Values and texts of the labels of a vertical axis, as many as fit."""
        return self._labels(abs(self.last - self.first), 24.0)

    def ticks_across(self, pixels: float) -> list[tuple[float, str]]:
        """Values and texts of the labels of a horizontal axis of this width."""
        return self._labels(pixels, _LABEL_WIDTH)

    def _labels(self, pixels: float, label_pixels: float) -> list[tuple[float, str]]:
        assert self.axis.low is not None and self.axis.high is not None  # noqa: S101 - fitted
        low, high = self.axis.low, self.axis.high
        if self.axis.is_log:
            least = label_pixels / pixels * abs(self.last - self.first)
            return [(one, brief(one)) for one in self._not_touching(_log_ticks(low, high), least)]
        step = _step(high - low, max(1, min(5, int(pixels / label_pixels))))
        first = math.ceil(low / step - 1e-9)
        values = [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]
        return [(one, brief(one) if one else "0") for one in values]

    def _not_touching(self, values: Sequence[float], least: float) -> Sequence[float]:
        """Values of a log axis whose labels do not touch; powers of ten are placed first."""
        placed: list[float] = []
        for value in sorted(values, key=lambda one: (not math.log10(one).is_integer(), one)):
            if all(abs(self(value) - self(other)) >= least for other in placed):
                placed.append(value)
        return sorted(placed)


def fitted(axis: Axis, values: Sequence[float], *, from_zero: bool = False) -> Axis:
    """The axis with both ends: the given ones, else round ones around the values."""
    if axis.is_log:
        values = [value for value in values if value > 0]
    low = min(values, default=1.0) if axis.low is None else axis.low
    high = max(values, default=low + 1.0) if axis.high is None else axis.high
    if axis.low is None and from_zero:
        low = min(0.0, low)
    if high <= low:
        high = low * 10 if axis.is_log else low + 1.0
    if axis.is_log:
        low, high = max(low, 1e-12), max(high, 2e-12)
    elif axis.high is None and not axis.is_time and from_zero:
        step = _step(high - low, 5)
        high = math.ceil(high / step - 1e-9) * step
    return replace(axis, low=low, high=high)


def _step(span: float, most: int) -> float:
    """A round step (1, 2 or 5 times a power of ten); at most ``most`` fit into the span."""
    raw = span / most
    power = 10.0 ** math.floor(math.log10(raw))
    return next((f * power for f in (1, 2, 5, 10) if f * power >= raw * (1 - 1e-9)), 10 * power)


def _log_ticks(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    values = [f * 10.0**n for n in range(first, last + 1) for f in (1, 2, 5)]
    within = [one for one in values if low * (1 - 1e-9) <= one <= high * (1 + 1e-9)]
    return within or [low, high]


_TIME_STEPS = (60, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400, 172_800, 604_800)


def _time_text(at: datetime, step: float) -> str:
    if step > 86_400:
        return f"{at.day} {at:%b}"
    return f"{at:%a}" if step == 86_400 else f"{at:%H:%M}"


def time_ticks(low: float, high: float, pixels: float) -> list[tuple[float, str]]:
    """Labels of a time axis of this width: times of day, days of the week, or dates."""
    # an axis of several days names days, not hours
    least = 86_400 if high - low > 2.5 * 86_400 else 0
    allowed = (one for one in _TIME_STEPS if one >= least)
    rooms = (
        (one, 42 if one < 86_400 else 36 if one == 86_400 else _LABEL_WIDTH) for one in allowed
    )
    steps = (one for one, room in rooms if (high - low) / one <= pixels / room)
    step = next(steps, (high - low) / 5)
    first, epoch = math.ceil(low / step), datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    ticks = []
    for number in range(first, math.floor(high / step) + 1):
        at = epoch + timedelta(seconds=number * step)
        ticks.append((number * step, _time_text(at, step)))
    return ticks
