"""What a backtest answers, as one document. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Literal

from driftwatch.backtest.outcome import Backtest, History
from driftwatch.backtest.pages import (
    Comparison,
    Marked,
    PastPage,
    Score,
    compare,
    score_of_marks,
)
from driftwatch.documents import Document
from driftwatch.model import Severity
from driftwatch.rulebook.rules import Rule


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
    silent: tuple[str, ...]  # sentences: which rules could not be judged, and why


def report_of(
    result: Backtest,
    severities: Sequence[Severity],
    rules: Sequence[Rule],
    *,
    other: tuple[str, Backtest] | None = None,
    marks: Sequence[Marked] = (),
    silent: Sequence[str] = (),
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
        silent=tuple(silent),
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
