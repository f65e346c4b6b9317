"""The report as HTML: one page without script, its plots inside. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import cache
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from driftwatch.numbers import clean, percent_range, times
from driftwatch.plots.plot import Panel, Plot, Series, panel_plot
from driftwatch.plots.scales import Axis
from driftwatch.report import words
from driftwatch.report.report import Hours, Moved, PoolWeek, Report

_HOUR, _DAY_SECONDS, _DAY = 3600.0, 86_400.0, 24
# rows of a table or list; a fleet of thousands keeps its JSON
_MOST_ROWS = 60
_SPAN, _EVENT = 1, 3  # colours of incidents and of changes
_NO_BREAK, _JOINER = "\N{NO-BREAK SPACE}", "\N{WORD JOINER}"
_BEFORE_UNIT = re.compile(r" (?=%)|(?<=\d) (?=(?:h|min|s|ms|d|PASS|FAIL)\b)")
_AT = re.compile(r"--at [\dT:-]+Z")  # a command's time
# a command, up to the end of its sentence or cell
_COMMAND = re.compile(
    r"driftwatch (?:ack|baseline|explain|recommend|report|verify) [^<;]*?(?=  #|[;<]|$)"
)
_RANGE = re.compile(r"(?<=[\dkM%])–(?=\d)")


def as_html(report: Report) -> str:
    """The page: nothing is loaded from anywhere, names are only ever text."""
    return _drawn("week.html.j2", report) + "\n"


def as_html_body(report: Report) -> Markup:
    """The same without the page around it."""
    return Markup(_drawn("body.html.j2", report))  # noqa: S704 - the template escapes


def _drawn(template: str, report: Report) -> str:
    style = (files("driftwatch.plots") / "plot.css").read_text(encoding="utf-8")
    drawn = [(pool, pool.hours) for pool in report.pools if pool.hours is not None]
    html = (
        _templates()
        .get_template(template)
        .render(
            report=report,
            words=words,
            most=_MOST_ROWS,
            plot_style=Markup(style),  # noqa: S704 - our own file
            drawn=[
                (pool, week_plot(report, pool, hours), _days(report, pool, hours))
                for pool, hours in drawn
            ],
        )
    )
    return _unbroken(str(html))


def _unbroken(html: str) -> str:
    """A figure, its range and its unit stay on one line; commands are monospaced."""
    html = _BEFORE_UNIT.sub(_NO_BREAK, html).replace(" → ", f"{_NO_BREAK}→{_NO_BREAK}")
    html = _COMMAND.sub(r"<code>\g<0></code>", html)
    html = _AT.sub(r'<span class="at">\g<0></span>', html)
    return _RANGE.sub(f"–{_JOINER}", html)


@cache
def _templates() -> Any:
    from jinja2 import PackageLoader, select_autoescape
    from jinja2.sandbox import SandboxedEnvironment

    return SandboxedEnvironment(
        loader=PackageLoader("driftwatch.report"),
        autoescape=select_autoescape(("html.j2",)),
        trim_blocks=True,
        lstrip_blocks=True,
    )


def week_plot(report: Report, pool: PoolWeek, hours: Hours) -> Plot:
    """The pool's week: requests in target, speed and lengths over one axis with day names."""
    begin = report.week.start.timestamp()
    at = [begin + _HOUR * (number + 0.5) for number in range(len(hours.requests))]
    # the days that have data, whole
    first, last = (
        (one - report.week.start).total_seconds() / _DAY_SECONDS
        for one in (report.week.data_from, report.week.data_to)
    )
    start = begin + _DAY_SECONDS * math.floor(max(0.0, first))
    end = begin + _DAY_SECONDS * min(7, math.ceil(last))
    share = [
        None if missed is None or not requests else 100 * max(0.0, 1 - missed / requests)
        for missed, requests in zip(hours.missed_high, hours.requests, strict=True)
    ]
    several = []
    if any(one is not None for one in share):
        level = Series("level", "required", y=[100 * pool.share], colour=2)
        line = Series("line", "requests in target, at least", at, share)
        several.append(
            Panel(Axis("in target, %", _low(share, 100 * pool.share), 100.0), [level, line])
        )
    speeds = [[None if v is None else 100 * v for v in one] for one in (hours.speed, hours.slowest)]
    if any(v is not None for v in speeds[0]):
        lines = [Series("line", "median server", at, speeds[0], dash=2)]
        if pool.servers > 1:
            lines.append(Series("line", "slowest server", at, speeds[1], colour=1))
        several.append(Panel(Axis("speed at equal load, %", _low(speeds[1], 100.0)), lines))
    lengths = [
        Series("line", name, at, values, colour=colour, dash=dash)
        for name, values, colour, dash in (
            ("prompts", hours.prompts, 0, 3),
            ("generations", hours.generations, 1, 4),
        )
        if any(value is not None for value in values)
    ]
    if lengths:
        usual = "tuned for" if pool.tuned_for else "the week's mean"
        several.append(Panel(Axis(f"mean length, times {usual}", low=0.0), lengths))
    own = [row for row in report.moved if row.pool == pool.pool]
    open_ = [one for row in own for one in row.incidents]
    around = [
        Series(
            "hatch",
            "page or ticket",
            [max(start, one.start.timestamp()) for one in open_],
            [min(end, (one.end or report.week.data_to).timestamp()) for one in open_],
            colour=_SPAN,
        )
    ] if own else []  # fmt: skip
    if hours.events:
        when, names = ([one.at.timestamp() for one in hours.events], [e.what for e in hours.events])
        around.append(Series("ticks", "change or restart", when, names=names, colour=_EVENT))
    # the midnight that ends the week belongs to the next one
    across = Axis("", low=start, high=end - 1.0, is_time=True)
    return panel_plot(f"{clean(pool.pool)}: {_finding(pool, own)}", several, across, shared=around)


