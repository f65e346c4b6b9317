"""The report's figures in words, the same ones in every drawing, and its terminal form. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import zip_longest

from driftwatch.notify.layout import wrap
from driftwatch.notify.rollout import MAIN_FIGURES, effect_name
from driftwatch.numbers import (
    clean,
    figure,
    is_as_before,
    percent,
    percent_range,
    plural,
    times,
    tokens,
)
from driftwatch.report.blind import UNSEEN, blind_texts
from driftwatch.report.blind import not_judged_text as not_judged_text
from driftwatch.report.blind import where_text as where_text
from driftwatch.report.incidents import BY_SPEED
from driftwatch.report.report import (
    ELSEWHERE,
    Lengths,
    Moved,
    Outside,
    Pages,
    PoolWeek,
    Range,
    Record,
    Report,
    ReportedIncident,
)
from driftwatch.report.week import day_time as day_time
from driftwatch.report.week import minute, stretch_text
from driftwatch.verify.figures import IN_TARGET

MOVED = "MOVED"  # the label of the table of what moved
HEADER = ("WHAT MOVED", "COST", "DONE", "RESULT")
MOST_MOVED = 8  # causes on the top screen; the rest stands below it
_MOST_NAMED = 3  # servers on the top screen; more are counted
# a week with data from later on is a part of a week
_WHOLE_WITHIN = timedelta(hours=1)
_FEW_FORECASTS = 5  # of fewer the median is printed with their number
_NEARLY_ALL = 0.995
_ALIKE = 0.005  # shares so close together are one
# the terminal's columns: labels in nine, the table in four, here for the narrowest
NARROW, WIDE, _LABEL = 80, 100, 9
_COLUMNS = (18, 19, 24, 19)
_SHARE = "\N{NO-BREAK SPACE}%"  # a figure and its sign stay on one line


def date_text(at: datetime) -> str:
    """``Mon 9 Nov``."""
    return f"{at:%a} {at.day} {at:%b}"


def when_text(row: Moved, zone: str = "") -> str:
    """When a cause was there: its incidents, and as long as lengths were far from the usual."""
    start, end, drift = row.start, row.end, row.drift
    if drift is not None:
        start = drift.start if abs(drift.start - start) < _WHOLE_WITHIN else min(start, drift.start)
        end = None if end is None or row.is_still else max(end, drift.end)
    text = stretch_text(start, end).removesuffix(" UTC") + zone
    return text if end is not None else f"{text}, still so"


def compact(value: float) -> str:
    """A count for a narrow column.

    >>> compact(414_200), compact(87), compact(1_250_000)
    ('414k', '87', '1.25M')
    """
    if value < 10_000:
        return f"{round(value):,}"
    return f"{figure(value / 1e6)}M" if value >= 999_500 else f"{figure(value / 1e3)}k"


def hours_text(hours: float) -> str:
    """Hours with two or three digits."""
    return "0" if hours == 0 else f"{hours:.2f}" if hours < 1 else figure(hours)


def missed_text(missed: Range) -> str:
    """``414k requests missed``, ``300–400 requests missed``; else why it is unknown."""
    if missed.low is None or missed.high is None:
        unknown = "" if missed.reason == ELSEWHERE else " unknown"
        return f"requests missed{unknown}: {missed.reason}"
    low, high = compact(missed.low), compact(missed.high)
    return f"{low if low == high else f'{low}–{high}'} requests missed"


def requests_text(pool: PoolWeek) -> str:
    """``6.02M; 640k–785k requests missed``."""
    return "; ".join(
        [*([compact(pool.requests)] if pool.requests else []), missed_text(pool.missed)]
    )


def share_text(share: Range) -> str:
    """``84 %``, ``81–88 %``; else why it is unknown."""
    if share.low is None or share.high is None:
        return f"unknown ({share.reason})"
    if share.high - share.low < _ALIKE:
        return percent(share.low)
    if share.high > _NEARLY_ALL:
        return f"at least {percent(share.low)}"
    return percent_range(share.low, share.high)


def lost_text(lost: Range) -> str:
    """``0.26–0.34 GPU-hours lost``; else why it is unknown."""
    if lost.low is None or lost.high is None:
        return f"GPU time lost unknown: {lost.reason}"
    span = dict.fromkeys((hours_text(lost.low), hours_text(lost.high)))
    return f"{'–'.join(span)} GPU-hours lost"


def cost_text(row: Moved) -> str:
    """What a cause cost, in a cell of the table."""
    if row.family in BY_SPEED:
        more = f", {missed_text(row.missed)}" if row.missed.high else ""
        return lost_text(row.gpu_hours_lost) + (more or unanswered_text(row, ", "))
    return missed_text(row.missed)


def unanswered_text(row: Moved, before: str = "") -> str:
    """``60–7,500 requests without an answer``; empty where a hang left none."""
    low, high = row.unanswered.low, row.unanswered.high
    if not high:
        return ""
    span = dict.fromkeys((compact(low or 0.0), compact(high)))
    return f"{before}{'–'.join(span)} requests without an answer"


def moved_cells(report: Report) -> list[tuple[str, str, str, str]]:
    """The rows of the table of what moved."""
    rows = [
        (f"{row.subject}, {row.what}, {when_text(row)}", cost_text(row), row.done, row.result)
        for row in report.moved[:MOST_MOVED]
    ]
    return rows + ([] if report.outside is None else [_outside_cells(report.outside)])


def _outside_cells(one: Outside) -> tuple[str, str, str, str]:
    """The row of what no incident covers."""
    name, cost = "outside of incidents", missed_text(one.missed)
    if one.pool is None or one.start is None:
        return name, cost, "no page", "never more than the targets allow in ten minutes"
    where = f"{name}, most on {clean(one.pool)} {stretch_text(one.start, one.end)}"
    return where.removesuffix(" UTC"), cost, "no page", f"{compact(one.missed_there)} missed there"


def head(report: Report) -> list[str]:
    """Which week, and how much of it has data."""
    week = report.week
    size = f"{plural(len(report.pools), 'pool')}, {plural(report.servers, 'server')}"
    if max(week.data_from - week.start, week.end - week.data_to) < _WHOLE_WITHIN:
        return [f"{week.title}. {size}"]
    reach = (f"{date_text(at)} {at:%H:%M}" for at in (week.data_from, week.data_to))
    return [f"{week.title}. {size}", f"data from {' to '.join(reach)} UTC only"]


def sections(report: Report) -> Iterator[tuple[str, list[str]]]:
    """Label and lines of the top screen, in order; of the table only what does not stand in it."""
    asks = [f"{one.subject}: {one.what}" for one in report.for_you]
    numbered = [f"{at}. {ask}" for at, ask in enumerate(asks, 1)]
    yield "FOR YOU", (numbered if len(asks) > 1 else asks) or ["nothing"]
    more = len(report.moved) - MOST_MOVED
    rest = [f"{more} more: --html"] if more > 0 else []
    yield MOVED, rest if report.moved else [f"nothing{_quiet_text(report)}"]
    if missed := total_text(report):
        yield "MISSED", [missed]
    if shown := report.moved[:_MOST_NAMED]:
        yield "DETAILS", [f"{_details(row)}{report.links.options}  # {row.what}" for row in shown]
    yield "PAGES", [pages_text(report.pages)]
    if report.advice.advised:
        yield "ADVICE", [advice_text(report.advice)]
    slow = [row.pool for row in report.moved if row.family == "speed" and row.end is None]
    yield "BLIND", blind_texts(report.blind, report.servers, report.links.options, slow)


def _details(row: Moved) -> str:
    """The command for the page of a row: the one that advised the change, else its first one."""
    pages = [one for one in row.incidents if one.severity == "page"] or row.incidents
    one = next((one for one in row.incidents if one.id == row.decided_by), pages[0])
    return f"driftwatch explain {one.id[:8]} --at {minute(one.paged_at)}"


def total_text(report: Report) -> str:
    """``1.12M–1.75M of 14.6M requests in the week (7.7–12 %)``; empty without targets."""
    known = [pool for pool in report.pools if pool.missed.low is not None and pool.requests]
    if not report.moved or not known:
        return ""
    low, high = (sum(getattr(pool.missed, end) for pool in known) for end in ("low", "high"))
    requests = sum(pool.requests or 0.0 for pool in known)
    span = "–".join(dict.fromkeys((compact(low), compact(high))))
    share = percent_range(min(1.0, low / requests), min(1.0, high / requests))
    total = f"{span} of {compact(requests)} requests in the week ({share}), each counted once"
    is_whole = not any(one.reason in UNSEEN for one in report.blind.unjudged)
    return total if is_whole else f"{total}; unknown while nothing was scraped (BLIND)"


def _quiet_text(report: Report) -> str:
    """``; 1.74M requests, >99.9 % in target``; empty without requests. Where one pool missed more
    than its targets allow, when that was.
    """
    requests = sum(pool.requests or 0.0 for pool in report.pools)
    missed = [pool.missed.high for pool in report.pools if pool.requests]
    if not requests:
        return ""
    if any(one is None for one in missed):
        return f"; {compact(requests)} requests, in target unknown"
    share = 1 - sum(one or 0.0 for one in missed) / requests
    text = f"at least {percent(share)}" if share < 0.999 else ">99.9 %" if share < 1 else "100 %"
    worst = report.outside
    most = (
        "" if worst is None or worst.pool is None else f"; {', '.join(_outside_cells(worst)[::3])}"
    )
    return f"; {compact(requests)} requests, {text} in target{most}"


def pages_text(pages: Pages) -> str:
    """Pages against last week; false ones beside what the configuration allows."""
    parts = []
    if pages.marked_not_useful is not None:
        allowed = f"{figure(pages.budget, 2)} a week"
        if 0 < pages.budget < 1:
            allowed = f"one in {round(1 / pages.budget)} weeks"
        useful = [f"{pages.marked_useful} marked useful"] if pages.marked_useful else []
        parts += [*useful, f"{pages.marked_not_useful} marked not useful, budget {allowed}"]
    elif pages.pages:
        parts.append("nobody marked one useful or not useful")
    parts += [f"{pages.silenced} silenced"] if pages.silenced else []
    parts += [] if pages.is_sent or not pages.pages else ["no receiver: nobody was paged"]
    return "; ".join([f"{pages.pages}{_last_week(pages)}", *parts])


def _last_week(pages: Pages) -> str:
    """`` (last week 6)``; empty where that week is not stored."""
    return "" if pages.pages_last_week is None else f" (last week {pages.pages_last_week})"


def advice_text(record: Record) -> str:
    """What came of each advised change, and how far the forecasts were off."""
    outcomes = [f"{n} {name}" for name, n in record.outcomes.items()]
    text = f"{plural(record.advised, 'change')} advised since {date_text(record.since)}"
    text += f": {', '.join(outcomes)}" if outcomes else ""
    errors = record.forecast_errors
    # what people ask about, else what was forecast most often
    shown = [name for name in MAIN_FIGURES if name in errors]
    shown = shown or sorted(errors, key=lambda name: (-errors[name].n, name))[:1]
    if shown:
        off = [_off_text(name, errors[name].median) for name in shown]
        text += f"; forecasts off by {', '.join(off)}"
        few = errors[shown[0]].n
        text += " (median)" if few >= _FEW_FORECASTS else f" ({plural(few, 'change')})"
    return text


def _off_text(name: str, off: float) -> str:
    """``56 points in target``, ``126 % in ITL``."""
    text = percent(off)
    if name != IN_TARGET:
        return f"{text} in {effect_name(name)}"
    points = text.removesuffix(" %")
    return f"{points} {'point' if points == '1' else 'points'} in target"


def summary(report: Report) -> str:
    """``Report 2026-W47: 1 for you, no drift, 4 pages (last week 6)``, for a phone."""
    moved = plural(len(report.moved), "drift") if report.moved else "no drift"
    pages = report.pages
    return (
        f"Report {report.week.name}: {len(report.for_you) or 'nothing'} for you, {moved}, "
        f"{plural(pages.pages, 'page')}{_last_week(pages)}"
    )


def message_lines(report: Report) -> Iterator[tuple[str, str]]:
    """The top screen as (label, text), for receivers that know no columns."""
    for label, texts in sections(report):
        if label == MOVED and report.moved:
            texts = ["; ".join(row) for row in moved_cells(report)] + texts
        yield from ((label if at == 0 else "", text) for at, text in enumerate(texts))


def cause_text(row: Moved) -> str:
    """When it was, and what it cost in full, in sentences."""
    parts = [when_text(row, " UTC")]
    if row.in_target.low is not None:
        counted = stretch_text(row.counted_from, row.counted_to)
        if (row.counted_to - row.counted_from) / _WHOLE_WITHIN > row.counted_hours + 0.01:
            counted = f"in {hours_text(row.counted_hours)} h between {counted}"
        parts.append(
            f"{missed_text(row.missed)}, counted {counted}; {share_text(row.in_target)} of the "
            "pool's requests in target meanwhile"
        )
    if lost := unanswered_text(row):
        parts.append(
            f"{lost}: at least those that had begun, at most as many as came to it before or "
            "to another server meanwhile; what is sent to an engine that hangs is in no metric"
        )
    if row.family in BY_SPEED and row.gpu_hours_lost.low is not None:
        lost = lost_text(row.gpu_hours_lost)
        if row.speed_lost.low is not None:
            lost += (
                f": {share_text(row.speed_lost)} of the speed, give or take as much as a healthy "
            )
            lost += "server's speed at equal load varies"
        parts.append(lost)
    return ". ".join(parts) + "."


def incident_text(one: ReportedIncident) -> str:
    """``page BatchDrift, Wed 02:45–06:45 UTC, acknowledged by Ana, marked useful by Ana``."""
    parts = [f"{one.severity} {one.alert} {one.subject}", stretch_text(one.start, one.end)]
    parts += ["silenced"] if one.is_silenced else []
    parts += [f"acknowledged by {one.acknowledged_by}"] if one.acknowledged_by else []
    if one.useful is not None:
        why = f": {one.because}" if one.because else ""
        parts.append(f"marked {'useful' if one.useful else 'not useful'} by {one.marked_by}{why}")
    return clean(", ".join(parts))


def lengths_text(lengths: Lengths) -> str:
    """``×2.3 Wed 09:00–15:00 UTC (1,180 tokens); week ×1.2 (615 tokens, tuned for 512)``."""
    if lengths.mean is None:
        return "no finished request"
    week = f"{tokens(lengths.mean)} tokens"
    if not lengths.usual:
        return f"{week}; no baseline and no tuned_for to compare with"
    ratio, far = lengths.mean / lengths.usual, lengths.stretches[:1]
    text = f"week {times(ratio)} ({week}, tuned for {tokens(lengths.usual)})"
    if far:
        when = stretch_text(far[0].start, far[0].end)
        text = f"{times(far[0].ratio)} {when} ({tokens(far[0].mean)} tokens); {text}"
    elif is_as_before(ratio):
        text = f"{week}, as tuned for"
    return text


def top_screen(report: Report, width: int = NARROW, *, piped: bool = False) -> list[str]:
    """The lines of the top screen.

    ``width``: of the terminal; ``piped``: tabs between cells, and nothing wrapped.
    """
    width = min(WIDE, max(NARROW, width))
    lines = head(report)
    for label, texts in sections(report):
        if label == MOVED and report.moved:
            rows = [HEADER, *moved_cells(report)]
            lines += ["\t".join(row) for row in rows] if piped else _table(rows, width)
            lines += texts
        elif piped:
            lines += [f"{label}\t{text}" for text in texts]
        else:
            for number, text in enumerate(texts):
                first = label if number == 0 else ""
                lines += wrap(f"{first:<{_LABEL}}{text}", width, " " * _LABEL)
    return lines


def _table(rows: Sequence[Sequence[str]], whole: int) -> list[str]:
    """Rows in columns; a cell that is too long goes on below itself, and nothing is cut."""
    lines, columns = [], [width * whole // NARROW for width in _COLUMNS]
    for row in rows:
        cells = [
            textwrap.wrap(
                text.replace(" %", _SHARE), width - (at < len(columns) - 1), break_on_hyphens=False
            )
            or [""]
            for at, (text, width) in enumerate(zip(row, columns, strict=True))
        ]
        for parts in zip_longest(*cells, fillvalue=""):
            line = "".join(part.ljust(width) for part, width in zip(parts, columns, strict=True))
            lines.append(line.rstrip().replace(_SHARE, " %"))
    return lines
