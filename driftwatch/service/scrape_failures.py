"""Which servers fail to answer, and when that begins and ends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

import polars as pl


@dataclass(frozen=True, slots=True)
class Change:
    """A server fails since ``time``, or for another reason; without a reason it answers again."""

    instance: str
    time: datetime
    reason: str | None


@dataclass(slots=True)
class ScrapeFailures:
    """The servers that fail, so that each change is reported once."""

    # server that fails → its reason, numbers left out: a count of bytes that changes with every
    # scrape is no news
    reasons: dict[str, str] = field(default_factory=dict)

    def changes(self, scrapes: pl.DataFrame) -> Iterator[Change]:
        """What these scrapes change, in the order of their times."""
        failing = pl.col("instance").is_in(list(self.reasons))
        failed_now = scrapes.filter(~pl.col("ok"))["instance"].unique().to_list()
        rows = (
            scrapes.select("instance", "time", "ok", "reason")
            .filter(failing | pl.col("instance").is_in(failed_now))
            .sort("time", "instance", "ok", maintain_order=True)
            .unique(["instance", "time"], keep="first", maintain_order=True)
        )
        for instance, time, ok, why in rows.iter_rows():
            before = self.reasons.get(instance)
            if ok and before is not None:
                del self.reasons[instance]
                yield Change(instance, time, None)
            elif not ok:
                reason = str(why)
                kind = re.sub(r"\d+", "N", reason)
                if kind != before:
                    self.reasons[instance] = kind
                    yield Change(instance, time, reason)
