"""Baselines that driftwatch proposes and takes itself, where nobody is there to accept one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from driftwatch.cli.printer import print_wrapped
from driftwatch.numbers import duration

if TYPE_CHECKING:
    import polars as pl

    from driftwatch.model import TargetKey
    from driftwatch.pipeline.plan import Plan
    from driftwatch.store import Store

# Measured on real client traffic: baselines of 2, 6, 24 and 48 h gave 2.6, 1.9, 0.68 and 0.27
# false episodes per server-month.
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


@dataclass(slots=True)
class _Proposal:
    name: str
    since: datetime
    until: datetime | None = None
    is_printed: bool = False


class TakenProposals:
    """The proposals that were taken without a person, from the evidence rows as they come."""

    def __init__(self) -> None:
        self._proposals: dict[tuple[str, str], _Proposal] = {}

    def note(self, rows: pl.DataFrame) -> None:
        """Some minutes."""
        import polars as pl

        from driftwatch.model import TargetKey

        if rows.is_empty():
            return
        provisional = pl.col("speed_reference").cast(pl.String).str.contains(_PROVISIONAL)
        start = pl.col("end") - timedelta(minutes=1)
        bounds = rows.group_by("instance", "engine", maintain_order=True).agg(
            since=start.filter(pl.col("scrapes") > 0).min(),
            until=start.filter(provisional).min(),
        )
        for instance, engine, since, until in bounds.iter_rows():
            key = TargetKey(instance, engine)
            if key not in self._proposals and since is not None:
                self._proposals[key] = _Proposal(key.text, since)
            proposal = self._proposals.get(key)
            if proposal is not None and proposal.until is None:
                proposal.until = until

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
        for _, proposal in sorted(self._proposals.items()):
            if proposal.until is not None and not proposal.is_printed:
                proposal.is_printed = True
                length = duration((proposal.until - proposal.since).total_seconds())
                span = span_text(proposal.since, proposal.until)
                texts.append(f"{proposal.name} {span} ({length})")
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
