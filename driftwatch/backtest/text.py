"""A backtest as a person reads it on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from driftwatch.backtest.report import (
    BacktestReport,
    Listed,
    Row,
    lasted,
    listed,
    rule_rows,
    score_lines,
    summary_line,
    undetermined_lines,
    verdict_line,
    when,
)
from driftwatch.notify.layout import wrap
from driftwatch.numbers import clean

_WIDTH = 80
_LIST_HINT = "--list: when, how long, leaf, line 1"


def text_lines(report: BacktestReport, *, with_list: bool, piped: bool) -> Iterator[str]:
    """The answer first, then what qualifies it, the verdict last.

    ``piped``: tabs between the cells, and no line is wrapped.
    """
    yield summary_line(report.result.history)
    for severity in report.severities:
        header, rows = rule_rows(report, severity)
        if rows:
            yield from _rows(header, rows, piped=piped)
    if with_list:
        yield from _list(report, piped=piped)
    for line in (*undetermined_lines(report), *score_lines(report)):
        yield from [line] if piped else wrap(line, _WIDTH, f"{_indent(line)}  ")
    verdict = verdict_line(report)
    yield verdict if with_list or not listed(report) else f"{verdict} ({_LIST_HINT})"


def _list(report: BacktestReport, *, piped: bool) -> Iterator[str]:
    """Every page: some lines each, or a row of nine cells."""
    if piped:
        yield from ("\t".join(map(clean, _cells(one, report))) for one in listed(report))
        return
    for one in listed(report):
        yield ""
        first, *more = _listed(one, report)
        yield from wrap(first, _WIDTH, "  ")
        for line in more:
            yield from wrap(f"  {clean(line)}", _WIDTH, "    ")
    if listed(report):
        yield ""


def _listed(one: Listed, report: BacktestReport) -> Iterator[str]:
    page = one.page
    sign = f"{one.sign} " if one.sign else ""
    length = lasted(page, report.result.history.until)
    leaf = f", leaf {page.leaf}" if page.leaf else ""
    yield f"{sign}{when(page)}, {length}: {page.rule} on {page.where}{leaf}"
    if page.headline:
        yield page.headline
    if one.changes:
        name = report.against.name if report.against else ""
        yield f"compared with {name}: {', '.join(one.changes)}"
    if page.closed:
        yield f"closed: {page.closed}"


def _cells(one: Listed, report: BacktestReport) -> Row:
    """Sign, fired at, lasted, rule, severity, where, leaf, line 1, what changed."""
    page = one.page
    length = lasted(page, report.result.history.until)
    head = (one.sign, when(page), length, page.rule, page.severity, page.where, page.leaf or "")
    return (*head, page.headline, ", ".join(one.changes))


def _rows(header: Row, rows: Sequence[Row], *, piped: bool) -> Iterator[str]:
    if piped:
        yield from ("\t".join(cell.strip() for cell in row) for row in (header, *rows))
    else:
        yield from _aligned(header, rows)


def _aligned(header: Row, rows: Sequence[Row]) -> Iterator[str]:
    """Names to the left, numbers to the right."""
    table = [header, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    numeric = [all(_is_number(row[i]) for row in rows) for i in range(len(header))]
    for row in table:
        cells = [
            cell.rjust(width) if number and i else cell.ljust(width)
            for i, (cell, width, number) in enumerate(zip(row, widths, numeric, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _is_number(cell: str) -> bool:
    return cell.partition(" [")[0].replace(",", "").replace(".", "", 1).isdecimal()


def _indent(line: str) -> str:
    return " " * (len(line) - len(line.lstrip()))
