"""Which names and targets a Prometheus-compatible API has: prefixes, other engines, intervals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from driftwatch.collect.cells import OWN_LABELS, SHAPE_PATTERN, VLLM, prefixes_of
from driftwatch.collect.foreign import is_known, without_vllm
from driftwatch.collect.identity import identity_of
from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.query import matchers, select, unix_ms
from driftwatch.errors import SourceError

# one series per engine each: who is there
_ENGINE_SERIES = ("vllm:num_requests_running", "vllm:generation_tokens_total")
_LOOK_BACK_MS = 300_000  # over which the time between two scrapes is taken
_MOST = 20  # targets that one call looks up
# what Prometheus itself adds to a target
_ITS_OWN = ("scrape_", "ALERTS")


def look_for_prefixes(
    asker: PrometheusAsker, matching: str, at: datetime, back: timedelta = timedelta(minutes=5)
) -> frozenset[str]:
    """What stands before vLLM's names there, ``vllm:`` always among it: relabelling, Ray and KServe
    write others.

    Raises SourceError: the API does not list names.
    """
    inside = f'__name__=~"{SHAPE_PATTERN}"' + (f",{matching}" if matching else "")
    span = (unix_ms(at - back), unix_ms(at))
    return prefixes_of(asker.label_values("__name__", [f"{{{inside}}}"], span)) | {VLLM}


def vllm_servers(asker: PrometheusAsker, at: datetime) -> int:
    """How many servers have a series of vLLM, whatever their labels.

    Raises SourceError: the API does not answer.
    """
    series = asker.instant(select(_ENGINE_SERIES, ""), at)
    return len({identity_of(labels, OWN_LABELS) for labels, _ in series})


@dataclass(frozen=True, slots=True)
class Scraped:
    """One target of the API, by its ``up`` series."""

    labels: Mapping[str, str]  # of the series, without its name
    up: bool  # the newest scrape succeeded
    time: float | None  # of the newest scrape, unix seconds; None = none in 5 min
    interval_seconds: float | None  # true time between two scrapes, None = too few of them


def scraped(asker: PrometheusAsker, match: Mapping[str, str], at: datetime) -> list[Scraped]:
    """Every target with these labels, and how often it is really scraped.

    Raises SourceError: the API does not answer; UsageError: a label that cannot be matched.
    """
    up = select(("up",), matchers(match))
    newest = {_key(labels): value for labels, value in asker.instant(up, at)}
    last_ms = unix_ms(at)
    samples = asker.raw(up, last_ms - _LOOK_BACK_MS, last_ms)
    ends = np.searchsorted(samples.series, np.arange(len(samples.heads) + 1))
    times = {
        _key(labels): samples.time[first:last] / 1e6
        for labels, first, last in zip(samples.labels, ends, ends[1:], strict=False)
    }
    found = []
    for key, value in sorted(newest.items()):
        own = times.get(key, np.empty(0))
        interval = round(float(own[-1] - own[0]) / (len(own) - 1), 1) if len(own) > 1 else None
        last = float(own[-1]) if len(own) else None
        found.append(Scraped(dict(key), value == 1, last, interval))
    return found


_Key = tuple[tuple[str, str], ...]


def _key(labels: Mapping[str, str]) -> _Key:
    return tuple(sorted((k, v) for k, v in labels.items() if k != "__name__"))


def why_no_vllm(asker: PrometheusAsker, instances: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Instance → why it has no ``vllm:`` series; for up to 20, where the API answers.

    ``instances``: with ``up`` 1 and no ``vllm:`` series now.
    """
    for instance in sorted(instances)[:_MOST]:
        try:
            names = asker.label_values("__name__", [f"{{{matchers({'instance': instance})}}}"])
        except SourceError:
            continue  # what the rows say without it stays true
        yield instance, _what(names)


def _what(names: Iterable[str]) -> str:
    """As :func:`without_vllm`, of names that other times and recording rules left behind."""
    own = [n for n in names if n != "up" and not n.startswith((*_ITS_OWN, "vllm:"))]
    exporters = [n for n in own if ":" not in n]  # level:metric:operations is a rule's name
    return without_vllm(own if is_known(own) else exporters)
