"""Pages against what people and truth files say of the same history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from driftwatch.backtest.compare import compare
from driftwatch.backtest.pages import PastPage
from driftwatch.errors import UsageError
from driftwatch.model import Incident, Severity
from driftwatch.rulebook.rules import Rule
from driftwatch.store.incidents import USEFUL, Mark


class Effect(BaseModel):
    """One thing that happened, and who must be told of it: an entry of ``effects``."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    what: str = ""
    start_seconds: float  # unix time
    end_seconds: float
    grace_seconds: float = Field(0.0, ge=0)  # a page so long after the end belongs to it
    instances: tuple[str, ...] = ()  # the servers that it is about; empty = every one
    # alert names, any of which tells it; empty = nobody must be told
    pages: tuple[str, ...] = ()
    tickets: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    leaf: str | None = None  # where the diagnosis should end; None = anywhere

    def alerts(self, severity: Severity) -> tuple[str, ...]:
        """The alerts of a severity that tell it."""
        return {"page": self.pages, "ticket": self.tickets, "notice": self.notices}[severity]

    def covers(self, page: PastPage) -> bool:
        """The page is about its servers, in its time."""
        start = datetime.fromtimestamp(self.start_seconds, UTC)
        end = datetime.fromtimestamp(self.end_seconds + self.grace_seconds, UTC)
        server = page.target.get("instance")
        here = not self.instances or server is None or server in self.instances
        return here and start <= page.fired_at <= end


class Truth(BaseModel):
    """A truth file, as ``driftwatch demo --scenario NAME --write DIR`` writes it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    schema_version: int = 1
    effects: tuple[Effect, ...]

    def within(self, span: tuple[datetime, datetime]) -> Truth:
        """Less what happened before or after a span: nobody could be told of it."""
        first, last = (at.timestamp() for at in span)
        here = [e for e in self.effects if e.start_seconds < last and e.end_seconds > first]
        return self.model_copy(update={"effects": tuple(here)})


def read_truth(path: Path) -> Truth:
    """A truth file; of a folder its ``truth.json``.

    Raises UsageError: it cannot be read, or is none.
    """
    file = path / "truth.json" if path.is_dir() else path
    try:
        return Truth.model_validate(orjson.loads(file.read_bytes()))
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from error
    except (orjson.JSONDecodeError, ValidationError) as error:
        why = error.errors()[0] if isinstance(error, ValidationError) else {"msg": str(error)}
        place = ".".join(map(str, why.get("loc", ())))
        raise UsageError(
            f"{file}: no truth file: {f'{place}: ' if place else ''}{why['msg']}",
            help_text='{"effects": [{"start_seconds": 0, "end_seconds": 600, "instances": '
            '["host:8000"], "pages": ["SlowerAtEqualLoad"]}]}',
        ) from error


@dataclass(frozen=True, slots=True)
class Score:
    """Pages judged: what was told that had to be, what was not, and what was told for nothing."""

    right: tuple[PastPage, ...]  # that somebody had to be told of
    wrong: tuple[PastPage, ...]  # that nobody needed
    missed: tuple[str, ...]  # what nobody was told of
    unjudged: tuple[PastPage, ...]  # of which nobody says anything
    delays: tuple[
        timedelta, ...
    ] = ()  # from the beginning to the first page, of each that was told

    @property
    def median_delay(self) -> timedelta | None:
        """The lower of the two in the middle; None without any."""
        return sorted(self.delays)[(len(self.delays) - 1) // 2] if self.delays else None


def score_of_truth(
    pages: Sequence[PastPage], truth: Truth, severities: Sequence[Severity]
) -> Score:
    """Pages against what was injected.

    A page is right where an effect covers it and names its alert; one that an effect covers which
    names others is unjudged (the episode is real, another rule tells it); every other one is wrong.
    """
    right, wrong, unjudged = [], [], []
    for page in pages:
        covering = [effect for effect in truth.effects if effect.covers(page)]
        if any(page.alert in effect.alerts(page.severity) for effect in covering):
            right.append(page)
        elif any(effect.alerts(severity) for effect in covering for severity in severities):
            unjudged.append(page)
        else:
            wrong.append(page)
    missed, delays = [], []
    for effect in truth.effects:
        due = [severity for severity in severities if effect.alerts(severity)]
        telling = [p for p in right if effect.covers(p) and p.alert in effect.alerts(p.severity)]
        if due and not telling:
            missed.append(effect.what or f"effect at {effect.start_seconds:.0f}")
        elif telling:
            start = datetime.fromtimestamp(effect.start_seconds, UTC)
            delays.append(min(page.fired_at for page in telling) - start)
    return Score(tuple(right), tuple(wrong), tuple(missed), tuple(unjudged), tuple(delays))


@dataclass(frozen=True, slots=True)
class Marked:
    """A page of the live service that somebody marked."""

    page: PastPage
    is_useful: bool


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
    right = [pair for pair in matched.pairs if is_useful[pair.before.id]]
    wrong = [pair for pair in matched.pairs if not is_useful[pair.before.id]]
    return Score(
        right=tuple(pair.now for pair in right),
        wrong=tuple(pair.now for pair in wrong),
        missed=tuple(_name(one) for one in matched.dropped if is_useful[one.id]),
        unjudged=matched.new,
        delays=tuple(pair.now.fired_at - pair.before.started_at for pair in right),
    )


def useful_lost(
    dropped: Sequence[PastPage], marks: Sequence[Marked], rules: Sequence[Rule], until: datetime
) -> Iterator[PastPage]:
    """Of pages that are dropped those that on-call marked useful."""
    useful = [one.page for one in marks if one.is_useful]
    for pair in compare(useful, dropped, rules, until).pairs:
        yield pair.now


def _name(page: PastPage) -> str:
    return f"{page.alert} {page.where} at {page.fired_at:%Y-%m-%d %H:%M} UTC"


def document_of_score(score: Score) -> dict[str, Any]:
    """As JSON."""
    median = score.median_delay
    return {
        "right": len(score.right),
        "wrong": len(score.wrong),
        "missed": list(score.missed),
        "unjudged": len(score.unjudged),
        "delay_median_seconds": None if median is None else median.total_seconds(),
        "delay_max_seconds": max((d.total_seconds() for d in score.delays), default=None),
    }
