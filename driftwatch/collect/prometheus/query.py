"""What is asked of a Prometheus API: selectors, one query per metric, and the grid in time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby

import numpy as np
import numpy.typing as npt
import orjson

from driftwatch.collect.registry import REGISTRY, Metric
from driftwatch.errors import UsageError

MAX_POINTS = 10_000  # per series and query; Prometheus refuses more than 11,000

Labels = Mapping[str, str]
Numbers = npt.NDArray[np.int64]
_SHOWN_CHARACTERS = 200
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_PARTS = ("_bucket", "_sum", "_count")


# Label → its value, or the values of which it has one.
Selector = Mapping[str, str | Sequence[str]]


def matchers(selector: Selector) -> str:
    r"""Label matchers of a selector, each value as a PromQL string.

    >>> matchers({"job": 'a"b\\c'})
    'job="a\\"b\\\\c"'
    >>> matchers({"job": ["a.b", "c"]})
    'job=~"a\\\\.b|c"'

    Raises:
        UsageError: a name that is no label name, or a value that is no text.
    """
    return ",".join(_matcher(_label(name), value) for name, value in selector.items())


def _matcher(name: str, value: str | Sequence[str]) -> str:
    if isinstance(value, str):
        return f"{name}={_quoted(name, value)}"
    if len(value) == 1:
        return f"{name}={_quoted(name, value[0])}"
    return f"{name}=~{_quoted(name, '|'.join(map(_literally, value)))}"


def _literally(value: str) -> str:
    """As a regular expression of RE2, which refuses needless escapes (of a blank)."""
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", value)


def _label(name: str) -> str:
    if not _LABEL_NAME.fullmatch(name) or name == "__name__":
        raise UsageError(f"{name!r} is not a label that targets can be selected by")
    return name


def _quoted(name: str, value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"the value of label {name!r} is not valid text") from None
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def select(names: tuple[str, ...], matching: str) -> str:
    """A selector for series of any of these metric names."""
    if len(names) == 1:
        return f"{names[0]}{{{matching}}}" if matching else names[0]
    either = "|".join(re.escape(name) for name in names).replace("\\", "\\\\")
    inside = f'__name__=~"{either}"' + (f",{matching}" if matching else "")
    return f"{{{inside}}}"


@dataclass(frozen=True, slots=True)
class Query:
    """One query and the columns that it feeds."""

    text: str  # PromQL
    metrics: tuple[Metric, ...]  # what is read from its answer; all of one wire name
    # sample name → (0 for the current wire name, 1 for the newest old one …, suffix)
    ranks: Mapping[str, tuple[int, str]]

    @property
    def columns(self) -> tuple[str, ...]:
        """Registry columns fed by it."""
        return tuple(metric.column for metric in self.metrics)


def queries(selector: Selector) -> tuple[Query, ...]:
    """One query for each wire name of the registry, its old names in the same query."""
    matching = matchers(selector)
    result: list[Query] = []
    ordered = sorted(REGISTRY, key=lambda metric: metric.wire_name)
    for wire_name, group in groupby(ordered, key=lambda metric: metric.wire_name):
        metrics = tuple(group)
        old = (o.wire_name for metric in metrics for o in metric.old_names)
        families = tuple(dict.fromkeys((wire_name, *old)))
        suffixes = _PARTS if metrics[0].type == "histogram" else ("",)
        ranks = {
            family + suffix: (rank, suffix)
            for rank, family in enumerate(families)
            for suffix in suffixes
        }
        result.append(Query(select(tuple(ranks), matching), metrics, ranks))
    return tuple(result)


@dataclass(frozen=True, slots=True)
class Grid:
    """Evaluation times of a range query: ``first``, ``first + step`` … ``last``, in unix ms."""

    first: int
    last: int
    step: int

    @property
    def points(self) -> int:
        """How many times there are."""
        return (self.last - self.first) // self.step + 1

    @property
    def all(self) -> npt.NDArray[np.int64]:
        """Each of them."""
        return np.arange(self.first, self.last + 1, self.step)

    def chunks(self, points: int = MAX_POINTS) -> Iterator[Grid]:
        """The same times in pieces of at most ``points``, none of them twice."""
        for start in range(self.first, self.last + 1, self.step * points):
            end = min(start + self.step * (points - 1), self.last)
            yield Grid(start, end, self.step)


def grid(since: datetime, until: datetime, step_seconds: float) -> Grid | None:
    """The grid of the half-open interval [since, until), None where it is empty.

    It ends 1 ms before ``until`` (a query at ``until`` itself would bring a sample of the next
    interval) and goes back in whole steps, so that the last scrape of an interval is never lost
    between two intervals.
    """
    first, end = unix_ms(since), unix_ms(until)
    step = max(1, round(step_seconds * 1000))
    last = end - 1
    if last < first:
        return None
    return Grid(last - (last - first) // step * step, last, step)


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(unix_ms: int) -> datetime:
    """The moment of a grid time."""
    return EPOCH + timedelta(milliseconds=unix_ms)


def unix_ms(moment: datetime) -> int:
    """Unix ms, rounded up: the first ms that is not before ``moment``."""
    return -(-round(moment.timestamp() * 1_000_000) // 1000)


def labels_of(head: bytes) -> dict[str, str]:
    """The labels that a head holds."""
    labels: dict[str, str] = orjson.loads(head)
    return labels


def short_name(labels: Labels) -> str:
    """A series as problems name it, shortened."""
    rest = ",".join(f'{k}="{v}"' for k, v in sorted(labels.items()) if k != "__name__")
    text = f"{labels.get('__name__', '')}{{{rest}}}"
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
