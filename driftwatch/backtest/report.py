"""The pages of a rule set over a history, beside another set and on-call's marks, as one document.
Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from driftwatch.documents import Document
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.model import Severity
from driftwatch.rulebook.rules import Rule
from driftwatch.store.actions import USEFUL, Mark

if TYPE_CHECKING:
    from driftwatch.backtest.outcome import Backtest, History


class PastPage(Document):
    """One incident that would have been sent, from its first page to its end."""

    id: str  # of the incident, as the live service would have called it
    rule: str  # rule id
    alert: str  # alert name
    severity: Severity
    pool: str
    where: str  # its only server, else the pool
    started_at: datetime  # when the condition became true
    fired_at: datetime
    resolved_at: datetime | None = None  # None = it fires still at the end of the history
    closed: str | None = None  # why it ended although its condition was not false, else None
    leaf: str | None = None  # where its diagnosis ended, None without one
    headline: str = ""  # line 1 of its first page
    servers: tuple[str, ...] = ()  # that met the rule
    compared: Literal["new", "gone"] | None = None  # with another rule set; None = in both
    changes: tuple[str, ...] = ()  # what is not as it was there

    @classmethod
    def of(cls, incident: Incident) -> PastPage:
        """A page as it fired."""
        page = incident.page
        return cls(
            id=incident.id,
            rule=incident.rule,
            alert=incident.alert,
            severity=incident.severity,
            pool=incident.pool,
            **_servers(incident),
            started_at=incident.started_at,
            fired_at=incident.firing_at or incident.started_at,
            resolved_at=incident.resolved_at,
            leaf=None if page is None else page.leaf,
            headline="" if page is None else page.summary.partition(". No advice:")[0],
        )


def _servers(incident: Incident) -> dict[str, Any]:
    """The servers that it concerned, as ``driftwatch incidents`` counts them."""
    met = tuple(one.key.text for one in incident.servers if one.met)
    return {"where": incident.name, "servers": met}


def past_pages(transitions: Iterable[Transition], still_open: Iterable[Incident]) -> list[PastPage]:
    """What fired, in order; each with its end, and with the servers that joined it."""
    pages: dict[str, PastPage] = {}
    for one in transitions:
        incident = one.incident
        if one.event == "firing":
            pages[incident.id] = PastPage.of(incident)
        elif one.event == "resolved" and incident.id in pages:
            end = {"resolved_at": one.at, "closed": one.reason, **_servers(incident)}
            pages[incident.id] = pages[incident.id].model_copy(update=end)
    for incident in still_open:
        if incident.id in pages:
            pages[incident.id] = pages[incident.id].model_copy(update=_servers(incident))
    return list(pages.values())


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every page of two rule sets."""

    gone: tuple[PastPage, ...]  # sent before only
    new: tuple[PastPage, ...]  # sent now only
    pairs: tuple[tuple[PastPage, PastPage], ...]  # sent by both: before, now

    @property
    def later(self) -> tuple[int, ...]:
        """By how many minutes pages moved, those that did."""
        return tuple(sorted(m for before, now in self.pairs if (m := _later(before, now))))

    @property
    def listed(self) -> tuple[PastPage, ...]:
        """Every page in order of time, each with what changed."""
        pages = [
            *(one.model_copy(update={"compared": "gone"}) for one in self.gone),
            *(one.model_copy(update={"compared": "new"}) for one in self.new),
            *(now.model_copy(update={"changes": _changes(b, now)}) for b, now in self.pairs),
        ]
        return tuple(sorted(pages, key=lambda one: (one.fired_at, one.rule, one.where)))


def _later(before: PastPage, now: PastPage) -> int:
    return round((now.fired_at - before.fired_at) / timedelta(minutes=1))


def _changes(before: PastPage, now: PastPage) -> tuple[str, ...]:
    """What changed, in words."""
    minutes = _later(before, now)
    moved = [f"{abs(minutes)} min {'later' if minutes > 0 else 'earlier'}"] if minutes else []
    words = ((name, getattr(before, name), getattr(now, name)) for name in _COMPARED)
    return (*moved, *(f"{name} was {old or 'none'}" for name, old, new in words if old != new))


_COMPARED = ("severity", "rule", "leaf")


def compare(
    before: Sequence[PastPage], now: Sequence[PastPage], rules: Sequence[Rule], until: datetime
) -> Comparison:
    """Match the pages of two rule sets, each once; the same rule and the earliest overlap first.

    Two pages are the same where they are about the same pool, were sent by the same rule or by
    rules of one group, and overlap in time.

    ``rules``: those of both sets; ``until``: end of the history, at which what fires still is cut.
    """
    group_of = {rule.id: rule.group for rule in rules}
    candidates = []
    for i, one in enumerate(before):
        for k, other in enumerate(now):
            first = max(one.started_at, other.started_at)  # that both are open
            last = min(one.resolved_at or until, other.resolved_at or until)
            if first <= last and _may_pair(one, other, group_of):
                near = abs(one.fired_at - other.fired_at)
                candidates.append((one.rule != other.rule, first, near, i, k))
    pairs: dict[int, int] = {}
    for *_, i, k in sorted(candidates):
        if i not in pairs and k not in pairs.values():
            pairs[i] = k
    return Comparison(
        gone=tuple(one for i, one in enumerate(before) if i not in pairs),
        new=tuple(one for k, one in enumerate(now) if k not in pairs.values()),
        pairs=tuple((before[i], now[k]) for i, k in sorted(pairs.items())),
    )


def _may_pair(one: PastPage, other: PastPage, group_of: Mapping[str, str]) -> bool:
    groups = group_of.get(one.rule), group_of.get(other.rule)
    same_group = None not in groups and groups[0] == groups[1]
    return one.pool == other.pool and (one.rule == other.rule or same_group)


