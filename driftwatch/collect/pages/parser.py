"""Pages of Prometheus text → scrape table, one row per engine and page.

A page whose series are those of the instance's page before (the usual case) costs a split, a
comparison and the conversion of its numbers; see :mod:`driftwatch.collect.pages.layout`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
import polars as pl

from driftwatch.collect.pages.layout import Layout, lay_out, short_name
from driftwatch.collect.pages.series import (
    Series,
    SeriesCache,
    is_cut,
    line_samples,
    named,
    no_samples,
    page_lines,
    same,
)
from driftwatch.collect.pages.table import Row, table
from driftwatch.collect.schema import (
    SourceProblem,
    empty_scrapes,
    scrape_frame,
)
from driftwatch.model import Target, TargetKey

_ROWS_PER_FLUSH = 512  # vectors held before they become columns: about 2.5 MB of numbers
_LAYOUT_BYTES = 4 * 2**20  # a page above this is not remembered
_INSTANCES = 4096  # instances whose last page is remembered
_LAYOUTS = 256  # layouts shared by instances with the same series


@dataclass(frozen=True, slots=True)
class ParsedPage:
    """What a page brought."""

    frame: pl.DataFrame  # scrape table, a row per engine
    problems: tuple[SourceProblem, ...]  # what could not be read of it

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows as dictionaries, in engine order."""
        return self.frame.to_dicts()


@dataclass(frozen=True, slots=True)
class _Page:
    """A page that was read: its layout, a number per sample, and what is wrong with its lines."""

    layout: Layout
    values: list[float]
    doubts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Remembered:
    """An instance's last plain page.

    ``texts`` is every line up to its last space; ``bare`` the lines without one (blank lines,
    ``#``), whose text must be checked by itself; ``samples`` the lines that hold a sample.
    """

    texts: tuple[bytes, ...]
    bare: tuple[int, ...]
    samples: tuple[int, ...]
    layout: Layout


class PageParser:
    """Reads pages of any number of instances; remembers series, layouts and engines between them.

    Not for use from several threads at once.
    """

    def __init__(self, cache: SeriesCache | None = None) -> None:
        self._cache = cache or SeriesCache()
        self._last: OrderedDict[str, _Remembered] = OrderedDict()
        self._layouts: OrderedDict[tuple[Series, ...], Layout] = OrderedDict()
        self._engines: dict[str, tuple[str, ...]] = {}
        self._models: dict[tuple[str, str], str] = {}

    def parse(self, instance: str, time: datetime, body: bytes) -> ParsedPage:
        """One page → its rows; a page that cannot be read gives rows with ``ok`` False."""
        return self.parse_many([(instance, time, body)])

    def parse_many(self, pages: Iterable[tuple[str, datetime, bytes]]) -> ParsedPage:
        """Many pages (instance, time, body) in any order → one sorted table."""
        batch = self.batch()
        for instance, time, body in pages:
            batch.add(instance, time, body)
        return batch.finish()

    def batch(self) -> Batch:
        """An empty batch, for pages that come one by one."""
        return Batch(self)

    def engines(self, instance: str) -> tuple[str, ...]:
        """Engines the instance was last seen with; ("0",) where none was seen."""
        return self._engines.get(instance, ("0",))

    def target(self, instance: str, engine: str, labels: Mapping[str, str]) -> Target:
        """An engine with its labels, and the model that it was last seen with."""
        own = {**labels, "instance": instance, "engine": engine}
        model = self._models.get((instance, engine))
        if model is not None:
            own["model_name"] = model
        return Target(TargetKey(instance, engine), own)

    def _page_of(self, instance: str, body: bytes) -> _Page | str:
        """The page, or why it is none."""
        lines = page_lines(body)
        if isinstance(lines, str):
            return lines
        cut = is_cut(lines)
        page = None if cut else self._page_as_before(instance, lines)
        if page is None:
            page = self._new_page(None if cut else instance, lines)
        why = no_samples(body, lines, bool(page.layout.series), page.doubts)
        if why is not None:
            return why
        return page if page.layout.engines else page.layout.why_no_engine

    def _page_as_before(self, instance: str, lines: list[bytes]) -> _Page | None:
        """The page, if its series are those of the instance's page before."""
        last = self._last.get(instance)
        if last is None or len(lines) != len(last.texts):
            return None
        texts, _, tails = zip(*[line.rpartition(b" ") for line in lines], strict=True)
        if texts != last.texts or not all(_silent(tails[i]) for i in last.bare):
            return None
        numbers = [tails[i] for i in last.samples]
        if b"_" in b" ".join(numbers):  # 1_000 is a number to Python only
            return None
        try:
            return _Page(last.layout, list(map(float, numbers)), ())
        except ValueError:
            return None

    def _new_page(self, instance: str | None, lines: list[bytes]) -> _Page:
        """The page, line by line; remembered for ``instance`` if all of its lines are plain."""
        samples = line_samples(lines, self._cache)
        plain = samples.plain and instance is not None
        layout = self._laid_out(tuple(samples.series))
        if instance is not None:
            self._last.pop(instance, None)
            if plain and not samples.doubts and sum(map(len, lines)) <= _LAYOUT_BYTES:
                texts = tuple(self._cache.text(line.rpartition(b" ")[0]) for line in lines)
                bare = tuple(i for i, text in enumerate(texts) if not text)
                self._last[instance] = _Remembered(texts, bare, tuple(samples.lines), layout)
                if len(self._last) > _INSTANCES:
                    self._last.popitem(last=False)
        return _Page(layout, samples.values, named(samples.doubts))

    def _laid_out(self, series: tuple[Series, ...]) -> Layout:
        layout = self._layouts.pop(series, None) or lay_out(series)
        self._layouts[series] = layout
        if len(self._layouts) > _LAYOUTS:
            self._layouts.popitem(last=False)
        return layout


