"""The text of a backtest: the counts first, then what qualifies them, the verdict last."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta

from driftwatch.backtest.outcome import History
from driftwatch.backtest.report import BacktestReport, PastPage, RuleCount
from driftwatch.cli.printer import table_lines, time_text, wrapped
from driftwatch.model import Severity
from driftwatch.numbers import brief, duration, figure, plural

_PER_MONTH = "per server-month [95 %]"
_DARK = 0.5  # a rule without a verdict in so many of the minutes is named
_LIST_HINT = "--list: when, how long, leaf, line 1"
_LIST = ("", "SINCE UTC", "FIRED UTC", "LASTED", "SEVERITY", "WHERE", "RULE")


def text_lines(report: BacktestReport, *, with_list: bool) -> Iterator[str]:
    """Lines for standard output; piped with tabs between the cells, and none is wrapped."""
    piped, ratio = not sys.stdout.isatty(), report.data_ratio
    data = "no minute" if ratio is None else f"data in {_share(ratio)} of minutes"
    length = (report.until - report.since).total_seconds()
    days = duration(length) if length < 2 * 86_400 else f"{brief(length / 86_400)} d"
    yield f"{plural(report.servers, 'server')}, {days}, {data}"
    for severity in report.severities:
        rows = [_row(one) for one in report.rules if one.severity == severity]
        if rows:
            yield from _table([_header(report, severity, len(rows[0])), *rows], piped=piped)
    if with_list:
        yield from _list(report)
    for line in (*_undetermined(report), *_marks(report)):
        yield from wrapped(line, " " * (len(line) - len(line.lstrip()) + 2), piped=piped)
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


def _list(report: BacktestReport) -> Iterator[str]:
    """A row a page, with the times that `driftwatch incidents` has; + is new, - is gone."""
    rows, below = [], []
    tomorrow = report.until + timedelta(days=1)  # a history has no today: each time has its date
    for page in report.pages:
        open_for = (page.resolved_at or report.until) - page.started_at
        lasted = "" if page.resolved_at else "over "
        lasted += duration(open_for.total_seconds())
        since, fired = (time_text(at, tomorrow) for at in (page.started_at, page.fired_at))
        sign = {"new": "+", "gone": "-"}.get(page.compared or "", "")
        rows.append((sign, since, fired, lasted, page.severity, page.where, page.rule))
        below.append("; ".join(_details(report, page)))
    gap = [""] if rows and sys.stdout.isatty() else []
    yield from (*gap, *table_lines(_LIST, rows, below=below), *gap)


def _details(report: BacktestReport, page: PastPage) -> Iterator[str]:
    yield page.headline or "no line 1"
    if len(page.servers) > 1:
        yield f"{len(page.servers)} servers"
    if page.leaf:
        yield f"leaf {page.leaf}"
    if page.changes and report.against is not None:
        yield f"compared with {report.against.name}: {', '.join(page.changes)}"
    if page.closed:
        yield f"closed: {page.closed}"


def _undetermined(report: BacktestReport) -> Iterator[str]:
    """Rules without a verdict in half of the minutes with data or more."""
    dark = [rule for rule, share in report.undetermined_ratio.items() if share == 1.0]
    for rule, share in report.undetermined_ratio.items():
        if _DARK <= share < 1.0:
            yield f"{rule} has no verdict in {_share(share)} of minutes with data"
    if dark:
        yield f"no verdict in any minute: {', '.join(dark)} (driftwatch doctor: why)"


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
