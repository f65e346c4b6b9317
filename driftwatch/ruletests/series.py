"""Series of a test → evidence rows, a row per target and minute.

The notation of a series, as promtool's unit tests have it: ``0+10x5 _ 1.2x3``.

Items stand between spaces, a value a minute. ``axn`` is a and n more of it, ``a+bxn`` a and n more,
each by b larger, ``_`` is unknown, ``_xn`` n times so, ``stale`` as ``_``. Columns of text and of
true or false take words in place of numbers; a word with a space stands in single quotes.
"""

from __future__ import annotations

import math
import re
from collections import ChainMap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, cast

import polars as pl

from driftwatch.diagnose.evidence_table import WINDOW_SCHEMA, evidence_table, no_rows
from driftwatch.diagnose.states import STATES, with_states
from driftwatch.evidence import BY_NAME, Column, DType
from driftwatch.model import Slo, Target, TargetKey
from driftwatch.ruletests.cases import INHERITS, RuleTest, RuleTestFile
from driftwatch.signals.rows import SERVING_SCHEMA
from driftwatch.yaml_models import Location, near, near_or_all, node_at, place_of
from driftwatch.yaml_positions import Entries, Node, Place, Scalar, YamlFile, plain, read_yaml

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


# A Monday; the row at `at: 0m` ends then.
START = datetime(2026, 1, 5, tzinfo=UTC)
SHIPPED_BASES = Path(__file__).with_name("bases.yaml")
Row = dict[str, Value]


