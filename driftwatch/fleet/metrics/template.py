"""A server's page as a template: every line's text, and which number stands at its end.

prometheus_client writes the text once per template (order, escaping, HELP and TYPE lines are
its own); a page is the template with its numbers filled in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.utils import floatToGoString

from driftwatch.fleet.metrics.families import (
    HTTP,
    HTTP_BY_HANDLER,
    HTTP_HIGHR,
    HTTP_REQUESTS,
    PYTHON,
    PYTHON_INFO,
    Family,
)
from driftwatch.fleet.server import READY_AFTER_SECONDS, Server

_APART_SECONDS = 1e-5  # between the making of two children of a family
_HANDLER = "/v1/completions"  # path of the requests
_HTTP_BEFORE_SECONDS = 0.11  # the middleware's own histogram is made as much later


_as_go_writes: Callable[[float], str] = floatToGoString


@dataclass(frozen=True, slots=True)
class Slot:
    """Where the number of a line comes from."""

    column: str  # name of a column, "" for a constant
    part: int  # place in a column of several numbers (cumulative buckets, then the sum)
    constant: float = 0.0  # the number itself, where it is one


@dataclass(frozen=True, slots=True, eq=False)
class PageTemplate:
    """A page without its numbers."""

    slots: tuple[Slot, ...]  # one per sample, in the order of the page
    # what stands before each number (comments and name with labels), and after the last
    texts: tuple[str, ...]
    series: tuple[str, ...]  # name and labels of each sample, as on the page

    def page(self, numbers: Sequence[float]) -> str:
        """The page with these numbers, one per slot."""
        parts = [""] * (2 * len(self.slots) + 1)
        parts[0::2] = self.texts
        parts[1::2] = map(_as_go_writes, numbers)
        return "".join(parts)


@dataclass(frozen=True, slots=True)
class FirstAnswers:
    """When the first answers of each kind were given, unix seconds; None: not yet.

    The middleware makes its series with labels when it has something to count.
    """

    with_2xx: float | None = None
    with_5xx: float | None = None


def page_template(server: Server, started: float, answers: FirstAnswers) -> PageTemplate:
    """The page of one server process.

    ``started``: start of the process, unix seconds. Raises ImpossibleConfiguration: the server
    cannot be.
    """
    slots: list[Slot] = []
    metrics = list(_metrics(server, started, answers, slots))
    lines = tuple(
        (m.name, m.documentation, m.type, tuple((s.name, *s.labels.items()) for s in m.samples))
        for m in metrics
    )
    text = _text_of(lines)
    numbers = [sample.value for metric in metrics for sample in metric.samples]
    order = tuple(slots[int(numbers[line])] for line in text.order)
    return PageTemplate(order, text.texts, text.series)


@dataclass(frozen=True, slots=True)
class _Text:
    """A page's texts and series, and the sample that each of its lines is of."""

    texts: tuple[str, ...]
    series: tuple[str, ...]
    order: tuple[int, ...]


# name, help, type and the samples' (name, *labels) of a family
_Lines = tuple[tuple[str, str, str, tuple[tuple[Any, ...], ...]], ...]


@lru_cache(maxsize=64)  # servers of a pool differ in their numbers only
def _text_of(families: _Lines) -> _Text:
    metrics, count = [], 0
    for name, documentation, kind, samples in families:
        metric = Metric(name, documentation, kind)
        for sample, *labels in samples:
            metric.add_sample(sample, dict(labels), float(count))
            count += 1
        metrics.append(metric)
    texts, series, order = [""], [], []
    for line in generate_latest(_Registry(metrics)).decode().splitlines(keepends=True):
        if line.startswith("#"):
            texts[-1] += line
            continue
        name, _, number = line.rpartition(" ")
        series.append(name)
        order.append(int(float(number)))
        texts[-1] += f"{name} "
        texts.append("\n")
    return _Text(tuple(texts), tuple(series), tuple(order))


class _Registry:
    """What ``generate_latest`` asks for families."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Every family."""
        yield from self._metrics