@dataclass(frozen=True, slots=True)
class Marked:
    """A page of the live service that somebody marked."""

    page: PastPage
    is_useful: bool


class Score(Document):
    """Pages judged by marks."""

    useful: int  # sent, and marked useful
    not_useful: int
    missed: tuple[str, ...]  # useful ones that are not sent
    unjudged: int  # without a mark
    # from the beginning to the page of the useful ones, the lower of the two in the middle
    delay_median_seconds: float | None


def marked_pages(incidents: Sequence[Incident], marks: Mapping[str, Mark]) -> list[Marked]:
    """The incidents that somebody marked, as pages."""
    return [
        Marked(PastPage.of(one), marks[one.id].mark == USEFUL)
        for one in incidents
        if one.id in marks and one.firing_at is not None
    ]


def score_of_marks(
    pages: Sequence[PastPage], marks: Sequence[Marked], rules: Sequence[Rule], until: datetime
) -> Score:
    """Pages against the marks on those that the live service sent."""
    matched = compare([one.page for one in marks], pages, rules, until)
    is_useful = {one.page.id: one.is_useful for one in marks}
    useful = [pair for pair in matched.pairs if is_useful[pair[0].id]]
    delays = sorted((now.fired_at - sent.started_at).total_seconds() for sent, now in useful)
    return Score(
        useful=len(useful),
        not_useful=len(matched.pairs) - len(useful),
        missed=tuple(
            f"{one.alert} {one.where} at {one.fired_at:%Y-%m-%d %H:%M} UTC"
            for one in matched.gone
            if is_useful[one.id]
        ),
        unjudged=len(matched.new),
        delay_median_seconds=delays[(len(delays) - 1) // 2] if delays else None,
    )


class RuleCount(Document):
    """One rule and its pages."""

    rule: str  # rule id
    severity: Severity
    pages: int
    before: int | None  # with the rules that are compared with; None = none are
    leaf: str | None  # where most of its diagnoses ended; None without one
    per_server_month: float | None  # None = too little was judged for a rate
    per_server_month_interval: tuple[float, float] | None


class Against(Document):
    """Another rule set against this one."""

    name: str  # as typed: main, or a folder
    gone: int
    new: int
    later: tuple[int, ...]  # by how many minutes pages moved, those that did
    by_another_rule: int
    useful_lost: tuple[str, ...]  # ids of those that are gone and that on-call marked useful


class BacktestReport(Document):
    """A rule set over a history."""

    schema_version: Literal[2] = 2
    since: datetime
    until: datetime
    servers: int
    server_months: float  # with data
    data_ratio: float | None  # share of the minutes with data; None without a minute
    severities: tuple[Severity, ...]
    rules: tuple[RuleCount, ...]  # by severity, the one with the most pages first
    pages: tuple[PastPage, ...]  # in order of time, those that are gone among them
    # rule id → share of the minutes with data in which it had no verdict
    undetermined_ratio: Mapping[str, float]
    against: Against | None
    marks: Score | None  # None = nobody marked any


def report_of(
    result: Backtest,
    severities: Sequence[Severity],
    rules: Sequence[Rule],
    *,
    other: tuple[str, Backtest] | None = None,
    marks: Sequence[Marked] = (),
) -> BacktestReport:
    """A rule set over a history, beside another one, and by what on-call marked.

    ``rules``: of both sets; ``other``: its name and what it would have sent.
    """
    history, until = result.history, result.history.until
    pages = [one for one in result.pages if one.severity in severities]
    before = None if other is None else [p for p in other[1].pages if p.severity in severities]
    compared = None if before is None else compare(before, pages, rules, until)
    # what fired outside of the history could not be sent in it
    due = [one for one in marks if history.since <= one.page.fired_at <= until]
    return BacktestReport(
        since=history.since,
        until=until,
        servers=history.servers,
        server_months=history.server_months,
        data_ratio=history.data_ratio,
        severities=tuple(severities),
        rules=tuple(_counts(history, severities, pages, before)),
        pages=tuple(pages) if compared is None else compared.listed,
        undetermined_ratio=result.undetermined_ratio,
        against=None
        if other is None or compared is None
        else _against(other[0], compared, marks, rules, until),
        marks=score_of_marks(pages, due, rules, until) if due else None,
    )


def _against(
    name: str, compared: Comparison, marks: Sequence[Marked], rules: Sequence[Rule], until: datetime
) -> Against:
    useful = [one.page for one in marks if one.is_useful]
    lost = compare(useful, compared.gone, rules, until).pairs
    return Against(
        name=name,
        gone=len(compared.gone),
        new=len(compared.new),
        later=compared.later,
        by_another_rule=sum(was.rule != now.rule for was, now in compared.pairs),
        useful_lost=tuple(now.id for _, now in lost),
    )


def _counts(
    history: History,
    severities: Sequence[Severity],
    pages: Sequence[PastPage],
    before: Sequence[PastPage] | None,
) -> Iterator[RuleCount]:
    for severity in severities:
        now, was = (
            Counter(one.rule for one in several or () if one.severity == severity)
            for several in (pages, before)
        )
        for rule in sorted({*now, *was}, key=lambda r: (-now[r], -was[r], r)):
            leaves = Counter(p.leaf for p in pages if p.rule == rule and p.leaf is not None)
            rate = history.rate(now[rule])
            yield RuleCount(
                rule=rule,
                severity=severity,
                pages=now[rule],
                before=None if before is None else was[rule],
                leaf=min(leaves, key=lambda leaf: (-leaves[leaf], leaf)) if leaves else None,
                per_server_month=rate and rate[0],
                per_server_month_interval=rate and rate[1:],
            )
