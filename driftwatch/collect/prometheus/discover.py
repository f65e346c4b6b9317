"""What a Prometheus-compatible API knows of vLLM servers: the questions of ``driftwatch init``.

A few instant queries for the whole fleet, none of them for a histogram's buckets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np
import polars as pl

from driftwatch.collect.cells import (
    OWN_LABELS,
    SHAPE_PATTERN,
    VLLM,
    Labels,
    prefixes_of,
    wire_names_of,
    written_as,
)
from driftwatch.collect.gpus import empty_gpus
from driftwatch.collect.identity import Identity, also_text, doubles, identity_of
from driftwatch.collect.identity import names as names_of
from driftwatch.collect.pages.foreign import STATS_DISABLED, is_known, without_vllm
from driftwatch.collect.prometheus.client import PrometheusAsker, error_text
from driftwatch.collect.prometheus.query import matchers, select, unix_ms
from driftwatch.collect.registry import wire_names
from driftwatch.collect.schema import SourceProblem
from driftwatch.errors import SourceError

# one series per engine each: who is there
_ENGINE_SERIES = ("vllm:num_requests_running", "vllm:generation_tokens_total")
_CACHE_SERIES = "vllm:cache_config_info"
_CREATED = "vllm:generation_tokens_created"
_LOOK_BACK_MS = 300_000  # over which the time between two scrapes is taken
_MANY = 20  # jobs or namespaces that are asked for one by one

_MOST = 20  # targets that are asked about at a time
# what Prometheus itself adds to a target
_ITS_OWN = ("scrape_", "ALERTS")

_NOT_UP = "Prometheus cannot scrape it (up is 0)"


@dataclass(frozen=True, slots=True)
class Server:
    """One vLLM server."""

    instance: str  # what it is called: see driftwatch.collect.identity
    labels: Mapping[str, str]  # those that all its series share, instance among them
    engines: tuple[str, ...]  # its engine labels, sorted
    # labels of ``vllm:cache_config_info``, one set for each engine that has one
    caches: tuple[Mapping[str, str], ...] = ()
    interval_seconds: float | None = None  # true time between two of its scrapes; None = not known
    also: tuple[str, ...] = ()  # labels under which the same process is scraped once more


@dataclass(frozen=True, slots=True)
class SilentServer:
    """A server, or what looks like one, that shows no ``vllm:`` series now."""

    instance: str  # host:port, or the address where it was not reached
    labels: Mapping[str, str]  # of its ``up`` series
    reason: str  # why nothing was read
    is_up: bool = True  # its newest scrape succeeded


@dataclass(frozen=True, slots=True)
class Inventory:
    """Everything that was seen."""

    servers: tuple[Server, ...]  # by instance
    silent: tuple[SilentServer, ...] = ()  # by instance
    # metric names of the registry that are served, old ones among them
    names: frozenset[str] = frozenset()
    gpus: pl.DataFrame = field(default_factory=empty_gpus)  # GPU table of the last minutes
    problems: tuple[SourceProblem, ...] = ()  # what could not be asked
    prefixes: frozenset[str] = frozenset()  # of vLLM's names, other than ``vllm:``


def discover(asker: PrometheusAsker, match: Mapping[str, str], at: datetime) -> Inventory:
    """Servers, their scrape intervals, and what says how they were started.

    ``match``: labels that a vLLM series must carry; empty: any.
    Raises SourceError: the API does not say which servers there are; what else it does not answer
    is a problem; UsageError: a label that cannot be matched.
    """
    matching = matchers(match)
    asking = _Questions(asker, at)
    try:
        prefixes = look_for_prefixes(asker, matching, at)
    except SourceError:
        prefixes = frozenset((VLLM,))  # what is asked for next says what is wrong

    def written(*names: str) -> str:
        return select(
            tuple(dict.fromkeys(written_as(n, p) for p in prefixes for n in names)), matching
        )

    engines = [labels for labels, _ in asker.instant(written(*_ENGINE_SERIES), at)]
    asking.warned("list of engines")
    wire = wire_names_of(prefixes)
    names = sorted(name for name in _sample_names() if name.startswith(VLLM))
    counted = asking.instant(f"count by (__name__) ({written(*names)})")
    served = {wire.get(labels.get("__name__", ""), "") for labels, _ in counted}
    telling = frozenset(name for labels in engines for name in labels) - OWN_LABELS
    of = _of_servers(engines, telling)
    twice = _twice(asking, written(_CREATED), of, telling)
    called = names_of([one for one in of if one not in twice], {})
    caches = _of_servers([labels for labels, _ in asking.instant(written(_CACHE_SERIES))], telling)
    ups = _ups(asking, match, engines)
    servers = []
    for server, series in sorted(of.items(), key=lambda one: called.get(one[0], "")):
        if server in twice:
            continue
        instance = dict(server)["instance"]
        own_ups = [
            one for one in ups.get(instance, ()) if one.labels.items() <= dict(server).items()
        ]
        own_ups = own_ups or ups.get(instance, [])
        own_ups = [s for s in own_ups if s.up] or own_ups
        servers.append(
            Server(
                called[server],
                _shared(series),
                tuple(sorted({labels.get("engine", "0") for labels in series})),
                tuple(sorted(caches.get(server, ()), key=lambda c: c.get("engine", "0"))),
                min((s.interval_seconds for s in own_ups if s.interval_seconds), default=None),
                also=tuple(
                    also_text(other, server) for other, one in twice.items() if one == server
                ),
            )
        )
    here = {dict(server)["instance"] for server in of}
    others = {
        instance: max(instance_ups, key=lambda one: one.up)
        for instance, instance_ups in sorted(ups.items())
        if instance not in here
    }
    silent = []
    what = dict(what_they_are(asker, [name for name, one in others.items() if one.up]))
    for instance, best in others.items():
        reason = what.get(instance, STATS_DISABLED) if best.up else _NOT_UP
        silent.append(SilentServer(instance, best.labels, reason, best.up))
    return Inventory(
        tuple(servers),
        tuple(silent),
        frozenset(served & _sample_names().keys()),
        problems=tuple(asking.problems),
        prefixes=prefixes - {VLLM},
    )


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


def _of_servers(
    series: Iterable[Labels], telling: Collection[str]
) -> dict[Identity, list[Mapping[str, str]]]:
    """The series of each server; those without an instance are left out."""
    found: dict[Identity, list[Mapping[str, str]]] = {}
    for labels in series:
        if labels.get("instance"):
            server = identity_of({k: v for k, v in labels.items() if k in telling}, ())
            found.setdefault(server, []).append(labels)
    return found


def _twice(
    asking: _Questions, created: str, of: Collection[Identity], telling: Collection[str]
) -> dict[Identity, Identity]:
    """Servers that are another one's process, scraped once more → that one."""
    began: dict[Identity, list[tuple[str, float]]] = {}
    for labels, value in asking.instant(created):
        server = identity_of({k: v for k, v in labels.items() if k in telling}, ())
        began.setdefault(server, []).append((labels.get("engine", "0"), value))
    spans = {one: (number, number) for number, one in enumerate(sorted(of))}
    started = {one: tuple(sorted(began[one])) for one in of if one in began}
    return doubles(spans, started, {}, lambda one, other: True)


