"""A server's page as a template: every line's text, and which number stands at its end.

prometheus_client writes the text once per template (order, escaping, HELP and TYPE lines are
its own); a page is the template with its numbers filled in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.utils import floatToGoString

from driftwatch.fleet.metrics.families import PROCESS, Family
from driftwatch.fleet.server import READY_AFTER_SECONDS, Server

# of the samples of a family
_ENDS = ("", "_total", "_bucket", "_sum", "_count", "_created")
_APART_SECONDS = 1e-5  # between the making of two children of a family
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

    def without(self, buckets: Collection[str], metrics: Collection[str]) -> PageTemplate:
        """What the ``metric_relabel_configs`` of a Prometheus leave of it; comments stay.

        ``buckets``: histograms that keep +Inf alone; ``metrics``: names that are dropped.
        """
        dropped = {name + end for name in metrics for end in _ENDS}
        some = {f"{name}_bucket" for name in buckets}
        if not (buckets or metrics):
            return self
        kept: list[tuple[Slot, str, str]] = []
        comments = ""
        for slot, text, line in zip(self.slots, self.texts, self.series, strict=False):
            comments += text.removesuffix(f"{line} ").removeprefix("\n")  # of the line before
            name = line.partition("{")[0]
            if name not in dropped and (name not in some or 'le="+Inf"' in line):
                kept.append((slot, f"{comments}{line} ", line))
                comments = ""
        slots, texts, series = zip(*kept, strict=True)
        joined = (texts[0], *(f"\n{text}" for text in texts[1:]), f"\n{comments}")
        return PageTemplate(slots, joined, series)


def page_template(server: Server, started: float) -> PageTemplate:
    """The page of one server process.

    ``started``: start of the process, unix seconds. Raises ImpossibleConfiguration: the server
    cannot be.
    """
    slots: list[Slot] = []
    metrics = list(_metrics(server, started, slots))
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


def _metrics(server: Server, started: float, slots: list[Slot]) -> Iterator[Metric]:
    children = _Children(server, slots, started + READY_AFTER_SECONDS)
    yield children.metric(PROCESS, {})
    if server.log_stats:
        for family in server.style.families:
            yield children.metric(family, children.labels(family))
        yield children.info()


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
            edges = self._edges[family.name]
            les = (*map(_as_go_writes, edges), "+Inf")
            for part, edge in enumerate(les):
                self._sample(metric, "_bucket", {**labels, "le": edge}, Slot(column, part))
            self._sample(metric, "_count", labels, Slot(column, len(edges)))
            self._sample(metric, "_sum", labels, Slot(column, len(edges) + 1))
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
