"""Queries: label matchers, and the names of vLLM's series."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from driftwatch.collect.registry import REGISTRY, Metric, written_as
from driftwatch.errors import UsageError

_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

# Label → its value, or several values: it has one of them.
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
    parts = []
    for name, value in selector.items():
        if not _LABEL_NAME.fullmatch(name) or name == "__name__":
            raise UsageError(f"{name!r} is not a label that targets can be selected by")
        values = [value] if isinstance(value, str) else list(value)
        is_one = len(values) == 1
        text = values[0] if is_one else "|".join(map(literally, values))
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UsageError(f"the value of label {name!r} is not valid text") from None
        escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        parts.append(f'{name}{"=" if is_one else "=~"}"{escaped}"')
    return ",".join(parts)


def literally(value: str) -> str:
    """As a regular expression of RE2, which refuses needless escapes (of a blank)."""
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", value)


def select(names: Sequence[str], matching: str, any_case: bool = False) -> str:
    """A selector for series of any of these metric names."""
    if len(names) == 1 and not any_case:
        return f"{names[0]}{{{matching}}}" if matching else names[0]
    either = "|".join(map(literally, names)).replace("\\", "\\\\")
    either = f"(?i:{either})" if any_case else either
    inside = f'__name__=~"{either}"' + (f",{matching}" if matching else "")
    return f"{{{inside}}}"


# VictoriaMetrics refuses a question of more than 16 KiB.
MOST_BYTES = 12_000


def narrowed(selector: Selector, instances: Iterable[str]) -> list[str]:
    """Label matchers of the questions that together ask for these instances."""
    parts: list[list[str]] = [[]]
    size = 0
    for instance in sorted(instances):
        own = len(matchers({"instance": [instance, ""]}).encode())
        if parts[-1] and size + own > MOST_BYTES:
            parts.append([])
            size = 0
        size += own
        parts[-1].append(instance)
    return [matchers({**selector, "instance": part}) for part in parts if part]


@dataclass(frozen=True, slots=True)
class Question:
    """Series of one query."""

    names: tuple[str, ...]  # of samples, as on the wire
    columns: tuple[str, ...]  # of the registry, fed by them

    def written(self, prefixes: Iterable[str]) -> tuple[str, ...]:
        """The names as servers write them that have one of these prefixes."""
        return tuple(dict.fromkeys(written_as(n, p) for p in prefixes for n in self.names))

    @property
    def title(self) -> str:
        """How problems name it."""
        more = len(self.columns) - 1
        return self.names[0] if more <= 0 else f"{self.names[0]} and {more} more metrics"


def questions() -> Iterator[Question]:
    """Numbers first, for most verdicts hang on them, then each histogram, with its old names."""
    single = [metric for metric in REGISTRY if metric.type != "histogram" and _of_engine(metric)]
    yield _question(single)
    yield _question([metric for metric in REGISTRY if not _of_engine(metric)])
    for metric in REGISTRY:
        if metric.type == "histogram":
            yield _question([metric])


def _of_engine(metric: Metric) -> bool:
    return metric.wire_name.startswith("vllm:")


def _question(metrics: Iterable[Metric]) -> Question:
    names: dict[str, None] = {}
    columns = []
    for metric in metrics:
        names |= {family + part: None for family in metric.wire_names for part in metric.suffixes}
        columns.append(metric.column)
    return Question(tuple(names), tuple(columns))


def time_of(unix_ms: int) -> datetime:
    """The moment of a unix time in ms."""
    return datetime.fromtimestamp(unix_ms / 1000, UTC)


def unix_ms(moment: datetime) -> int:
    """Unix ms, rounded up: the first ms that is not before ``moment``."""
    return -(-round(moment.timestamp() * 1_000_000) // 1000)