def _low(values: Sequence[float | None], required: float) -> float:
    """Where the axis of a share begins: no lower than the values need, in steps that read well."""
    lowest = min([required, *(v for v in values if v is not None)])
    return next((low for low in (90.0, 80.0, 60.0, 40.0, 20.0) if lowest >= low), 0.0)


def _finding(pool: PoolWeek, own: Sequence[Moved]) -> str:
    """What the drawing shows, in a sentence."""
    missed = f"{words.missed_text(pool.missed)} in the week"
    if pool.missed.low is not None and pool.missed.high is not None and pool.requests:
        low, high = (one / pool.requests for one in (pool.missed.low, pool.missed.high))
        missed += f" ({percent_range(min(1.0, low), min(1.0, high))} of all)"
    if not own:
        far = [
            f"{name} {times(one.stretches[0].ratio)}, "
            for name, one in (("prompts", pool.prompts), ("generations", pool.generations))
            if one.stretches
        ]
        return f"{''.join(far)}no page and no ticket, {missed}"
    worst = own[0]
    return f"{worst.what}, {words.when_text(worst)}; {missed}"


def _days(report: Report, pool: PoolWeek, hours: Hours) -> Iterator[tuple[str, ...]]:
    """Day, requests, missed, share of them: counts, which add up."""
    for first in range(0, len(hours.requests), _DAY):
        requests, low, high = (
            sum(value for value in values[first : first + _DAY] if value is not None)
            for values in (hours.requests, hours.missed_low, hours.missed_high)
        )
        day = report.week.start + timedelta(hours=first)
        if day >= report.week.data_to or day + timedelta(days=1) <= report.week.data_from:
            continue
        name = f"{day:%a} {day.day} {day:%b}"
        if not requests:
            yield name, "no data", "", ""
        elif pool.missed.low is None:
            yield name, words.compact(requests), f"unknown: {pool.missed.reason}", ""
        else:
            span = words.compact(low), words.compact(high)
            share = percent_range(min(1.0, low / requests), min(1.0, high / requests))
            yield name, words.compact(requests), "–".join(dict.fromkeys(span)), share
