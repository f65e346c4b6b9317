"""The last minutes of a target, gathered while history runs through the pipeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl


_SPEED = (
    "slower_at_equal_load",
    "speed_at_equal_load_ratio",
    "slower_than_pool",
    "speed_against_pool_ratio",
)


@dataclass(slots=True)
class Recent:
    """Minutes of one target.

    Attributes:
        since: minutes that end later are kept.
        also: told of all rows as well.
    """

    since: datetime
    also: Callable[[pl.DataFrame], None]
    _kept: list[pl.DataFrame] = field(default_factory=list, init=False)

    def note(self, rows: pl.DataFrame) -> None:
        """See evidence rows of the minute grid, in order."""
        import polars as pl

        from driftwatch.signals.minutes import minutes

        self.also(rows)
        recent = rows.filter(pl.col("end") > self.since)
        if len(recent):
            beside = recent.select("cache_config", "model_name", *_SPEED)
            self._kept.append(minutes(recent).hstack(beside))

    def minutes(self) -> pl.DataFrame:
        """:data:`driftwatch.signals.minutes.MINUTE_SCHEMA`, what ran, and how fast."""
        import polars as pl

        from driftwatch.signals.minutes import no_minutes

        return pl.concat(self._kept) if self._kept else no_minutes()