class Batch:
    """Pages of one call to a source, made into one table at the end."""

    def __init__(self, parser: PageParser) -> None:
        self._parser = parser
        self._before = dict(parser._engines)
        self._rows: list[Row] = []
        self._frames = [empty_scrapes()]
        self._problems: list[SourceProblem] = []
        self._failed: list[tuple[str, datetime, str]] = []
        self._engines_by_time: dict[str, list[tuple[datetime, tuple[str, ...]]]] = {}

    def add(self, instance: str, time: datetime, body: bytes) -> None:
        """A page that was answered."""
        parser = self._parser
        page = parser._page_of(instance, body)
        if isinstance(page, str):
            self.fail(instance, time, page)
            return
        values = np.array(page.values)
        for doubt in page.doubts:
            self._problems.append(SourceProblem(instance, doubt, time))
        for engine in page.layout.engines:
            twice = {
                slot: f"{short_name(page.layout.series[other])} is on the page twice, as "
                f"{values[engine.take[slot]]:g} and {values[other]:g}"
                for slot, other in engine.repeats
                if not same(float(values[engine.take[slot]]), float(values[other]))
            }
            self._rows.append(
                Row(instance, time, page.layout, engine, values[engine.take], twice, page.doubts)
            )
            if engine.model_name is not None:
                parser._models[instance, engine.engine] = engine.model_name
        engines = tuple(engine.engine for engine in page.layout.engines)
        parser._engines[instance] = engines
        self._engines_by_time.setdefault(instance, []).append((time, engines))
        if len(self._rows) >= _ROWS_PER_FLUSH:
            self._flush()

    def fail(self, instance: str, time: datetime, reason: str) -> None:
        """A scrape that brought no page: a row for each engine, with the reason."""
        self._failed.append((instance, time, reason))

    def problem(self, where: str, reason: str, time: datetime | None) -> None:
        """Something outside a page that could not be read."""
        self._problems.append(SourceProblem(where, reason, time))

    def finish(self) -> ParsedPage:
        """All rows, sorted by instance, engine and time, and the problems, repeats folded."""
        self._flush()
        failed = [
            {"instance": instance, "engine": engine, "time": time, "ok": False, "reason": reason}
            for instance, time, reason in self._failed
            for engine in self._engines_at(instance, time)
        ]
        if failed:
            self._frames.append(scrape_frame(failed))
        frame = pl.concat(self._frames).sort("instance", "engine", "time", maintain_order=True)
        return ParsedPage(frame.rechunk(), folded(self._problems))

    def _flush(self) -> None:
        if not self._rows:
            return
        frame, wrong = table(self._rows)
        self._frames.append(frame)
        self._problems += [SourceProblem(row.instance, text, row.time) for row, text in wrong]
        self._rows = []

    def _engines_at(self, instance: str, time: datetime) -> tuple[str, ...]:
        """Engines on the last good page up to ``time``, else on the first one after it."""
        pages = sorted(self._engines_by_time.get(instance, ()))
        at = bisect_right(pages, time, key=lambda s: s[0])
        if at:
            return pages[at - 1][1]
        if instance in self._before:
            return self._before[instance]
        return pages[0][1] if pages else ("0",)


def folded(problems: Iterable[SourceProblem]) -> tuple[SourceProblem, ...]:
    """The same problem of the same place once, at its first time, with how often it was met."""
    times: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], SourceProblem] = {}
    for problem in problems:
        key = (problem.where, problem.reason)
        times[key] += 1
        earlier = first.get(key)
        if earlier is None or (problem.time and earlier.time and problem.time < earlier.time):
            first[key] = problem
    counted = [
        replace(p, reason=f"{p.reason} ({times[key]} times)") if times[key] > 1 else p
        for key, p in first.items()
    ]
    return tuple(sorted(counted, key=lambda p: (p.where, str(p.time or ""), p.reason)))


def _silent(tail: bytes) -> bool:
    """A line without a space that holds no sample: blank, or a comment."""
    bare = tail.strip()
    return not bare or bare.startswith(b"#")
