"""The report as one HTML page: no script, nothing loaded from anywhere, plots inside. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from driftwatch.notify.numbers import clean, count, figure, milliseconds, times
from driftwatch.report.page_style import STYLE
from driftwatch.report.sections import Section, below
from driftwatch.report.text import HEADER, drift_cells, many, sections, until_text

Document = Mapping[str, Any]
# so many pools are drawn, the drifted ones and then the busiest; the tables have every one
MOST_PLOTTED = 8
MOST_BYTES = 1_000_000
# cells of the tables below; a fleet of thousands keeps its JSON
_MOST_ROWS = 400
# one day is a number, and no line
_LEAST_DAYS = 2


def html(document: Document) -> str:
    """The whole page."""
    title = document["week"]["title"]
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        "</head>",
        "<body>",
        "<main>",
        *_top(document),
    ]
    for section in below(document):
        parts += _section(section)
        if section.key == "lengths":
            parts += _plots(document, _length_plots)
        elif section.key == "latency":
            parts += _plots(document, _latency_plots)
    parts += ["</main>", "</body>", "</html>", ""]
    return "\n".join(parts)


def _top(document: Document) -> Iterator[str]:
    """The top screen: what the terminal shows, as headings and lists."""
    fleet = document["fleet"]
    yield f"<h1>{escape(document['week']['title'])}</h1>"
    pools, servers = many(fleet["pools"], "pool"), many(fleet["servers"], "server")
    yield f'<p class="fleet">{pools}, {servers}</p>'
    if not document["week"]["whole"]:
        yield f'<p class="fleet">{escape(until_text(document))}</p>'
    yield "<dl>"
    for label, texts in sections(document):
        if label == "DRIFT" and document["drift"]:
            yield "</dl>"
            yield from _table(Section("top", "", HEADER, tuple(drift_cells(document))))
            yield "<dl>"
            if not texts:
                continue
        yield f"<dt>{escape(label)}</dt>"
        yield from (f"<dd>{escape(text)}</dd>" for text in texts)
    yield "</dl>"


def _section(section: Section) -> Iterator[str]:
    yield f'<section id="{section.key}">'
    yield f"<h2>{escape(section.title)}</h2>"
    if section.rows:
        yield from _table(section)
    yield from (f'<p class="note">{escape(note)}</p>' for note in section.notes)
    yield "</section>"


def _table(section: Section) -> Iterator[str]:
    """A table; on a narrow page each row is a card, its cells named."""
    yield '<div class="t"><table>'
    heads = "".join(
        f'<th scope="col"{_number(section, at)}>{escape(name)}</th>'
        for at, name in enumerate(section.header)
    )
    yield f"<thead><tr>{heads}</tr></thead>"
    yield "<tbody>"
    for row in section.rows[:_MOST_ROWS]:
        cells = "".join(
            f'<td data-label="{escape(name, quote=True)}"{_number(section, at)}>{escape(cell)}</td>'
            for at, (name, cell) in enumerate(zip(section.header, row, strict=True))
        )
        yield f"<tr>{cells}</tr>"
    yield "</tbody>"
    yield "</table></div>"
    if (more := len(section.rows) - _MOST_ROWS) > 0:
        yield f'<p class="note">{more:,} more rows: driftwatch report --json has them.</p>'


def _number(section: Section, at: int) -> str:
    return ' class="n"' if at in section.numeric else ""


def _plotted(document: Document) -> list[Mapping[str, Any]]:
    """Pools that are drawn: those that drifted, then those with most requests."""
    drifted = {row["pool"] for row in document["drift"]}
    order = sorted(
        document["pools"],
        key=lambda p: (p["pool"] not in drifted, -(p["finished_requests"] or 0.0), p["pool"]),
    )
    return order[:MOST_PLOTTED]


def _plots(document: Document, drawn: Any) -> Iterator[str]:
    figures = [text for pool in _plotted(document) for text in drawn(document, pool)]
    if figures:
        yield '<div class="plots">'
        yield from figures
        yield "</div>"
        left = len(document["pools"]) - MOST_PLOTTED
        if left > 0:
            yield f'<p class="note">{many(left, "pool")} not drawn; the table has them.</p>'


def _length_plots(document: Document, pool: Mapping[str, Any]) -> Iterator[str]:
    days = [row for row in document["days"] if row["pool"] == pool["pool"]]
    if sum(1 for row in days if row["prompt_tokens_mean"]) < _LEAST_DAYS:
        return
    from driftwatch.report.plots import lengths_by_day

    words = []
    for stem, word in (("prompt_tokens", "prompts"), ("generation_tokens", "generations")):
        ratio, mean = pool[stem]["ratio"], pool[stem]["mean"]
        if ratio is not None:
            words.append(f"{word} {times(ratio, 3)} of what it was tuned for")
        elif mean is not None:
            words.append(f"{word} {figure(mean)} tokens, no reference")
    name = clean(pool["pool"])
    told = f"{name}: {', '.join(words) or 'no finished request'}"
    reference = {
        f"{s}_mean": pool[s]["reference_mean"] for s in ("prompt_tokens", "generation_tokens")
    }
    rows = tuple(
        (row["day"], *(_mean(row[f"{s}_mean"]) for s in ("prompt_tokens", "generation_tokens")))
        for row in days
    )
    numbers = Section("", "", ("day", "prompt tokens", "generation tokens"), rows)
    yield from _figure(told, lengths_by_day(days, reference), numbers)


def _mean(value: float | None) -> str:
    return "unknown" if value is None else count(value) if value >= 100 else figure(value)


def _latency_plots(document: Document, pool: Mapping[str, Any]) -> Iterator[str]:
    known = [band for band in pool["bands"] if band["itl_seconds_mean"] is not None]
    if len(known) < 2:
        return
    from driftwatch.report.plots import latency_by_batch

    first, last = known[0], known[-1]
    told = (
        f"{clean(pool['pool'])}: ITL {milliseconds(first['itl_seconds_mean'])} → "
        f"{milliseconds(last['itl_seconds_mean'])} from {figure(first['requests_mean'])} to "
        f"{figure(last['requests_mean'])} requests a pass"
    )
    rows = tuple((figure(b["requests_mean"]), milliseconds(b["itl_seconds_mean"])) for b in known)
    numbers = Section("", "", ("requests a pass, mean", "ITL mean"), rows)
    yield from _figure(told, latency_by_batch(known), numbers)


def _figure(told: str, drawn: str, numbers: Section) -> Iterator[str]:
    """A plot with what it found above and its numbers below."""
    from driftwatch.report.plots import inlined

    # of its content: the same in every run, and another for another plot
    prefix = f"p{hashlib.sha256((told + drawn).encode()).hexdigest()[:8]}-"
    yield "<figure>"
    yield f"<figcaption>{escape(told)}</figcaption>"
    yield inlined(drawn, prefix, escape(told, quote=True))
    yield f"<details><summary>{many(len(numbers.rows), 'row')} of numbers</summary>"
    yield from _table(numbers)
    yield "</details>"
    yield "</figure>"
