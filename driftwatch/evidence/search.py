"""Search columns by words in any order: in names, aliases, metrics and meanings."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

from driftwatch.evidence import COLUMNS, Column

_WORD = re.compile(r"[a-z0-9]+")
_NEAREST = 3

MetricName = Callable[[str], str]  # an input of a column → its name on a page


def words_of(text: str) -> list[str]:
    """Words in lower case, without the s of a plural.

    >>> words_of("vllm:num_requests_waiting"), words_of("tokens/s/GPU")
    (['vllm', 'num', 'request', 'waiting'], ['token', 's', 'gpu'])
    """
    return [w[:-1] if len(w) > 3 and w.endswith("s") else w for w in _WORD.findall(text.lower())]


def search(term: str, metric_name: MetricName = str) -> tuple[Column, ...]:
    """Columns that have every word of ``term``; matches in name and aliases come first."""
    return _best(words_of(term), metric_name, every=True)


def nearest(term: str, metric_name: MetricName = str) -> tuple[Column, ...]:
    """The columns with most words of ``term``."""
    return _best(words_of(term), metric_name)[:_NEAREST]


def _best(
    words: Sequence[str], metric_name: MetricName, *, every: bool = False
) -> tuple[Column, ...]:
    """Columns by the number of words found, then by where the words stand."""
    ranked = []
    for number, column in enumerate(COLUMNS):
        texts = _texts(column, metric_name)
        places = [next((n for n, text in enumerate(texts) if w in text), None) for w in words]
        there = [place for place in places if place is not None]
        if there and (len(there) == len(words) or not every):
            is_whole = set(words) == texts[0]
            inputs = len(column.sources) if max(there) == 2 else 0  # of one metric alone first
            ranked.append((-len(there), not is_whole, sum(there), inputs, number))
    return tuple(COLUMNS[number] for *_, number in sorted(ranked))


@cache
def _texts(column: Column, metric_name: MetricName) -> tuple[frozenset[str], ...]:
    """Words of a column's name; of its aliases and unit; of its metrics; of its meaning."""
    texts = (
        column.name,
        " ".join((*column.aliases, column.unit)),
        " ".join(metric_name(source) for source in column.sources),
        column.meaning,
    )
    return tuple(frozenset(words_of(text)) for text in texts)
