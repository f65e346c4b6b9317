"""Scrapes that a replay counted, and proposed baselines that it used."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from driftwatch.cli.printer import print_wrapped
from driftwatch.errors import DriftwatchError, NoVerdict
from driftwatch.model import TargetKey
from driftwatch.numbers import duration

if TYPE_CHECKING:
    import polars as pl

    from driftwatch.collect.schema import SourceProblem
    from driftwatch.pipeline.plan import Plan
    from driftwatch.pipeline.state import Outcome
    from driftwatch.store.store import Store

_REASONS_TOLD, _PROBLEMS_TOLD = 5, 20
# An answered page that holds nothing, in the words of collect/page_text.py. A scrape that was
# recorded as failed, and a server without statistics, are facts.
_UNREADABLE = (
    "answers HTML",
    "empty page",
    "no sample on the page",
    "not a metrics page",
    "page cut off",
)


class ScrapeCounts:
    """Counts over the outcomes of one replay; a scrape of several engines counts once.

    Attributes:
        span: of the history that is replayed; set before it is.
        reach: of the recordings; None of an API.
        usable: how many scrapes brought values.
        problems: what the sources could not read.
        until: end of the last minute that was evaluated; None before the first.
        proposals: baselines that were taken without a person.
    """

    span: tuple[datetime, datetime]
    reach: tuple[datetime, datetime] | None = None

    def __init__(self) -> None:
        self.usable = self._scrapes = 0
        self.problems: list[SourceProblem] = []
        self.until: datetime | None = None
        self.proposals = TakenProposals()
        self._failed: Counter[str] = Counter()  # reason without its numbers
        self._example: dict[str, str] = {}

    def add(self, outcome: Outcome) -> None:
        """Count one stretch."""
        self.problems += outcome.problems
        self.proposals.note(outcome.rows)
        if outcome.rows.height:
            newest = outcome.rows["end"].max()
            self.until = newest if isinstance(newest, datetime) else self.until
        scrapes = outcome.scrapes.select("instance", "time", "ok", "reason").unique(
            ["instance", "time"], keep="first", maintain_order=True
        )
        self._scrapes += len(scrapes)
        self.usable += int(scrapes["ok"].sum())
        for server, at, _, reason in scrapes.filter(~scrapes["ok"]).iter_rows():
            kind = re.sub(r"\d+", "N", str(reason))
            self._failed[kind] += 1
            where = f"{server}, {at:%Y-%m-%d %H:%M} UTC"
            self._example.setdefault(kind, f"{reason} ({where})")

    @property
    def unreadable(self) -> bool:
        """Something that was there could not be read."""
        lost = any(problem.lost for problem in self.problems)
        return lost or any(kind.startswith(_UNREADABLE) for kind in self._failed)

    @property
    def between(self) -> str:
        """``between 2026-11-16 08:00:00 and 2026-11-16 10:00:00 UTC``."""
        first, last = (f"{at:%Y-%m-%d %H:%M:%S}" for at in self.span)
        return f"between {first} and {last} UTC"

    def require_usable(self, where: str, lost: DriftwatchError | None = None) -> None:
        """Raises NoVerdict: no scrape was usable.

        ``lost``: why reading ended before the end of the history.
        """
        if self.usable:
            return
        help_text: str | None = "driftwatch doctor, or another --match, --from and --to"
        if self.reach is not None:
            first, last = (f"{at:%Y-%m-%d %H:%M}" for at in self.reach)
            help_text = f"scrapes reach from {first} to {last} UTC"
        reasons = [*self._example.values(), *(one.reason for one in self.problems)]
        why = where + next(iter(reasons), "there is no scrape at all")
        if lost is not None:
            why, help_text = lost.message, lost.help_text
        raise NoVerdict(f"no usable scrape {self.between}: {why}", help_text=help_text)

    def warnings(self, where: str, only: str = "") -> Iterator[str]:
        """The first problems of the sources, then the commonest reasons of failed scrapes:
        ``12 of 340 scrapes failed, e.g. answered 503``.

        ``where``: begins each line; ``only``: a part of the reasons that are wanted.
        """
        for problem in self.problems[:_PROBLEMS_TOLD]:
            yield f"{where}{problem.where}: {problem.reason}"
        if (more := len(self.problems) - _PROBLEMS_TOLD) > 0:
            yield f"and {more} more"
        often = [(kind, n) for kind, n in self._failed.most_common() if only in kind]
        for kind, times in often[:_REASONS_TOLD]:
            eg = ", e.g." if times > 1 else ":"
            yield f"{where}{times:,} of {self._scrapes:,} scrapes failed{eg} {self._example[kind]}"
        if rest := sum(times for _, times in often[_REASONS_TOLD:]):
            yield f"{where}{rest:,} of {self._scrapes:,} scrapes failed for other reasons"


# Measured on real client traffic: baselines of 2, 6, 24 and 48 h gave 2.6, 1.9, 0.68 and 0.27
# false episodes per server-month.
LONG_ENOUGH = timedelta(hours=24)
YOUNG = "with a baseline under 24 h, rules page 3 to 10 times as often as with 48 h"
_NAMED = 3
_PROVISIONAL = "provisional"
_READ = ("instance", "engine", "end", "scrapes", "speed_reference")


def with_proposals(plan: Plan) -> Plan:
    """The plan that takes a proposed baseline where there is none."""
    return replace(plan, accepts_proposals=True)


def span_text(since: datetime, until: datetime) -> str:
    """``2026-11-13 14:59 to 2026-11-15 14:59 UTC``; the second date only where it is another."""
    last = f"{until:%H:%M}" if since.date() == until.date() else f"{until:%Y-%m-%d %H:%M}"
    return f"{since:%Y-%m-%d %H:%M} to {last} UTC"


class TakenProposals:
    """The proposals that were taken without a person, from the evidence rows as they come."""

    def __init__(self) -> None:
        self._spans: pl.DataFrame | None = None  # of each target
        self._printed = set[str]()

    def note(self, rows: pl.DataFrame) -> None:
        """Some minutes."""
        import polars as pl

        if rows.is_empty():
            return
        key, start = ["instance", "engine"], pl.col("end") - timedelta(minutes=1)
        provisional = pl.col("speed_reference").cast(pl.String).str.contains(_PROVISIONAL)
        spans = rows.select(
            *key,
            since=pl.when(pl.col("scrapes") > 0).then(start),
            until=pl.when(provisional).then(start),
        )
        every = spans if self._spans is None else pl.concat([self._spans, spans])
        self._spans = every.group_by(key).agg(pl.col("since", "until").min()).sort(key)

    def note_stored(
        self, store: Store, until: datetime, targets: Iterable[TargetKey] | None = None
    ) -> TakenProposals:
        """The minutes of a store up to a time, of these targets or of all."""
        if (reach := store.minutes_reach()) is not None:
            self.note(store.past(reach[0], until, targets, _READ))
        return self

    def lines(self) -> Iterator[str]:
        """One line of those taken since the last call; none where none was."""
        texts = []
        for one in () if self._spans is None else self._spans.drop_nulls().iter_rows(named=True):
            name = TargetKey(one["instance"], one["engine"]).text
            if name not in self._printed:
                self._printed.add(name)
                length = duration((one["until"] - one["since"]).total_seconds())
                texts.append(f"{name} {span_text(one['since'], one['until'])} ({length})")
        if texts:
            more = "" if len(texts) <= _NAMED else f" and {len(texts) - _NAMED} more"
            yield (
                f"no baseline given: driftwatch uses the one it proposes, "
                f"{', '.join(texts[:_NAMED])}{more}; {YOUNG}"
            )

    def tell(self) -> None:
        """Print :meth:`lines` on stderr."""
        for line in self.lines():
            print_wrapped(line, err=True)
