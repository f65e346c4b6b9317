"""How a number, a time or a label is written for people: three digits, units, UTC.

Pure functions of their arguments; every renderer uses these, so that a page reads the same on
a phone, in a terminal and in a ticket.
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime

ELLIPSIS = "…"
# ln 1.15 is the smallest shift of a mean that counts as one
AS_BEFORE = (1 / 1.15, 1.15)


def figure(value: float, digits: int = 3) -> str:
    """A number with ``digits`` significant digits and thousands separators.

    >>> figure(5284), figure(94.8), figure(1.655), figure(0.234, 2), figure(12)
    ('5,280', '94.8', '1.66', '0.23', '12.0')
    """
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    # rounding may carry into the next digit: 9.996 is 10.0, not 10.00
    magnitude = math.floor(math.log10(abs(round(value, digits - 1 - magnitude)))) if value else 0
    decimals = digits - 1 - magnitude
    return f"{round(value, decimals):,.{max(0, decimals)}f}"


def brief(value: float) -> str:
    """Three digits without the zeros at their end, for a page.

    >>> brief(15.0), brief(8.7), brief(16.5), brief(2990.0)
    ('15', '8.7', '16.5', '2,990')
    """
    text = figure(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def count(value: float) -> str:
    """A mean of a counted thing: whole where it is whole or at least 10, else two digits.

    >>> count(8.0), count(7.875), count(28.4), count(0.0), count(26930)
    ('8', '7.9', '28', '0', '26,930')
    """
    if value == round(value) or abs(value) >= 10:
        return f"{round(value):,}"
    return figure(value, 2)


def plural(number: float, noun: str) -> str:
    """``1 request``, ``28 requests``."""
    text = count(number)
    return f"{text} {noun}" if text == "1" else f"{text} {noun}s"


def tokens(mean: float) -> str:
    """A mean length: whole from a hundred on."""
    return f"{round(mean):,}" if mean >= 100 else figure(mean)


def knob(value: float) -> str:
    """A setting as vLLM takes it: no separators.

    >>> knob(2048.0), knob(0.9)
    ('2048', '0.9')
    """
    return str(int(value)) if value == int(value) else f"{value:g}"


def setting(name: str, before: float | None, after: float, provenance: str | None) -> str:
    """A setting's move; a value of today that is unknown, or inferred, says so.

    >>> setting("max_num_seqs", 8.0, 40.0, "inferred"), setting("max_num_seqs", None, 40.0, None)
    ('max_num_seqs 8 (inferred) → 40', 'max_num_seqs (now unknown) → 40')
    """
    was = "(now unknown)" if before is None else knob(before)
    inferred = " (inferred)" if before is not None and provenance == "inferred" else ""
    return f"{name} {was}{inferred} → {knob(after)}"


def percent(ratio: float) -> str:
    """A share in percent; a share short of all or nothing is never printed as either.

    >>> percent(0.987), percent(0.9991), percent(0.013), percent(0.0004), percent(1.0)
    ('99 %', '>99 %', '1.3 %', '<0.1 %', '100 %')
    """
    scaled = ratio * 100
    if 0 < scaled < 0.1:
        return "<0.1 %"
    if 99.5 <= scaled < 100:
        return ">99 %"
    if 0 < scaled < 9.95:
        return f"{scaled:.1f} %".replace(".0 %", " %")
    return f"{scaled:,.0f} %"


def percent_range(low: float, high: float) -> str:
    """A share that is known between two bounds; one figure where they print alike.

    >>> percent_range(0.61, 0.987), percent_range(0.987, 0.9871), percent_range(0.996, 1.0)
    ('61–99 %', '99 %', 'over 99 %')
    """
    one, other = percent(low), percent(high)
    if one == ">99 %":
        return "over 99 %"
    return one if one == other else f"{one.removesuffix(' %')}–{other}"


def rate(requests_per_second: float) -> str:
    """As ``15.0 req/s``."""
    return f"{figure(requests_per_second)} req/s"


def change(ratio: float) -> str:
    """A ratio as a change in percent, for rates.

    >>> change(0.57), change(1.28), change(1.0)
    ('-43 %', '+28 %', '0 %')
    """
    percents = round((ratio - 1) * 100)
    return f"{percents:+,} %" if percents else "0 %"


def tenth_percent(log_ratio: float) -> str:
    """The logarithm of a ratio as a change in percent, to a tenth.

    >>> tenth_percent(-0.043)
    '-4.2 %'
    """
    return f"{100 * math.expm1(log_ratio):+.1f} %"


def is_as_before(ratio: float) -> bool:
    """Whether a ratio to the reference counts as no change."""
    return AS_BEFORE[0] <= ratio <= AS_BEFORE[1]


def times(ratio: float, digits: int = 2) -> str:
    """A ratio of lengths.

    >>> times(2.34), times(2.34, 3), times(0.663, 3), times(0.9976, 3)
    ('×2.3', '×2.34', '×0.66', '×1.00')
    """
    # after rounding: 0.998 beside 1.02 is ×1.00 beside ×1.02
    factor = 1.0 if round(ratio, 2) == 1 else ratio
    return f"×{figure(factor, 2 if factor < 1 else digits)}"


def bare_seconds(value: float, digits: int = 2) -> str:
    """Seconds without their unit, never finer than a hundredth.

    >>> bare_seconds(1.655), bare_seconds(1.655, 3), bare_seconds(0.0612), bare_seconds(12.3)
    ('1.7', '1.66', '0.06', '12')
    """
    if abs(value) < 1:
        return f"{value:.2f}"
    return figure(value, digits)


def seconds(value: float, digits: int = 2) -> str:
    """A wait or a time to first token; below 5 ms in milliseconds.

    >>> seconds(1.7), seconds(0.06), seconds(0.0031), seconds(0.0), seconds(1.0)
    ('1.7 s', '0.06 s', '3.1 ms', '0 s', '1.0 s')
    """
    if value == 0:
        return "0 s"
    if abs(value) < 0.005:
        return f"{figure(value * 1000, digits)} ms"
    return f"{bare_seconds(value, digits)} s"


# the window over which waiting requests are held against first tokens
_QUEUE_WINDOW_SECONDS = 600.0


def queue_wait(value: float) -> str:
    """The wait that a queue makes, by Little's law over ten minutes; beyond them it is a bound.

    Where next to nothing is served it would be days, of a queue that is some minutes old.

    >>> queue_wait(54.06), queue_wait(400.0), queue_wait(210_000.0)
    ('54.1 s', '7 min', 'over 10 min')
    """
    if value > _QUEUE_WINDOW_SECONDS:
        return f"over {duration(_QUEUE_WINDOW_SECONDS)}"
    return duration(value) if value >= 60 else seconds(value, 3)


def milliseconds(value: float) -> str:
    """A time per token, in milliseconds up to a second.

    >>> milliseconds(0.05), milliseconds(0.0131), milliseconds(0.0241), milliseconds(1.5)
    ('50 ms', '13.1 ms', '24.1 ms', '1.50 s')
    """
    if value >= 1:
        return seconds(value, 3)
    text = figure(value * 1000)
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} ms"


def clock_seconds(start: datetime, end: datetime) -> float:
    """Seconds between two times as they are printed: to the minute, so that the two add up.

    Less than a minute on the clock stays as it is.

    >>> day = datetime(2026, 11, 18, 2, 45, 50, tzinfo=UTC)
    >>> clock_seconds(day, day.replace(hour=3, minute=2, second=1)) / 60
    17.0
    """
    one, other = (at.replace(second=0, microsecond=0) for at in (start, end))
    return (other - one).total_seconds() or (end - start).total_seconds()


def duration(value: float) -> str:
    """How long something lasted.

    >>> duration(45), duration(71 * 60), duration(200 * 60), duration(51 * 3600)
    ('45 s', '71 min', '3 h 20 min', '2 d 3 h')
    """
    if value < 60:
        return f"{round(value)} s"
    minutes = round(value / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def utc_text(at: datetime) -> str:
    """ISO 8601 in UTC with ``Z``; whole minutes and seconds stay short.

    >>> utc_text(datetime(2026, 11, 18, 2, 45, tzinfo=UTC))
    '2026-11-18T02:45:00Z'
    """
    at = at.astimezone(UTC)
    spec = "milliseconds" if at.microsecond else "seconds"
    return at.isoformat(timespec=spec).replace("+00:00", "Z")


def moment(at: datetime, today: date | None) -> str:
    """A time of day in UTC, with its date unless it is ``today`` (None: always with the date).

    >>> moment(datetime(2026, 11, 18, 2, 45, tzinfo=UTC), date(2026, 11, 18))
    '02:45 UTC'
    >>> moment(datetime(2026, 11, 17, 23, 5, tzinfo=UTC), date(2026, 11, 18))
    '2026-11-17 23:05 UTC'
    """
    at = at.astimezone(UTC)
    return f"{at:%H:%M} UTC" if at.date() == today else f"{at:%Y-%m-%d %H:%M} UTC"


def span(start: datetime, end: datetime) -> str:
    """From when to when; the dates only where the days differ.

    >>> day = datetime(2026, 11, 18, 2, 45, tzinfo=UTC)
    >>> span(day, day.replace(hour=3, minute=56))
    '02:45–03:56 UTC'
    """
    start, end = start.astimezone(UTC), end.astimezone(UTC)
    if start.date() == end.date():
        return f"{start:%H:%M}–{end:%H:%M} UTC"
    return f"{start:%Y-%m-%d %H:%M} – {end:%Y-%m-%d %H:%M} UTC"


def clean(text: str) -> str:
    """A label as one harmless line: control, bidirectional and invisible characters are spelt out.

    >>> clean("a\\nb"), clean("x\\u202ey")
    ('a\\\\nb', 'x\\\\u202ey')
    """
    if text.isprintable():
        return text
    return "".join(
        ch if ch.isprintable() else ch.encode("unicode_escape").decode("ascii") for ch in text
    )


def cut(text: str, limit: int) -> str:
    """The text, at most ``limit`` characters, cut with an ellipsis at a word where it can be.

    >>> cut("requests wait long", 14)
    'requests wait…'
    """
    if len(text) <= limit:
        return text
    head = text[: max(0, limit - 1)]
    word = head.rsplit(" ", 1)[0] if not text[len(head) : len(head) + 1].isspace() else head
    if len(word) >= limit * 2 // 3:
        head = word
    return head.rstrip(" ,;:.") + ELLIPSIS


def squeeze(text: str, limit: int) -> str:
    """A long name with its middle cut: both ends tell machines apart.

    >>> squeeze("vllm-rag-8b-6f7c9d5b4-x2x9p.prod:8000", 21)
    'vllm-rag-8….prod:8000'
    """
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 2
    return f"{text[: limit - 1 - tail]}{ELLIPSIS}{text[len(text) - tail :]}"
