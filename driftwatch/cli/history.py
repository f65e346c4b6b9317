"""What a replay read: how many scrapes, which failed and why, and whether any was usable."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from driftwatch.collect.schema import SourceProblem
    from driftwatch.pipeline.state import Outcome

_REASONS_TOLD = 5

# A page that was answered but says nothing, as collect/exposition.py calls it. A scrape that was
# recorded as failed, and a server without statistics, are facts: they were read.
_UNREADABLE = (
    "answers HTML",
    "empty page",
    "no sample on the page",
    "not a metrics page",
    "page cut off",
)


@dataclass(slots=True)
class Tally:
    """Counts over the outcomes of one replay; a scrape of several engines counts once.

    Attributes:
        scrapes: how many were read, failed ones too.
        usable: how many of them brought values.
        failed: reason without its numbers → (how many, the first one in full).
        problems: what the sources could not read.
        until: end of the last minute that was evaluated; None before the first.
    """

    scrapes: int = 0
    usable: int = 0
    failed: dict[str, tuple[int, str]] = field(default_factory=dict)
    problems: list[SourceProblem] = field(default_factory=list)
    until: datetime | None = None

    def add(self, outcome: Outcome) -> None:
        """Count one stretch."""
        self.problems += outcome.problems
        if outcome.rows.height:
            newest = outcome.rows["end"].max()
            self.until = newest if isinstance(newest, datetime) else self.until
        scrapes = outcome.scrapes.select("instance", "time", "ok", "reason").unique(
            ["instance", "time"], keep="first", maintain_order=True
        )
        self.scrapes += len(scrapes)
        self.usable += int(scrapes["ok"].sum())
        for reason in scrapes.filter(~scrapes["ok"])["reason"]:
            key = re.sub(r"\d+", "N", str(reason))
            times, first = self.failed.get(key, (0, str(reason)))
            self.failed[key] = (times + 1, first)

    @property
    def unreadable(self) -> bool:
        """Something that was there could not be read."""
        return bool(self.problems) or any(key.startswith(_UNREADABLE) for key in self.failed)

    @property
    def first_reason(self) -> str:
        """Why nothing was usable."""
        if self.failed:
            return next(iter(self.failed.values()))[1]
        if self.problems:
            return self.problems[0].reason
        return "there is no scrape at all"

    def warnings(self) -> Iterator[str]:
        """``12 of 340 scrapes failed, e.g. answered 503``: the most frequent reasons."""
        often = sorted(self.failed.values(), key=lambda failure: -failure[0])
        for times, example in often[:_REASONS_TOLD]:
            eg = ", e.g." if times > 1 else ":"
            yield f"{times:,} of {self.scrapes:,} scrapes failed{eg} {example}"
        rest = sum(times for times, _ in often[_REASONS_TOLD:])
        if rest:
            yield f"{rest:,} of {self.scrapes:,} scrapes failed for other reasons"
