"""dcgm-exporter's pages, scraped directly or from a recording: no Prometheus between."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import polars as pl

from driftwatch.clock import Clock
from driftwatch.collect.cells import Labels, short_name
from driftwatch.collect.dcgm.names import DCGM_NAMES, DIVIDED, canonical, gpu_of
from driftwatch.collect.dcgm.rows import SAMPLE_SCHEMA, GpuSamples
from driftwatch.collect.http import Gets
from driftwatch.collect.http_session import Bounds
from driftwatch.collect.pages.text import PageText, same
from driftwatch.collect.schema import Collected, SourceProblem, empty_scrapes, folded

NOT_DCGM = "not dcgm-exporter's page: none of the DCGM_ fields that are read is on it"


def is_dcgm_page(body: bytes) -> bool:
    """Whether a page has any series of DCGM."""
    return body[:8].upper() == b"DCGM_FI_" or b"\nDCGM_FI_" in body or b"\ndcgm_fi_" in body


class DcgmBatch:
    """Pages of any number of exporters, made into one GPU table at the end.

    ``text``: reads pages, and is kept between batches.
    """

    def __init__(self, text: PageText[Labels] | None = None) -> None:
        self._text = text or PageText(canonical)
        self._samples = GpuSamples()
        self._rows: list[tuple[int, str, int, float]] = []
        self._problems: list[SourceProblem] = []

    def add(self, exporter: str, time: datetime, body: bytes) -> bool:
        """A page that was answered; False where it has no GPU, with a problem that says why."""
        page = self._text.samples(body)
        if isinstance(page, str):
            self.problem(exporter, page, time)
            return False
        for doubt in page.doubts:
            self.problem(exporter, doubt, time)
        micros = round(time.timestamp() * 1_000_000)
        first: dict[tuple[int, str], float] = {}
        read = [
            (labels, value)
            for labels, value in zip(page.series, page.values, strict=True)
            if labels["__name__"] in DCGM_NAMES
        ]
        for labels, value in read:
            gpu = gpu_of(labels, exporter)
            if isinstance(gpu, str):
                what = gpu if gpu == DIVIDED else f"{short_name(labels)}: {gpu}"
                self.problem(exporter, what, time)
                continue
            cell = (self._samples.number(gpu), labels["__name__"])
            if cell not in first:
                first[cell] = value
                self._rows.append((*cell, micros, value))
            elif not same(first[cell], value):
                twice = (
                    f"is on the page twice, as {first[cell]:g} and {value:g}: the first is taken"
                )
                self.problem(exporter, f"{short_name(labels)} {twice}", time)
        if not read:
            self.problem(exporter, NOT_DCGM, time)
        return bool(first)

    def problem(self, where: str, reason: str, time: datetime | None) -> None:
        """Something that could not be read."""
        self._problems.append(SourceProblem(where, reason, time))

    def finish(self) -> tuple[pl.DataFrame, tuple[SourceProblem, ...]]:
        """The GPU table and the problems, repeats folded."""
        self._samples.add(pl.DataFrame(self._rows, dict(SAMPLE_SCHEMA), orient="row"))
        return self._samples.table(), folded(self._problems)


class DcgmPagesSource:
    """dcgm-exporters scraped without a Prometheus between.

    ``clock``: gives each scrape its time, taken when the scrape starts.
    Raises UsageError: no address, not an address, or one twice.
    """

    is_live = True

    def __init__(
        self,
        urls: Iterable[str],
        clock: Clock | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        self.name = "dcgm"
        self.settle_seconds = 0.0
        self._text: PageText[Labels] = PageText(canonical)
        self._gets = Gets(((url, None) for url in urls), clock, bounds)

    def collect(self, since: datetime, until: datetime) -> Collected:
        """Each page once, now: ``since`` and ``until`` say nothing to a live page.

        A page that cannot be had or read is a problem; readings of its GPUs end.
        """
        batch = DcgmBatch(self._text)
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
