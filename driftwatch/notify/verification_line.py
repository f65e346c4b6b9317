"""The verdict on a change in one line: for a thread, a resolved page and a report. Pure."""

from __future__ import annotations

import re
from datetime import date

from driftwatch.numbers import (
    bare_seconds,
    clean,
    figure,
    knob,
    milliseconds,
    moment,
    percent,
    seconds,
)
from driftwatch.verify.figures import WORDS
from driftwatch.verify.verdict import SLOWER
from driftwatch.verify.verification import Effect, Verification

# figures of a line beside the deciding one
_BESIDE = ("ttft_seconds_mean", "itl_seconds_mean")
_LIMIT = 2
_MILLISECONDS_BELOW, _FINE = 0.1, 0.005  # seconds


OUTCOMES = {"PASS": "IT WORKED", "FAIL": "IT DID NOT WORK", "INCONCLUSIVE": "CANNOT BE JUDGED"}


def verification_line(one: Verification, today: date | None) -> str:
    """``IT WORKED 05:10 UTC, same traffic before and after: TTFT mean 1.8 → 0.06 s (forecast
    0.08)``; ``today``: its times have no date, None = each has one.
    """
    if one.verdict == "open" or one.closed_at is None:
        return f"not yet: {one.reason or 'waiting for minutes to compare'}"
    is_slower = one.reason == SLOWER
    word = SLOWER.upper() if is_slower else OUTCOMES[one.verdict]
    word, effects = f"{word} {moment(one.closed_at, today)}", _effect_texts(one)
    if not effects or one.verdict == "INCONCLUSIVE":
        return f"{word}: {one.reason}"
    why = "" if is_slower or one.verdict == "PASS" else f" {one.reason},"
    missed = one.still_missed_ratio
    still = "" if missed is None else f"; {percent(missed)} of requests still miss a target"
    return f"{word},{why} same traffic before and after: {', '.join(effects)}{still}"


def minutes_text(before: int, after: int) -> str:
    """The minutes that a verdict compares."""
    return (
        f"Compared: {before} min before the change with {after} min after it, at the same load and "
        "lengths"
    )


def verification_texts(one: Verification, today: date | None) -> list[str]:
    """The line for line 1, longest first: with fewer figures, then the verdict alone."""
    line = verification_line(one, today)
    shorter = [line[:at] for at in range(len(line) - 1, 0, -1) if line[at] in ",;("]
    return [line, *(text.rstrip() for text in shorter if text.count("(") == text.count(")"))]


def changed_text(one: Verification) -> str:
    """``max_num_seqs 8 → 40``: the change."""
    return "; ".join(
        f"{name} {_setting(before)} → {_setting(after)}"
        for name, (before, after) in one.change.what.items()
    )


def _setting(value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, int | float):
        return knob(value)
    return re.sub(r"^at least (\S+)", r"\1 or more", clean(str(value)))


def _effect_texts(one: Verification) -> list[str]:
    beside = [effect for effect in one.effects[1:] if effect.name in _BESIDE][: _LIMIT - 1]
    return [effect_text(effect) for effect in (*one.effects[:1], *beside)]


def effect_text(effect: Effect) -> str:
    """``TTFT mean 1.8 → 0.06 s (forecast 0.08)``."""
    text = f"{WORDS.get(effect.name, effect.name)} {from_to(effect)}"
    if (forecast := effect.forecast) is None:
        return text
    number, _, unit = value_text(forecast, effect).rpartition(" ")
    same = number and value_text(effect.after, effect).endswith(f" {unit}")
    return f"{text} (forecast {number if same else value_text(forecast, effect)})"


def from_to(effect: Effect) -> str:
    """``1.8 → 0.06 s``: the unit once where both have the same."""
    one, other = (value_text(value, effect) for value in (effect.before, effect.after))
    unit = other.rpartition(" ")[2]
    return f"{one.removesuffix(f' {unit}') if ' ' in other else one} → {other}"


def value_text(value: float, effect: Effect) -> str:
    """A value of the effect's figure, with its unit."""
    unit, name = effect.unit, effect.name
    if name == "itl_seconds_mean":
        return milliseconds(value)
    if unit == "seconds":
        return "0 s" if value == 0 else seconds(value)
    if unit == "1":
        return percent(value)
    return figure(value)


def difference_text(effect: Effect) -> str:
    """The bounds of after - before, in the figure's unit: ``-2.5…-0.6 s``; small ones in ms."""
    low, high = effect.low, effect.high
    small = effect.unit == "seconds" and max(abs(low), abs(high)) < _MILLISECONDS_BELOW
    if effect.name == "itl_seconds_mean" or small:
        return f"{_signed(low * 1000)}…{_signed(high * 1000)} ms"
    if effect.unit == "1":
        return f"{_signed(low * 100)}…{_signed(high * 100)} points"
    if effect.unit == "seconds":
        return f"{_signed_seconds(low)}…{_signed_seconds(high)} s"
    return f"{_signed(low)}…{_signed(high)}"


def _signed(value: float) -> str:
    return "0" if value == 0 else f"{'+' if value > 0 else '-'}{figure(abs(value), 2)}"


def _signed_seconds(value: float) -> str:
    if abs(value) < _FINE:  # hundredths would print as 0
        return _signed(value)
    return f"{'+' if value > 0 else '-'}{bare_seconds(abs(value))}"