def _metrics(
    server: Server, started: float, answers: FirstAnswers, slots: list[Slot]
) -> Iterator[Metric]:
    created = started + READY_AFTER_SECONDS
    children = _Children(server, slots, created)
    for family in PYTHON:
        labels = PYTHON_INFO if family.name == "python_info" else {}
        yield children.metric(family, labels)
    if server.log_stats:
        for family in server.style.families:
            yield children.metric(family, children.labels(family))
        yield children.info()
    yield from _http(answers, children, created)


def _http(answers: FirstAnswers, children: _Children, created: float) -> Iterator[Metric]:
    by_handler = {"handler": _HANDLER}
    with_method = {**by_handler, "method": "POST"}
    times = {"2xx": answers.with_2xx, "5xx": answers.with_5xx}
    firsts = [time for time in times.values() if time is not None]
    for family in HTTP:
        if family is HTTP_HIGHR:
            children.created_at = created + _HTTP_BEFORE_SECONDS
            yield children.metric(family, {})
            continue
        labels = with_method if family in (HTTP_REQUESTS, HTTP_BY_HANDLER) else by_handler
        metric = Metric(family.name, family.help, family.type)
        if family is HTTP_REQUESTS:
            statuses = [(time, status) for status, time in times.items() if time is not None]
            for time, status in sorted(statuses):
                children.created_at = time
                place = family.label_values.index(status)
                children.add(metric, family, place, {**labels, "status": status})
        elif firsts:
            children.created_at = min(firsts)
            children.add(metric, family, 0, labels)
        yield metric


class _Children:
    """Makes a family's samples; the value of each is the number of its slot."""

    def __init__(self, server: Server, slots: list[Slot], created: float) -> None:
        self._server = server
        self._slots = slots
        self._edges = server.finite_edges()
        self.created_at = created

    def labels(self, family: Family) -> dict[str, str]:
        """Labels of a family's children before its own label."""
        model = {"model_name": self._server.model_name}
        return model if family.scope == "model" else {"engine": "0", **model}

    def metric(self, family: Family, labels: Mapping[str, str]) -> Metric:
        metric = Metric(family.name, family.help, family.type)
        for place, value in enumerate(family.label_values):
            own = {family.label: value} if family.label else {}
            self.add(metric, family, place, {**labels, **own})
        return metric

    def info(self) -> Metric:
        metric = Metric(
            "vllm:cache_config_info", "Information of the LLMEngine CacheConfig", "gauge"
        )
        self._sample(metric, "", self._server.info_labels(), Slot("", 0, 1.0))
        return metric

    def add(self, metric: Metric, family: Family, place: int, labels: Mapping[str, str]) -> None:
        """One child of a family, with all its samples."""
        column = family.columns[place]
        if family.type == "histogram":
            edges = self._edges[family.name if family.scope == "engine" else family.group]
            les = (*map(_as_go_writes, edges), "+Inf")
            for part, edge in enumerate(les):
                self._sample(metric, "_bucket", {**labels, "le": edge}, Slot(column, part))
            self._sample(metric, "_count", labels, Slot(column, len(edges)))
            self._sample(metric, "_sum", labels, Slot(column, len(edges) + 1))
        elif family.type == "summary":
            self._sample(metric, "_count", labels, Slot(column, 0))
            self._sample(metric, "_sum", labels, Slot(column, 1))
        else:
            constant = {"": 0.0, "1": 1.0}.get(column)
            slot = Slot(column, 0) if constant is None else Slot("", 0, constant)
            self._sample(metric, "_total" if family.type == "counter" else "", labels, slot)
        if family.created:
            self.created_at += _APART_SECONDS
            self._sample(metric, "_created", labels, Slot("", 0, self.created_at))

    def _sample(self, metric: Metric, suffix: str, labels: Mapping[str, str], slot: Slot) -> None:
        metric.add_sample(metric.name + suffix, dict(labels), float(len(self._slots)))
        self._slots.append(slot)