def vllm_servers(asker: PrometheusAsker, at: datetime) -> int:
    """How many servers have a series of vLLM, whatever their labels.

    Raises SourceError: the API does not answer.
    """
    series = asker.instant(select(_ENGINE_SERIES, ""), at)
    return len({identity_of(labels, OWN_LABELS) for labels, _ in series})


@dataclass(frozen=True, slots=True)
class Scraped:
    """One target of the API, as its ``up`` series tells."""

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


class _Questions:
    """Questions whose failure is a problem and not the end."""

    def __init__(self, asker: PrometheusAsker, at: datetime) -> None:
        self.asker = asker
        self.at = at
        self.problems: list[SourceProblem] = []

    def instant(self, text: str) -> list[tuple[dict[str, str], float]]:
        """The answer, nothing where there is none."""
        try:
            answer = self.asker.instant(text, self.at)
        except SourceError as error:
            self.failed(text, error)
            return []
        self.warned(text)
        return answer

    def warned(self, text: str) -> None:
        """Note what the last answer warned of: some of what was asked for is missing."""
        for warning in self.asker.warnings:
            self.problems.append(SourceProblem(text, f"partial answer: {warning}", self.at))

    def failed(self, text: str, error: SourceError) -> None:
        """Note what was not answered."""
        self.problems.append(SourceProblem(text, error_text(error), self.at))


def _ups(
    asking: _Questions, match: Mapping[str, str], engines: Sequence[Mapping[str, str]]
) -> dict[str, list[Scraped]]:
    """``up`` of every instance in the jobs that have vLLM servers."""
    jobs = sorted({labels["job"] for labels in engines if labels.get("job")})
    selections: list[dict[str, str]] = [{**match, "job": job} for job in jobs if "job" not in match]
    if not selections or len(selections) > _MANY or any("job" not in labels for labels in engines):
        selections = [dict(match)]
    ups: dict[str, list[Scraped]] = {}
    for one in selections:
        try:
            targets = scraped(asking.asker, one, asking.at)
        except SourceError as error:
            asking.failed(f"up of {one or 'everything'}", error)
            continue
        for target in targets:
            if target.labels.get("instance"):
                ups.setdefault(target.labels["instance"], []).append(target)
    return ups


def _shared(series: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Labels that all of them have with the same value; the metric's own left out."""
    first, *rest = series
    return {
        name: value
        for name, value in sorted(first.items())
        if name not in ("__name__", "engine") and all(o.get(name) == value for o in rest)
    }


def _sample_names() -> dict[str, str]:
    """Sample name that shows whether a metric is there → family."""
    return {
        f"{name}_count" if metrics[0].type == "histogram" else name: name
        for name, metrics in wire_names().items()
    }


def what_they_are(asker: PrometheusAsker, instances: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Instance → why nothing of vLLM is there; up to 20, those that are answered.

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
