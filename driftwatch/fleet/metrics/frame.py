"""Rendered scrapes of one server process: the same numbers as a page or as the scrape table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from driftwatch.collect.pages.parser import Layout, PageParser
from driftwatch.collect.pages.text import Line, read_line
from driftwatch.fleet.metrics.engine import Floats
from driftwatch.fleet.metrics.template import PageTemplate

_PARSER = PageParser()  # servers of a pool show the same series
_LAYOUTS: dict[tuple[str, ...], Layout] = {}


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
        batch = _PARSER.batch()
        batch.add_numbers(self.instance, _layout_of(self.template), self.micros, self._numbers)
        return batch.finish().frame


def _layout_of(template: PageTemplate) -> Layout:
    """Where the columns stand on a page, as the parser of pages works it out."""
    layout = _LAYOUTS.get(template.series)
    if layout is None:
        lines = [read_line(f"{text} 0".encode()) for text in template.series]
        layout = _PARSER.layout(tuple(line.series for line in lines if isinstance(line, Line)))
        _LAYOUTS[template.series] = layout
    return layout
