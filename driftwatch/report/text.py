"""The top screen: open decisions, drift with its cost, pages, advice, blind spots. Pure.

The layout is that of the design's mock-up, at 80 columns: labels in nine, the drift table in
columns of 24, 24 and 13. A cell that is longer goes on below itself; nothing is cut.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import Any

from driftwatch.notify.layout import wrap
from driftwatch.numbers import figure, percent
from driftwatch.report.drift import cost_text, effect_name
from driftwatch.report.tallies import VERDICTS

WIDTH = 80
LABEL = 9
MOVED = "MOVED"  # the label of the drift table
TABLE = (24, 24, 13, 19)
HEADER = ("WHAT MOVED", "COST", "DONE", "RESULT")
# so many decisions and drifts stand on the top screen; the rest stands below it
MOST_DECISIONS, MOST_DRIFTS = 5, 8
# a week whose data begins later than that is told as a part
_WHOLE_WITHIN = timedelta(hours=1)
# so many servers are named on the top screen; more are counted
MOST_NAMED = 3
# of fewer forecasts the median says how many there were
_MEDIAN_OF_FEW = 5
_SHOWN_RATIO = 0.0005
# reasons of the document whose word is another one for people
REASON_WORDS = {"out of tuned range": "outside the tuned range", "arming": "learning"}

Document = Mapping[str, Any]


def top_screen(document: Document, *, piped: bool = False) -> list[str]:
    """The lines of the top screen.

    ``document``: from :func:`driftwatch.report.document.week_document`; ``piped``: whole rows with
    tabs between their cells, and nothing wrapped.
    """
    fleet, title = document["fleet"], document["week"]["title"]
    pools, servers = many(fleet["pools"], "pool"), many(fleet["servers"], "server")
    lines = [f"{title}. {pools}, {servers}"]
    if (part := part_text(document)) is not None:
        lines.append(part)
    for label, texts in sections(document):
        if label == MOVED and document["drift"]:
            rows = [HEADER, *drift_cells(document)]
            lines += ["\t".join(row) for row in rows] if piped else table(rows)
            lines += texts
        elif piped:
            lines += [f"{label}\t{text}" for text in texts]
        else:
            for number, text in enumerate(texts):
                lines += labelled(label if number == 0 else "", text)
    return lines


def part_text(document: Document) -> str | None:
    """Of which part of the week there is data; None of all of it."""
    week = document["week"]
    start, end, first, last = (
        datetime.fromisoformat(week.get(name) or week[usual])
        for name, usual in (
            ("from", "from"), ("to", "to"), ("data_from", "from"), ("data_to", "until"),
        )
    )  # fmt: skip
    if max(first - start, end - last) < _WHOLE_WITHIN:
        return None
    return f"data from {_day(first)} to {_day(last)} UTC only"


def _day(at: datetime) -> str:
    return f"{at:%a} {at.day} {at:%b %H:%M}"


def many(count: int, word: str) -> str:
    """``1 pool``, ``3 pools``."""
    return f"{count:,} {word}" + ("" if count == 1 else "s")


def sections(document: Document) -> Iterator[tuple[str, list[str]]]:
    """Label and its lines, in order; of the drift table only what does not stand in it."""
    decided = [f"{one['subject']}: {one['text']}" for one in document["for_you"]]
    more = len(decided) - MOST_DECISIONS
    yield (
        "FOR YOU",
        [*decided[:MOST_DECISIONS], *([f"{more} more below"] if more > 0 else [])] or ["nothing"],
    )
    more = len(document["drift"]) - MOST_DRIFTS
    rest = [f"{more} more below"] if more > 0 else []
    yield MOVED, rest if document["drift"] else ["none"]
    yield "PAGES", [pages_text(document["pages"], document["week"]["whole"])]
    yield "ADVICE", [advice_text(document["advice"])]
    yield "BLIND", [blind_text(document["blind"])]


def drift_cells(document: Document, most: int = MOST_DRIFTS) -> list[tuple[str, str, str, str]]:
    """The rows of the drift table."""
    return [
        (f"{row['subject']}: {row['figure']}", cost_text(row["cost"]), row["done"], row["result"])
        for row in document["drift"][:most]
    ]


def pages_text(pages: Document, whole: bool) -> str:
    """Pages against last week, and the noise budget; ``whole``: the week is over."""
    parts = [f"{pages['pages']} (last week {pages['pages_last_week']})"]
    if pages["marked_not_useful"] is not None:
        parts.append(f"{pages['marked_not_useful']} marked not useful")
    elif pages["pages"]:
        parts.append("none marked")
    if pages["silenced"]:
        parts.append(f"{pages['silenced']} silenced")
    budget = pages["budget_false_episodes"]
    over = "above the budget of" if pages["over_budget"] else "budget"
    time = "a week" if whole else "so far"
    allowed = f"{over} {figure(budget, 2)} {time}" if budget else "no budget without servers"
    return f"{parts[0]}; {', '.join([*parts[1:], allowed])}"


def advice_text(record: Document) -> str:
    """The track record of advice, and how far its forecasts were off."""
    verdicts = [f"{n} {name}" for name in VERDICTS if (n := record["verdicts"][name])]
    weeks = f"{record['weeks']} weeks: "
    text = weeks + (", ".join(verdicts) or "no advised change verified")
    errors = record["forecast_errors"]
    # what people ask about first, else what was forecast most often
    first = sorted(errors, key=lambda n: (not n.startswith("ttft"), -errors[n]["n"], n))
    if first:
        error = errors[first[0]]
        off = percent(error["median_ratio"])
        unit = off.replace("%", "points") if first[0].endswith("in_target_ratio") else off
        name = "in target" if first[0].endswith("in_target_ratio") else effect_name(first[0])
        text += f"; {name} forecast off {unit} median"
        text += f" (n {error['n']})" if error["n"] < _MEDIAN_OF_FEW else ""
    if record["open"]:
        text += f"; {record['open']} open"
    return text


def blind_text(blind: Document) -> str:
    """Where nothing could be seen, largest reason first."""
    if blind["without_verdict_ratio"] is None:
        return f"not judged: {blind['without_verdict_reason']}"
    reasons = sorted(
        ((r, s) for r, s in blind["by_reason"].items() if s >= _SHOWN_RATIO),
        key=lambda pair: -pair[1],
    )
    inside = ", ".join(f"{REASON_WORDS.get(name, name)} {tenths(share)}" for name, share in reasons)
    text = f"{tenths(blind['without_verdict_ratio'])} % of server-minutes not judged"
    text += f": {inside}" if inside else ""
    cannot = blind["cannot_show_doubled_lengths"]["either"]
    if not cannot:
        return text
    names = blind["cannot_show_doubled_lengths"].get("servers") or []
    named = f" ({', '.join(names)})" if 0 < len(names) == cannot <= MOST_NAMED else ""
    return f"{text}; on {many(cannot, 'server')}{named} length ×2 would be missed"


def tenths(ratio: float) -> str:
    """A share in tenths of a percent, without its sign.

    >>> tenths(0.0694), tenths(1.0), tenths(0.0003), tenths(0.0)
    ('6.9', '100', '<0.1', '0')
    """
    if ratio == 0:
        return "0"
    if 0 < ratio < _SHOWN_RATIO:
        return "<0.1"
    return "100" if ratio == 1 else f"{100 * ratio:.1f}"


def labelled(label: str, text: str) -> list[str]:
    """A label in its column and the text beside it, wrapped under itself."""
    return wrap(f"{label:<{LABEL}}{text}", WIDTH, " " * LABEL)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows in columns; a cell that is too long goes on below itself."""
    lines = []
    for row in rows:
        cells = [
            textwrap.wrap(text, width - (at < len(TABLE) - 1), break_on_hyphens=False) or [""]
            for at, (text, width) in enumerate(zip(row, TABLE, strict=True))
        ]
        for parts in zip_longest(*cells, fillvalue=""):
            line = "".join(part.ljust(width) for part, width in zip(parts, TABLE, strict=True))
            lines.append(line.rstrip())
    return lines


def summary(document: Document) -> str:
    """One line for a phone's preview.

    >>> summary({"week": {"name": "2026-W47"}, "for_you": [1], "drift": [],
    ...     "pages": {"pages": 4, "pages_last_week": 6}})
    'Report 2026-W47: 1 for you, no drift, 4 pages (last week 6)'
    """
    pages, drifts = document["pages"], len(document["drift"])
    return (
        f"Report {document['week']['name']}: {len(document['for_you']) or 'nothing'} for you, "
        f"{many(drifts, 'drift') if drifts else 'no drift'}, "
        f"{many(pages['pages'], 'page')} (last week {pages['pages_last_week']})"
    )


def message_lines(document: Document) -> list[dict[str, str]]:
    """The top screen as labelled lines, for receivers that know no columns."""
    lines = []
    for label, texts in sections(document):
        if label == MOVED and document["drift"]:
            texts = [f"{a}; {b}; {c}; {d}" for a, b, c, d in drift_cells(document)] + texts
        lines += [{"label": label if at == 0 else "", "text": t} for at, t in enumerate(texts)]
    return lines
