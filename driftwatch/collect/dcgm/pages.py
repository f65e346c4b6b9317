"""dcgm-exporter's pages, scraped directly or from a recording: no Prometheus between."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import polars as pl

from driftwatch.clock import Clock
from driftwatch.collect.cells import short_name
from driftwatch.collect.dcgm.names import DCGM_NAME_INDEX, DIVIDED, Roster, canonical, gpu_of
from driftwatch.collect.dcgm.rows import GpuSamples, gpu_table, rows_as_samples
from driftwatch.collect.http import Bounds, Gets
from driftwatch.collect.pages.text import Series, SeriesCache, page_samples, same
from driftwatch.collect.schema import Collected, SourceProblem, empty_scrapes, folded

NOT_DCGM = "not dcgm-exporter's page: none of the DCGM_ fields that are read is on it"


def is_dcgm_page(body: bytes) -> bool:
    """Whether a page has any series of DCGM."""
    return body[:8].upper() == b"DCGM_FI_" or b"\nDCGM_FI_" in body or b"\ndcgm_fi_" in body


class DcgmBatch:
    """Pages of any number of exporters, made into one GPU table at the end.

    ``cache``: series that were seen before, kept between batches.
    """

    def __init__(self, cache: SeriesCache) -> None:
        self._cache = cache
        self._roster = Roster()
        self._moments: dict[datetime, int] = {}
        self._rows: list[tuple[int, int, int, float]] = []
        self._problems: list[SourceProblem] = []

    def add(self, exporter: str, time: datetime, body: bytes) -> bool:
        """A page that was answered; False where it has no GPU, with a problem that says why."""
        samples = page_samples(body, self._cache)
        if isinstance(samples, str):
            self.problem(exporter, samples, time)
            return False
        for doubt in samples.doubts:
            self.problem(exporter, doubt, time)
        moment = self._moments.setdefault(time, len(self._moments))
        first: dict[tuple[int, int], tuple[float, Series]] = {}
        any_field = False
        for series, value in zip(samples.series, samples.values, strict=True):
            labels = canonical({"__name__": series.name, **series.labels})
            name = DCGM_NAME_INDEX.get(labels.pop("__name__"))
            if name is None:
                continue
            any_field = True
            gpu = gpu_of(labels, exporter)
            if isinstance(gpu, str):
                what = gpu if gpu == DIVIDED else f"{_name(series)}: {gpu}"
                self.problem(exporter, what, time)
                continue
            code = self._roster.number(gpu)
            before = first.get((code, name))
            if before is None:
                first[code, name] = (value, series)
                self._rows.append((code, moment, name, value))
            elif not same(before[0], value):
                twice = f"is on the page twice, as {before[0]:g} and {value:g}: the first is taken"
                self.problem(exporter, f"{_name(before[1])} {twice}", time)
        if not any_field:
            self.problem(exporter, NOT_DCGM, time)
        return bool(first)

    def problem(self, where: str, reason: str, time: datetime | None) -> None:
        """Something that could not be read."""
        self._problems.append(SourceProblem(where, reason, time))

    def finish(self) -> tuple[pl.DataFrame, tuple[SourceProblem, ...]]:
        """The GPU table and the problems, repeats folded."""
        samples: GpuSamples = rows_as_samples(self._rows)
        return gpu_table(self._roster.gpus, list(self._moments), samples), folded(self._problems)


def _name(series: Series) -> str:
    return short_name({"__name__": series.name, **series.labels})


class DcgmPagesSource:
    """dcgm-exporters scraped without a Prometheus between.

    ``clock``: gives each scrape its time, taken when the scrape starts.
    Raises UsageError: no address, not an address, or one twice.
    """

    def __init__(
        self,
        urls: Iterable[str],
        clock: Clock | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        self.name = "dcgm"
        self.settle_seconds = 0.0
        self._cache = SeriesCache()
        self._gets = Gets(((url, None) for url in urls), clock, bounds)

    def collect(self, since: datetime, until: datetime) -> Collected:
        """Each page once, now: ``since`` and ``until`` say nothing to a live page.

        A page that cannot be had or read is a problem; readings of its GPUs end.
        """
        batch = DcgmBatch(self._cache)
        # in the order of the names, whatever the order they come in
        answers = self._gets.answers(self._gets.addresses)
        for exporter, answer in sorted(answers, key=lambda one: one[0]):
            if answer.body is None:
                batch.problem(exporter, answer.reason or "no answer", answer.time)
            else:
                batch.add(exporter, answer.time, answer.body)
        gpus, problems = batch.finish()
        return Collected(empty_scrapes(), {}, problems, gpus=gpus)

    def close(self) -> None:
        """End what is under way and give back the connections."""
        self._gets.close()
