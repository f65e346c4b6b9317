"""Columns by the words that people search by, in any order: names, aliases, metrics, meanings."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache

from driftwatch.evidence import COLUMNS, Column

_WORD = re.compile(r"[a-z0-9]+")
# A shorter word has to be there whole: s, gpu, kv.
_PREFIX = 4
# What a word costs by where it is: whole in a name, begun in one; in a metric; in the meaning.
_IN_NAME, _BEGUN_IN_NAME, _IN_METRIC, _IN_MEANING, _BEGUN_IN_MEANING = 0, 1, 2, 4, 5
_WHOLE_NAME, _WHOLE_METRIC = -100, -50
_NEAREST = 3

MetricName = Callable[[str], str]  # an input of a column → what it is called on a page


def words_of(text: str) -> list[str]:
    """Words in lower case, without the s of a plural.

    >>> words_of("vllm:num_requests_waiting"), words_of("tokens/s/GPU")
    (['vllm', 'num', 'request', 'waiting'], ['token', 's', 'gpu'])
    """
    return [w[:-1] if len(w) > 3 and w.endswith("s") else w for w in _WORD.findall(text.lower())]


def search(term: str, metric_name: MetricName = str) -> tuple[Column, ...]:
    """Columns that have every word of ``term``, those first that have them in name and aliases."""
    words = words_of(term)
    costs = ((_cost(column, words, metric_name), n) for n, column in enumerate(COLUMNS))
    return tuple(COLUMNS[n] for cost, n in sorted((c, n) for c, n in costs if c is not None))


def nearest(term: str, metric_name: MetricName = str) -> tuple[Column, ...]:
    """Where no column has every word: those that have most of them, else words like them."""
    words = words_of(term)
    if hits := _with_most(words, metric_name):
        return hits
    close = [_closest(word, metric_name) for word in words]
    return _with_most([word for word in close if word is not None], metric_name)


def _with_most(words: Sequence[str], metric_name: MetricName) -> tuple[Column, ...]:
    """The columns with most of the words, the cheapest first; none where no word is anywhere."""
    ranked = []
    for number, column in enumerate(COLUMNS):
        costs = (_cost(column, [word], metric_name) for word in words)
        there = [cost for cost in costs if cost is not None]
        if there:
            ranked.append((-len(there), sum(there), number))
    return tuple(COLUMNS[number] for _, _, number in sorted(ranked)[:_NEAREST])


def _cost(column: Column, words: Sequence[str], metric_name: MetricName) -> int | None:
    """The sum over the words; None where one of them is nowhere."""
    if not words:
        return None
    if words == words_of(column.name):
        return _WHOLE_NAME
    if any(words == words_of(metric_name(source)) for source in column.sources):
        return _WHOLE_METRIC + len(column.sources)  # one that is of it alone first
    named, metrics, meaning = _texts(column, metric_name)
    total = 0
    for word in words:
        if word in named:
            cost = _IN_NAME
        elif _begins(word, named):
            cost = _BEGUN_IN_NAME
        elif word in metrics:
            cost = _IN_METRIC
        elif word in meaning:
            cost = _IN_MEANING
        elif _begins(word, meaning):
            cost = _BEGUN_IN_MEANING
        else:
            return None
        total += cost
    return total


def _begins(word: str, of: Iterable[str]) -> bool:
    return len(word) >= _PREFIX and any(one.startswith(word) for one in of)


@cache
def _texts(
    column: Column, metric_name: MetricName
) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Words of a column's name, aliases and unit; of its metrics; of its meaning."""
    named = " ".join((column.name, *column.aliases, column.unit))
    metrics = " ".join(metric_name(source) for source in column.sources)
    return (
        frozenset(words_of(named)),
        frozenset(words_of(metrics)),
        frozenset(words_of(column.meaning)),
    )


def _closest(word: str, metric_name: MetricName) -> str | None:
    every = sorted({w for column in COLUMNS for text in _texts(column, metric_name) for w in text})
    return next(iter(difflib.get_close_matches(word, every, n=1)), None)
