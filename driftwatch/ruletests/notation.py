"""The notation of a series, as promtool's unit tests have it: ``0+10x5 _ 1.2x3``.

Items stand between spaces, a value a minute. ``axn`` is a and n more of it, ``a+bxn`` a and n more,
each by b larger, ``_`` is unknown, ``_xn`` n times so, ``stale`` as ``_``. Columns of text and of
true or false take words in place of numbers; a word with a space stands in single quotes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal

from driftwatch.evidence import DType

Value = float | bool | str | None

MOST_MINUTES = 10_080  # a week

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_ITEM = re.compile(r"'[^']*'(?:x\d+)?(?=\s|$)|\S+")
_OF_NUMBERS = re.compile(rf"({_NUMBER})(?:([+-])({_NUMBER}))?(?:x(\d+))?")
_OF_WORDS = re.compile(r"(?:'([^']*)'|(.+?))(?:x(\d+))?")
_UNKNOWN = re.compile(r"_(?:x(\d+))?|stale")
_TRUTHS: Mapping[str, bool] = {"true": True, "false": False}
_EXAMPLES: Mapping[DType, str] = {
    "float": "write 1.2, 1.2x5, 0+10x5 or _",
    "bool": "write true, false, truex5 or _",
    "string": "write kv_cache, kv_cachex5, 'two words' or _",
}


class NotationError(ValueError):
    """An item that cannot be read: why, where in the text (from 0), and how to write it."""

    def __init__(self, message: str, start: int, length: int, help_text: str | None = None) -> None:
        self.start, self.length, self.help_text = start, length, help_text
        super().__init__(message)


def values_of(text: str, dtype: DType) -> list[Value]:
    """A value a minute.

    >>> values_of("0+10x2 _ 1.2", "float")
    [0.0, 10.0, 20.0, None, 1.2]
    >>> values_of("kv_cachex1 stale", "string")
    ['kv_cache', 'kv_cache', None]

    Raises:
        NotationError: an item cannot be read, or there are more than :data:`MOST_MINUTES`.
    """
    values: list[Value] = []
    last = ""
    for match in _ITEM.finditer(text):
        item, start = match[0], match.start()
        if last and re.fullmatch(r"x\d+", item):
            help_text = f"no space: {last}{item}"
            raise NotationError(f"{item} repeats no value", start, len(item), help_text)
        last = item
        form = _OF_NUMBERS if dtype == "float" else _OF_WORDS
        found = _UNKNOWN.fullmatch(item) or form.fullmatch(item)
        times = found[found.re.groups] if found else None
        count = int(times[:9]) if times else 0
        if len(values) + count + 1 > MOST_MINUTES:
            message = f"more than {MOST_MINUTES:,} minutes"
            raise NotationError(message, start, len(item), "a series is a week at most")
        if found and found.re is _UNKNOWN:
            values += [None] * (count if times else 1)
        elif dtype == "float":
            values += _numbers(item, start, found, count)
        else:
            values += [_word(item, start, dtype, found)] * (count + 1)
    if not values:
        raise NotationError("no value", 0, max(len(text), 1), _EXAMPLES[dtype])
    return values


def holds_throughout(text: str) -> bool:
    """One value by itself, which holds in every minute of the test.

    >>> holds_throughout("1.2"), holds_throughout("1.2x0"), holds_throughout("1 2")
    (True, False, False)
    """
    items = _ITEM.findall(text)
    return len(items) == 1 and re.search(r"x\d+$", items[0]) is None


def _numbers(item: str, start: int, found: re.Match[str] | None, count: int) -> list[Value]:
    if found is None:  # what of it is a number, and what is left over
        number = re.match(rf"{_NUMBER}(?:[+-]{_NUMBER})?(?:x\d+)?", item)
        at = number.end() if number else 0
        word = "is no number from here on" if at else "is no number"
        message = f"{item!r:.40} {word}"
        raise NotationError(message, start + at, len(item) - at, _EXAMPLES["float"])
    first, sign, step, times = found.groups()
    if step is not None and times is None:
        help_text = f"write how many values follow: {item}x5"
        raise NotationError("a count is missing", start, len(item), help_text)
    try:
        by = Decimal(f"{sign}1") * Decimal(step) if step is not None else Decimal(0)
        numbers = [float(Decimal(first) + i * by) for i in range(count + 1)]
    except ArithmeticError:  # an exponent of seven digits
        numbers = [math.inf]
    if not all(map(math.isfinite, numbers)):
        raise NotationError("a finite number is wanted here", start, len(item))
    return list(numbers)


def _word(item: str, start: int, dtype: DType, found: re.Match[str] | None) -> Value:
    quoted, plain, _ = found.groups() if found else (None, item, None)
    word = plain if quoted is None else quoted
    if dtype != "bool":
        return word
    if quoted is not None or word not in _TRUTHS:
        message = f"{item!r:.40} is neither true nor false"
        raise NotationError(message, start, len(item), _EXAMPLES[dtype])
    return _TRUTHS[word]
