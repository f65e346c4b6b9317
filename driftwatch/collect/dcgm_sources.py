"""dcgm-exporter as a source: its pages, or a Prometheus-compatible API that scrapes it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import polars as pl

from driftwatch.clock import Clock
from driftwatch.collect.dcgm import GpuSamples, canonical, own_pods, pod_of
from driftwatch.collect.gpus import GPU_FIELDS
from driftwatch.collect.http import PageFetcher
from driftwatch.collect.http_session import Bounds
from driftwatch.collect.page_text import PageText
from driftwatch.collect.prometheus.client import PrometheusAsker, error_text
from driftwatch.collect.prometheus.query import matchers, select, time_of, unix_ms
from driftwatch.collect.registry import Labels
from driftwatch.collect.schema import Collected, empty_scrapes
from driftwatch.errors import SourceError


class DcgmPagesSource:
    """dcgm-exporters scraped without a Prometheus between.

    ``clock``: gives each scrape its time, taken when the scrape starts.
    Raises UsageError: no address, not an address, or one twice.
    """

    is_live = True

    def __init__(
        self, urls: Iterable[str], clock: Clock | None = None, bounds: Bounds | None = None
    ) -> None:
        self.name = "dcgm"
        self.settle_seconds = 0.0
        self._text: PageText[Labels] = PageText(canonical)
        self._fetcher = PageFetcher(((url, None) for url in urls), clock, bounds)

    def collect(self, since: datetime, until: datetime) -> Collected:
        """Each page once, now, whatever ``since`` and ``until`` are.

        A page that cannot be had or read is a problem; readings of its GPUs end.
        """
        found = GpuSamples(self._text)
        # in the order of the names, whatever the order they come in
        urls = {name: address.url for name, address in self._fetcher.addresses.items()}
        for exporter, answer in sorted(self._fetcher.answers(urls), key=lambda one: one[0]):
            if answer.body is None:
                found.problem(exporter, answer.reason or "no answer", answer.time)
            else:
                found.page(exporter, answer.time, answer.body)
        return found.collected()

    def close(self) -> None:
        """End what is under way and give back the connections."""
        self._fetcher.close()


# fields that any GPU has, to find the exporters by
_ANY_GPU = ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_PROF_GR_ENGINE_ACTIVE")


class DcgmPrometheusSource:
    """GPU readings of a fleet as a Prometheus-compatible API knows them, as they were scraped.

    ``selector``: label → value that the exporters' series carry; empty: every ``DCGM_`` series;
    ``budget_seconds``: for all queries of one ``collect``; ``name``: how problems call this source.
    Raises UsageError: a label that cannot be matched.
    """

    def __init__(
        self,
        asker: PrometheusAsker,
        *,
        selector: Mapping[str, str] | None = None,
        budget_seconds: float = 60.0,
        name: str | None = None,
    ) -> None:
        self.name = name or f"dcgm at prometheus {asker.host}"
        self.settle_seconds = 15.0
        self._asker = asker
        self._budget_seconds = budget_seconds
        matching = matchers(selector or {})
        names = dict.fromkeys(name for one in GPU_FIELDS for name in one.dcgm_names)
        self._any = select(tuple(names), matching, any_case=True)
        self._up = f"up and on (job, instance) {select(_ANY_GPU, matching, any_case=True)}"

    def collect(self, since: datetime, until: datetime) -> Collected:
        """GPU readings with since <= time < until.

        Where nothing answers there are no rows, and a problem says why.
        """
        first, last = unix_ms(since), unix_ms(until) - 1
        if last < first:
            return Collected(empty_scrapes(), {})
        at, errors = time_of(last), list[SourceError]()
        deadline = time.monotonic() + self._budget_seconds
        answers = list(self._asker.pieces([self._any], first, last, errors, deadline))
        samples = GpuSamples()
        for error in errors:
            samples.problem(self.name, error_text(error), at)
        every = [[canonical(labels) for labels in answer.labels] for answer in answers]
        own = self._own_pods([one for labels in every for one in labels], at, samples)
        for answer, labels in zip(answers, every, strict=True):
            columns = {"series": answer.series, "time": answer.time, "value": answer.value}
            samples.read(labels, pl.DataFrame(columns), self.name, at, own=own)
        return samples.collected(error_text(errors[0]) if errors else None)

    def close(self) -> None:
        """Give back the connection."""
        self._asker.close()

    def _own_pods(
        self, series: Sequence[Labels], at: datetime, samples: GpuSamples
    ) -> frozenset[str]:
        """The pods that are the exporters' own, and no workload's."""
        ups: list[Labels] = []
        if any(pod_of(one)[1] and not one.get("exported_pod") for one in series):
            try:
                ups = [labels for labels, _ in self._asker.instant(self._up, at)]
            except SourceError as error:
                samples.problem(self._up, error_text(error), at)
        return own_pods(series, ups)
