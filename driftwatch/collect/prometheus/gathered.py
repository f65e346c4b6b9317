"""What the queries brought, column by column, before it becomes rows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.collect.prometheus.blocks import Column
from driftwatch.collect.prometheus.roster import Labels, Numbers, Roster
from driftwatch.collect.prometheus.series import Placement, engine_labels
from driftwatch.collect.registry import Metric
from driftwatch.collect.schema import SourceProblem

KEYS = ("instance", "engine", "at")  # at: the grid time, unix ms


@dataclass(slots=True)
class Gathered:
    """What the queries brought, column by column."""

    # registry column → frame with ``instance``, ``engine``, ``at`` and its columns
    frames: dict[str, pl.DataFrame] = field(default_factory=dict)
    # frames with ``instance``, ``engine``, ``at``, ``model_name``
    models: list[pl.DataFrame] = field(default_factory=list)
    # frames with ``instance``, ``engine``, ``at`` of ``vllm:`` series of an engine
    present: list[pl.DataFrame] = field(default_factory=list)
    # registry column → the placement of its info metric
    texts: dict[str, Placement] = field(default_factory=dict)
    # columns that say something of an engine, with the newest sample of each origin
    alive: list[tuple[Column, Numbers]] = field(default_factory=list)
    # (instance, engine) that two series at the same time were told of
    clashed: set[tuple[str, str]] = field(default_factory=set)
    problems: list[SourceProblem] = field(default_factory=list)  # what could not be read
    _seen: dict[tuple[str, bytes], npt.NDArray[np.bool_]] = field(default_factory=dict)

    def labels(self, roster: Roster) -> dict[tuple[str, str], Labels]:
        """(instance, engine) → labels that all series share that the engine has at the end."""
        return engine_labels(self.alive, roster)

    def unseen(self, what: str, times: npt.NDArray[np.int64], engines: Numbers) -> Numbers:
        """Which of the engines nothing was said of yet at these times; now it is."""
        seen = self._seen.get((what, times.tobytes()))
        size = int(engines.max(initial=-1)) + 1
        if seen is None or len(seen) < size:
            grown = np.zeros(2 * size, np.bool_)
            if seen is not None:
                grown[: len(seen)] = seen
            seen = self._seen[what, times.tobytes()] = grown
        new = np.nonzero(~seen[engines])[0]
        seen[engines] = True
        return new


def says_engine(metric: Metric) -> bool:
    """Whether a series of it shows that an engine was there."""
    return metric.per_engine and metric.wire_name.startswith("vllm:")
