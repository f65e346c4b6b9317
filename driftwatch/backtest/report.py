"""What a backtest prints: one document, and its text for a terminal. Pure."""

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
from driftwatch.notify.layout import wrap
from driftwatch.numbers import brief, clean, duration, figure, moment, plural
from driftwatch.rulebook.rules import Rule

_PER_MONTH = "per server-month [95 %]"
_DARK = 0.5  # a rule without a verdict in so many of the minutes is named
_WIDTH = 80
_LIST_HINT = "--list: when, how long, leaf, line 1"


class RuleCount(Document):
    """One rule and what came of it."""

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


def text_lines(report: BacktestReport, *, with_list: bool, piped: bool) -> Iterator[str]:
    """The answer first, then what qualifies it, the verdict last.

    ``piped``: tabs between the cells, and no line is wrapped.
    """
    ratio = report.data_ratio
    data = "no minute" if ratio is None else f"data in {_share(ratio)} of minutes"
    length = (report.until - report.since).total_seconds()
    days = duration(length) if length < 2 * 86_400 else f"{brief(length / 86_400)} d"
    yield f"{plural(report.servers, 'server')}, {days}, {data}"
    for severity in report.severities:
        rows = [_row(one) for one in report.rules if one.severity == severity]
        if rows:
            yield from _table([_header(report, severity, len(rows[0])), *rows], piped=piped)
    if with_list:
        yield from _list(report, piped=piped)
    for line in (*_undetermined(report), *_marks(report)):
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        yield from [line] if piped else wrap(line, _WIDTH, indent)
    verdict = verdict_line(report)
    yield verdict if with_list or not report.pages else f"{verdict} ({_LIST_HINT})"


def _header(report: BacktestReport, severity: Severity, columns: int) -> list[str]:
    against = [] if report.against is None else [report.against.name]
    rate = [_PER_MONTH] if columns - len(against) > 2 else []
    return ["rule", f"{severity}s", *rate, *against]


def _row(one: RuleCount) -> list[str]:
    rate = _rate(one.per_server_month, one.per_server_month_interval)
    before = [] if one.before is None else [str(one.before)]
    return [f" {one.rule}", str(one.pages), *([rate] if rate else []), *before]


def _rate(rate: float | None, interval: tuple[float, float] | None) -> str:
    """``2.5 [1.5, 4]``; empty where there is none."""
    if rate is None or interval is None:
        return ""
    numbers = (rate, *interval)
    whole, low, high = (f"{number:.2g}" if number < 9.5 else figure(number) for number in numbers)
    return f"{whole} [{low}, {high}]"


def _share(ratio: float) -> str:
    """97.2 %; a share that is not whole is never printed as whole."""
    text = f"{100 * ratio:.3g}"
    return "99.9 %" if ratio < 1 and float(text) >= 100 else f"{text} %"


def verdict_line(report: BacktestReport) -> str:
    """``6 gone, 0 new, 1 that was marked useful lost``; of one rule set how much it sent: where
    that is no rate, over what.
    """
    against = report.against
    if against is None:
        sent = Counter(one.severity for one in report.pages)
        counts = ", ".join(plural(sent[severity], severity) for severity in report.severities)
        if History.is_rate(report.server_months):
            return counts
        seconds = report.server_months * History.MONTH_SECONDS / max(report.servers, 1)
        return f"{counts} in {duration(seconds)} on {plural(report.servers, 'server')}"
    parts = [f"{against.gone} gone", f"{against.new} new"]
    if later := against.later:
        ends = "{:+d}" if later[0] == later[-1] else "{:+d} to {:+d}"
        parts.append(f"{len(later)} moved by {ends.format(later[0], later[-1])} min")
    if others := against.by_another_rule:
        parts.append(f"{others} by another rule")
    if lost := len(against.useful_lost):
        parts.append(f"{lost} that {'was' if lost == 1 else 'were'} marked useful lost")
    return ", ".join(parts)


def _list(report: BacktestReport, *, piped: bool) -> Iterator[str]:
    """Every page: some lines each; piped a row of sign (+ new, - gone), fired at, lasted, rule,
    severity, where, leaf, line 1, what changed.
    """
    for page in report.pages:
        sign = {"new": "+", "gone": "-"}.get(page.compared or "", "")
        at, changes = moment(page.fired_at, None), ", ".join(page.changes)
        open_for = (page.resolved_at or report.until) - page.fired_at
        length = duration(max(open_for.total_seconds(), 60.0))
        length += "" if page.resolved_at else " or longer"
        if piped:
            cells = (sign, at, length, page.rule, page.severity, page.where, page.leaf or "")
            yield "\t".join(map(clean, (*cells, page.headline, changes)))
            continue
        leaf = f", leaf {page.leaf}" if page.leaf else ""
        yield ""
        yield from wrap(
            f"{sign} {at}, {length}: {page.rule} on {page.where}{leaf}".strip(), _WIDTH, "  "
        )
        more = [page.headline] if page.headline else []
        if changes and report.against is not None:
            more.append(f"compared with {report.against.name}: {changes}")
        more += [f"closed: {page.closed}"] if page.closed else []
        for line in more:
            yield from wrap(f"  {clean(line)}", _WIDTH, "    ")
    if report.pages and not piped:
        yield ""


def _undetermined(report: BacktestReport) -> Iterator[str]:
    """Rules without a verdict in half of the minutes with data or more, and why."""
    for rule, share in report.undetermined_ratio.items():
        if _DARK <= share < 1.0:  # in all of them: the sentences below say why
            yield f"{rule} has no verdict in {_share(share)} of minutes with data"
    yield from report.silent


def _marks(report: BacktestReport) -> Iterator[str]:
    """The pages against the marks of on-call."""
    if (score := report.marks) is None:
        return
    due, late = score.useful + len(score.missed), score.delay_median_seconds
    after = "" if late is None else f", after {duration(max(late, 60.0))} (median)"
    sent = f"{score.useful} of {plural(due, 'useful page')} sent{after}"
    yield f"marks: {sent}" if due else "marks: no useful page was due"
    if count := score.useful + score.not_useful:
        yield f" {score.not_useful} of {plural(count, 'judged page')} marked not useful"
    yield from (f" missed: {one}" for one in score.missed)
    if score.unjudged:
        yield f" {plural(score.unjudged, 'page')} not judged: nobody marked them"


def _table(rows: Sequence[Sequence[str]], *, piped: bool) -> Iterator[str]:
    """Names to the left, numbers to the right; the header is the first row."""
    if piped:
        yield from ("\t".join(cell.strip() for cell in row) for row in rows)
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        numbers = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
        yield "  ".join([first.ljust(widths[0]), *numbers])
