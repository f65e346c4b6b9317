"""What a backtest prints: data of the report, the same for text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from driftwatch.backtest.compare import Comparison, Pair
from driftwatch.backtest.marks import Score, document_of_score
from driftwatch.backtest.outcome import Backtest, History, Rate, RuleCount
from driftwatch.backtest.pages import PastPage
from driftwatch.model import Severity
from driftwatch.numbers import brief, duration, figure, moment, plural, utc_text

SCHEMA_VERSION = 1
_PER_MONTH = "per server-month [95 %]"
_DARK = 0.5  # a rule without a verdict in so many of the minutes is named
_PLURALS = {"page": "pages", "ticket": "tickets", "notice": "notices"}


@dataclass(frozen=True, slots=True)
class Against:
    """The version that is compared with."""

    name: str  # as typed: main, or a folder
    result: Backtest
    comparison: Comparison
    useful_lost: tuple[PastPage, ...] = ()  # of those that are gone, what on-call marked useful


@dataclass(frozen=True, slots=True)
class BacktestReport:
    """Everything that was asked for."""

    result: Backtest
    severities: tuple[Severity, ...]
    against: Against | None = None
    score: Score | None = None  # by what on-call marked; None = nobody marked any
    silent: tuple[str, ...] = ()  # sentences: which rules could not be judged, and why


Row = tuple[str, ...]


def summary_line(history: History) -> str:
    """``46 servers, 30 d, data in 97.2 % of minutes``."""
    ratio = history.data_ratio
    data = "no minute" if ratio is None else f"data in {_share(ratio)} of minutes"
    return f"{plural(history.servers, 'server')}, {_days(history.days)}, {data}"


def _share(ratio: float) -> str:
    """97.2 %; a share that is not whole is never printed as whole."""
    text = f"{100 * ratio:.3g}"
    return "99.9 %" if ratio < 1 and float(text) >= 100 else f"{text} %"


def _days(days: float) -> str:
    """``29 min``, ``30 d``."""
    return duration(86400 * days) if days < 2 else f"{brief(days)} d"


def rule_rows(report: BacktestReport, severity: Severity) -> tuple[Row, list[Row]]:
    """Header and rows of the table of a severity; without rows where nothing was sent."""
    result, against = report.result, report.against
    noun = _PLURALS[severity]
    before = {} if against is None else {c.rule: c for c in against.result.counts(severity)}
    now = {count.rule: count for count in result.counts(severity)}
    rules = sorted(
        {*now, *before},
        key=lambda r: (-_pages(now.get(r)), -_pages(before.get(r)), r),
    )
    has_rate = result.per_server_month(0) is not None
    header: Row = ("rule", noun, _PER_MONTH) if has_rate else ("rule", noun)
    header += () if against is None else (against.name,)
    rows = []
    for rule in rules:
        pages = _pages(now.get(rule))
        row: Row = (f" {rule}", str(pages), *_rates(result, pages))
        row += () if against is None else (str(_pages(before.get(rule))),)
        rows.append(row)
    return header, rows


def _pages(count: RuleCount | None) -> int:
    return 0 if count is None else count.pages


def _rates(result: Backtest, pages: int) -> tuple[str, ...]:
    """The cell of a rate, where enough was judged for one."""
    rate = result.per_server_month(pages)
    return () if rate is None else (_rate(rate),)


def _rate(rate: Rate) -> str:
    """``2.5 [1.5, 4]``."""
    numbers = (rate.per_server_month, rate.low, rate.high)
    whole, low, high = (f"{number:.2g}" if number < 9.5 else figure(number) for number in numbers)
    return f"{whole} [{low}, {high}]"


def verdict_line(report: BacktestReport) -> str:
    """``6 gone, 0 new, 1 that was marked useful lost``; of one rule set how much it sent: where
    that is no rate, over what.
    """
    against = report.against
    if against is None:
        counts = [
            plural(len(report.result.of(severity)), severity) for severity in report.severities
        ]
        history = report.result.history
        seen = history.minutes_with_data / max(history.servers, 1)
        over = f" in {duration(60 * seen)} on {plural(history.servers, 'server')}"
        return ", ".join(counts) + ("" if history.rate(0) is not None else over)
    comparison = against.comparison
    parts = [f"{len(comparison.dropped)} gone", f"{len(comparison.new)} new"]
    if moved := comparison.moved:
        parts.append(f"{len(moved)} moved by {_minutes(moved)}")
    if others := [pair for pair in comparison.pairs if pair.before.rule != pair.now.rule]:
        parts.append(f"{len(others)} by another rule")
    if lost := len(against.useful_lost):
        parts.append(f"{lost} that {'was' if lost == 1 else 'were'} marked useful lost")
    return ", ".join(parts)


def _minutes(pairs: Sequence[Pair]) -> str:
    minutes = sorted({round(pair.later / timedelta(minutes=1)) for pair in pairs})
    ends = f"{minutes[0]:+d}" if len(minutes) == 1 else f"{minutes[0]:+d} to {minutes[-1]:+d}"
    return f"{ends} min"


@dataclass(frozen=True, slots=True)
class Listed:
    """One page of the list."""

    page: PastPage
    sign: str = ""  # + new, - gone, empty = in both, or there is one rule set
    changes: tuple[str, ...] = ()  # what is not as before


def listed(report: BacktestReport) -> list[Listed]:
    """Every page in order of time, what is gone and new among them."""
    if report.against is None:
        return [Listed(page) for page in report.result.pages]
    comparison = report.against.comparison
    every = [
        *(Listed(page, "-") for page in comparison.dropped),
        *(Listed(page, "+") for page in comparison.new),
        *(Listed(pair.now, "", pair.changes) for pair in comparison.pairs),
    ]
    return sorted(every, key=lambda one: (one.page.fired_at, one.page.rule, one.page.where))


def lasted(page: PastPage, until: datetime) -> str:
    """``71 min``, or how long it had fired at the end of the history."""
    if page.resolved_at is None:
        return f"{_lasted(until - page.fired_at)} or longer"
    return _lasted(page.resolved_at - page.fired_at)


def _lasted(length: timedelta) -> str:
    return duration(max(length.total_seconds(), 60.0))


def score_lines(report: BacktestReport) -> Iterator[str]:
    """What on-call said of the pages."""
    if (score := report.score) is None:
        return
    due, late = len(score.useful) + len(score.missed), score.median_delay
    after = "" if late is None else f", after {_lasted(late)} (median)"
    sent = f"{len(score.useful)} of {plural(due, 'useful page')} sent{after}"
    yield f"marks: {sent}" if due else "marks: no useful page was due"
    if count := len(score.useful) + len(score.noise):
        rate = report.result.per_server_month(len(score.noise))
        often = "" if rate is None else f" ({_rate(rate)} per server-month)"
        yield f" {len(score.noise)} of {plural(count, 'judged page')} marked not useful{often}"
    for one in score.missed:
        yield f" missed: {one}"
    if score.unjudged:
        yield f" {plural(len(score.unjudged), 'page')} not judged: nobody says anything of them"


def undetermined_lines(report: BacktestReport) -> Iterator[str]:
    """Rules without a verdict in half of the minutes with data or more, and why."""
    by_share: dict[str, list[str]] = {}
    for rule, share in report.result.undetermined_ratio.items():
        if _DARK <= share < 1.0:  # in all of them: the sentences below say why
            by_share.setdefault(_share(share), []).append(rule)
    for text, rules in by_share.items():
        has = "has" if len(rules) == 1 else "have"
        yield f"{', '.join(rules)} {has} no verdict in {text} of minutes with data"
    yield from report.silent


def document(report: BacktestReport) -> dict[str, Any]:
    """The whole report as JSON values."""
    result, history = report.result, report.result.history
    against = report.against
    return {
        "schema_version": SCHEMA_VERSION,
        "since": utc_text(history.since),
        "until": utc_text(history.until),
        "servers": history.servers,
        "server_months": history.server_months,
        "data_ratio": history.data_ratio,
        "rules": [
            {**asdict(count), **_rate_document(result, count.pages)}
            for severity in report.severities
            for count in result.counts(severity)
        ],
        "pages": [_page(one) for one in listed(report)],
        "undetermined_ratio": dict(result.undetermined_ratio),
        "against": None
        if against is None
        else {
            "name": against.name,
            "gone": len(against.comparison.dropped),
            "new": len(against.comparison.new),
            "moved": len(against.comparison.moved),
            "useful_lost": [page.id for page in against.useful_lost],
        },
        "marks": None if report.score is None else document_of_score(report.score),
    }


def _rate_document(result: Backtest, pages: int) -> dict[str, Any]:
    rate = result.per_server_month(pages)
    return {
        "per_server_month": rate and rate.per_server_month,
        "per_server_month_interval": rate and [rate.low, rate.high],
    }


def _page(one: Listed) -> dict[str, Any]:
    values = asdict(one.page)
    times = ("started_at", "fired_at", "resolved_at")
    return {
        **values,
        **{name: values[name] and utc_text(values[name]) for name in times},
        "compared": {"+": "new", "-": "gone"}.get(one.sign),
        "changes": one.changes,
    }


def when(page: PastPage) -> str:
    """The minute it fires, with its day."""
    return moment(page.fired_at, None)
