"""Pages against what on-call marked of those that the live service sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from driftwatch.backtest.compare import compare
from driftwatch.backtest.pages import PastPage
from driftwatch.incidents.incident import Incident
from driftwatch.rulebook.rules import Rule
from driftwatch.store.incidents import USEFUL, Mark


@dataclass(frozen=True, slots=True)
class Marked:
    """A page of the live service that somebody marked."""

    page: PastPage
    is_useful: bool


@dataclass(frozen=True, slots=True)
class Score:
    """Pages judged by marks."""

    useful: tuple[PastPage, ...]  # marked useful
    noise: tuple[PastPage, ...]  # marked not useful
    missed: tuple[str, ...]  # useful ones that are not sent
    unjudged: tuple[PastPage, ...]  # of which nobody says anything
    # from the beginning to the page, of each useful one
    delays: tuple[timedelta, ...] = ()

    @property
    def median_delay(self) -> timedelta | None:
        """The lower of the two in the middle; None without any."""
        return sorted(self.delays)[(len(self.delays) - 1) // 2] if self.delays else None


def marked_pages(incidents: Sequence[Incident], marks: Mapping[str, Mark]) -> list[Marked]:
    """The incidents that somebody marked, as pages."""
    return [
        Marked(PastPage.of(one), marks[one.id].mark == USEFUL)
        for one in incidents
        if one.id in marks and one.firing_at is not None
    ]


def marks_within(marks: Sequence[Marked], span: tuple[datetime, datetime]) -> list[Marked]:
    """Marks of pages that fired in a span: a backtest of it could not send others."""
    return [one for one in marks if span[0] <= one.page.fired_at <= span[1]]


def score_of_marks(
    pages: Sequence[PastPage], marks: Sequence[Marked], rules: Sequence[Rule], until: datetime
) -> Score:
    """Pages against what on-call said of those that the live service sent."""
    matched = compare([one.page for one in marks], pages, rules, until)
    is_useful = {one.page.id: one.is_useful for one in marks}
    useful = [pair for pair in matched.pairs if is_useful[pair.before.id]]
    noise = [pair for pair in matched.pairs if not is_useful[pair.before.id]]
    return Score(
        useful=tuple(pair.now for pair in useful),
        noise=tuple(pair.now for pair in noise),
        missed=tuple(_name(one) for one in matched.dropped if is_useful[one.id]),
        unjudged=matched.new,
        delays=tuple(pair.now.fired_at - pair.before.started_at for pair in useful),
    )


def useful_lost(
    dropped: Sequence[PastPage], marks: Sequence[Marked], rules: Sequence[Rule], until: datetime
) -> Iterator[PastPage]:
    """Dropped pages that on-call marked useful."""
    useful = [one.page for one in marks if one.is_useful]
    for pair in compare(useful, dropped, rules, until).pairs:
        yield pair.now


def _name(page: PastPage) -> str:
    return f"{page.alert} {page.where} at {page.fired_at:%Y-%m-%d %H:%M} UTC"


def document_of_score(score: Score) -> dict[str, Any]:
    """As JSON."""
    median = score.median_delay
    return {
        "useful": len(score.useful),
        "not_useful": len(score.noise),
        "missed": list(score.missed),
        "unjudged": len(score.unjudged),
        "delay_median_seconds": None if median is None else median.total_seconds(),
    }
