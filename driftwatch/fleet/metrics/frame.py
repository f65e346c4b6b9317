"""Rendered scrapes of one server process: the same numbers as a page or as the scrape table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import polars as pl

from driftwatch.collect.pages.layout import Layout, Shape, lay_out
from driftwatch.collect.pages.series import Line, read_line
from driftwatch.collect.schema import BUCKETS, SCRAPE_SCHEMA, TIME, empty_scrapes
from driftwatch.fleet.metrics.engine import Floats
from driftwatch.fleet.metrics.template import PageTemplate


@dataclass
class Pages:
    """Scrapes of one process whose pages have the same lines."""

    instance: str  # host:port
    micros: np.ndarray[tuple[int], np.dtype[np.int64]]  # (scrapes,) unix microseconds, ascending
    template: PageTemplate  # the page without its numbers
    columns: Mapping[str, Floats]  # its numbers at every scrape

    @cached_property
    def _numbers(self) -> Floats:
        """(scrapes, samples) in the order of the page."""
        numbers = np.empty((len(self.micros), len(self.template.slots)))
        for place, slot in enumerate(self.template.slots):
            if not slot.column:
                numbers[:, place] = slot.constant
                continue
            column = self.columns[slot.column]
            numbers[:, place] = column if column.ndim == 1 else column[:, slot.part]
        return numbers

    def page(self, row: int) -> str:
        """The text of one scrape's page."""
        return self.template.page(self._numbers[row].tolist())

    def frame(self) -> pl.DataFrame:
        """The scrape table of all of them, engine by engine."""
        layout = layout_of(self.template.series)
        times = pl.Series("time", self.micros).cast(TIME)
        frames = [empty_scrapes()]
        for engine in layout.engines:
            values = np.asfortranarray(self._numbers[:, engine.take])
            frames.append(
                pl.DataFrame(
                    {
                        "instance": pl.repeat(self.instance, len(times), eager=True),
                        "engine": pl.repeat(engine.engine, len(times), eager=True),
                        "time": times,
                        "ok": pl.repeat(True, len(times), eager=True),
                        "model_name": _same(engine.model_name, len(times)),
                        "several_api_servers": pl.repeat(
                            layout.several_api_servers, len(times), eager=True
                        ),
                        "cache_config": _same(engine.cache_config, len(times)),
                        **_values(engine.shape, values),
                    }
                )
            )
        return pl.concat(frames, how="diagonal").select(list(SCRAPE_SCHEMA))


@lru_cache(maxsize=64)  # servers of a pool show the same series
def layout_of(series: tuple[str, ...]) -> Layout:
    """Where the columns stand on a page of these series, as the parser of pages works it out."""
    lines = [read_line(f"{text} 0".encode()) for text in series]
    return lay_out([line.series for line in lines if isinstance(line, Line)])


def _same(text: str | None, length: int) -> pl.Series:
    return pl.Series([text], dtype=pl.String).new_from_index(0, length)


def _values(shape: Shape, values: Floats) -> dict[str, pl.Series]:
    columns: dict[str, pl.Series] = {}
    edges_of = dict(shape.histograms)
    for column, first, after in shape.slots():
        edges = edges_of.get(column)
        if edges is None:
            columns[column] = pl.Series(values[:, first:after].sum(axis=1))
            continue
        columns[f"{column}_sum"] = pl.Series(values[:, after - 2].copy())
        columns[f"{column}_count"] = pl.Series(values[:, after - 1].copy())
        columns[f"{column}_buckets"] = pl.Series(
            np.ascontiguousarray(values[:, first : after - 2])
        ).cast(BUCKETS)
        columns[f"{column}_edges"] = pl.Series([list(edges)], dtype=BUCKETS).new_from_index(
            0, len(values)
        )
    return columns