@dataclass(frozen=True, slots=True)
class Places:
    """A part of a test file, by the location of its mapping."""

    file: YamlFile
    root: Entries
    begin: Location = ()

    def at(self, *location: str | int) -> Place:
        """The place of a value, of its key before "[key]"; else of the nearest thing above it."""
        return place_of(self.root, (*self.begin, *location))

    def node(self, *location: str | int) -> Node | None:
        """What stands there; None where nothing does."""
        return node_at(self.root, (*self.begin, *location))

    def add(
        self,
        location: Location,
        code: str,
        message: str,
        help_text: str | None = None,
        *,
        span: tuple[int, int] | None = None,
    ) -> None:
        """Note a problem; ``span``: where in the text it starts (from 0), and how long it is."""
        place, node = self.at(*location), self.node(*location)
        if span is not None and isinstance(node, Scalar):
            if isinstance(node.value, str):
                place = self.file.inside(node, 1, span[0] + 1, span[1])
            else:  # a plain word that YAML took for a number
                place = Place(place.line, place.column + span[0], span[1])
        self.file.add(place, code, message, help_text)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence of a test."""

    columns: Mapping[str, Mapping[str, list[Value]]]  # target → column → a value a minute
    pools: Mapping[str, str]  # target → pool
    minutes: int  # how many minutes its series have
    slo: Slo = field(default_factory=Slo)  # latency targets of its pools

    @property
    def targets(self) -> dict[TargetKey, Target]:
        """Its targets with their pools."""
        keys = {name: TargetKey(name, "0") for name in self.columns}
        return {key: Target(key, {}, self.pools[name]) for name, key in keys.items()}

    def rows(self) -> pl.DataFrame:
        """Evidence rows by end and target; what no series names is unknown."""
        frames = [self._rows(name, columns) for name, columns in self.columns.items()]
        return pl.concat(frames).sort("end", "instance")

    def _rows(self, name: str, columns: Mapping[str, list[Value]]) -> pl.DataFrame:
        schema = _row_schema()
        ends = [START + timedelta(minutes=minute) for minute in range(self.minutes)]
        head = {
            "instance": [name] * self.minutes,
            "engine": ["0"] * self.minutes,
            "pool": [self.pools[name]] * self.minutes,
            "start": [end - timedelta(minutes=1) for end in ends],
            "end": ends,
        }
        series: dict[str, Any] = {**head, **columns}
        frame = pl.DataFrame(
            {n: pl.Series(n, v, schema[n], strict=False) for n, v in series.items()}
        )
        unknown = [pl.lit(None, dtype).alias(n) for n, dtype in schema.items() if n not in series]
        given = frame.with_columns(unknown).select(list(schema))
        # a state follows from the other columns, unless the test says what it is
        return with_states(given).with_columns(given[state] for state in STATES if state in columns)


@cache
def _row_schema() -> Mapping[str, pl.DataType]:
    """The columns of an evidence row, those that only pages read among them."""
    serving = pl.DataFrame(schema=SERVING_SCHEMA)
    windows = pl.DataFrame(schema=WINDOW_SCHEMA)
    return dict(evidence_table(no_rows(), windows, serving=serving).schema)


def evidence_of(
    whole: RuleTestFile, test: RuleTest, of_file: Places, of_test: Places
) -> Evidence | None:
    """The evidence of a test with series; what is wrong with it is noted."""
    if test.series is None:
        return None
    base, pools = _base(whole, test.base, of_file, of_test), _pools(test, of_test)
    # target → column → a value a minute, or the one of every minute
    columns: dict[str, dict[str, Any]] = {target: dict(base) for target in pools}
    for target, series in test.series.items():
        for name in series:
            parsed = _notation(of_test, ("series", target, name), name)
            if parsed is not None:
                columns[target][name] = parsed[0][0] if parsed[1] else parsed[0]
    lengths = [len(v) for one in columns.values() for v in one.values() if isinstance(v, list)]
    last = max((one.at or 0.0 for one in test.expect), default=0.0)
    minutes = max(lengths, default=int(last // 60) + 1)
    for one in columns.values():
        for name, v in one.items():
            one[name] = [*v, *[None] * (minutes - len(v))] if isinstance(v, list) else [v] * minutes
    slo = Slo() if test.slo is None else Slo(**test.slo.model_dump())
    return Evidence(columns, pools, minutes, slo)


def _notation(places: Places, location: Location, column: str) -> tuple[list[Value], bool] | None:
    """The values, and whether the one of them holds throughout."""
    node = places.node(*location)
    if not isinstance(node, Scalar):
        return None
    # as it is written: YAML takes 0x4 for a number in hexadecimal
    text = node.value if isinstance(node.value, str) else node.raw
    if text in ("", "~", "null"):
        return [None], True
    try:
        values = values_of(text, BY_NAME[column].dtype)
    except NotationError as error:
        span = (error.start, error.length)
        places.add(location, "notation", str(error), error.help_text, span=span)
        return None
    for value in values:
        if (wrong := _out_of_range(value, BY_NAME[column])) is not None:
            places.add(location, "value", *wrong)
            break
    return values, holds_throughout(text)


def _out_of_range(value: Value, column: Column) -> tuple[str, str | None] | None:
    """What is wrong with a value that no row can have, and what would be right."""
    if isinstance(value, str) and column.words and value not in column.words:
        message = f"{column.name} is {', '.join(column.words[:-1])} or {column.words[-1]}"
        return message, near(value, column.words)
    if not isinstance(value, float):
        return None
    if column.high is not None and value > column.high:
        is_percent = column.high == 1.0 and value <= 100.0
        help_text = f"write {value / 100:g}" if is_percent else None
        return f"{column.name} is at most {column.high:g}", help_text
    if column.low is not None and value < column.low:
        return f"{column.name} is at least {column.low:g}", None
    return None


def _pools(test: RuleTest, places: Places) -> dict[str, str]:
    """target → pool; one that no pool names is a pool of its own."""
    pools: dict[str, str] = {}
    for pool, targets in test.pools.items():
        for number, target in enumerate(targets):
            if target in pools:
                message = f"{target} is in pool {pools[target]} already"
                places.add(("pools", pool, number), "duplicate", message)
            pools.setdefault(target, pool)
    return {target: target for target in test.series or {}} | pools


def _base(whole: RuleTestFile, name: str | None, of_file: Places, of_test: Places) -> Row:
    """The columns of a base with those of the bases that it begins with."""
    named_in, rows = of_test, dict[str, Row]()
    location: Location = ("base",)
    while name is not None and name in whole.bases and name not in rows:
        rows[name] = _row(of_file, ("bases", name), whole.bases[name])
        named_in, location = of_file, ("bases", name, INHERITS)
        begins = whole.bases[name].get(INHERITS)
        name = None if begins is None else str(begins)
    if name is not None and name in rows:
        circle = " → ".join([*rows, name])
        named_in.add(location, "circle", f"a base that begins with itself: {circle}")
    elif name is not None and name not in shipped_bases():
        hint = near_or_all(name, {*whole.bases, *shipped_bases()}, "bases")
        named_in.add(location, "unknown-base", f"there is no base {name}", hint)
    return dict(ChainMap(*rows.values(), dict(shipped_bases().get(name or "", {}))))


def _row(places: Places, begin: Location, columns: Iterable[str]) -> Row:
    """The columns of one base, a value each."""
    row: Row = {}
    for column in columns:
        location = (*begin, column)
        parsed = None if column == INHERITS else _notation(places, location, column)
        if parsed is not None and len(parsed[0]) > 1:
            message, help_text = "a base has one value a column", "series belong in a test"
            places.add(location, "notation", message, help_text)
        row |= {} if parsed is None else {column: parsed[0][0]}
    return row


@cache
def shipped_bases() -> Mapping[str, Row]:
    """The shipped rows by name."""
    file = read_yaml(SHIPPED_BASES)
    root = file.root if isinstance(file.root, Entries) else Entries(Place(1, 1))
    places, bases = Places(file, root), cast("Mapping[str, Row]", plain(root))
    return {name: _row(places, (name,), columns) for name, columns in bases.items()}
