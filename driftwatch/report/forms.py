"""The forms of a whole report: HTML, Markdown, JSON; their texts are templates/. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import Any

from driftwatch.notify.numbers import clean, figure, milliseconds, times, tokens
from driftwatch.report.sections import Section, below
from driftwatch.report.text import HEADER, MOVED, drift_cells, many, sections, until_text

Document = Mapping[str, Any]
# so many pools are drawn, the drifted ones and then the busiest; the tables have every one
MOST_PLOTTED = 8
MOST_BYTES = 1_000_000
# rows of a table; a fleet of thousands keeps its JSON
_MOST_ROWS = 400
# what Markdown or a page it is shown on would read as its own
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~$@!])")


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot: what it shows in a sentence, the drawing, and its numbers."""

    caption: str
    svg: str
    numbers: Section

    @property
    def summary(self) -> str:
        """What opens the numbers."""
        return f"{many(len(self.numbers.rows), 'row')} of numbers"


def as_json_text(document: Document) -> str:
    """The document itself, keys sorted, a line each."""
    text = json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False, indent=1)
    return text + "\n"


def as_html(document: Document) -> str:
    """One page without script, nothing loaded from anywhere, its plots inside."""
    return (
        str(
            _templates()
            .get_template("week.html.j2")
            .render(
                **_top(document), below=[*_sections_with_figures(document)], most_rows=_MOST_ROWS
            )
        )
        + "\n"
    )


def as_markdown(document: Document) -> str:
    """GitHub's Markdown."""
    page = _templates().get_template("week.md.j2")
    text = page.render(**_top(document), below=below(document))
    return re.sub(r"\n{3,}", "\n\n", str(text)).strip() + "\n"


@cache
def _templates() -> Any:
    from jinja2 import Environment, PackageLoader, select_autoescape

    environment = Environment(
        loader=PackageLoader("driftwatch.report"), autoescape=select_autoescape(("html.j2",))
    )
    environment.filters["plain"] = plain
    return environment


def _top(document: Document) -> dict[str, Any]:
    """The top screen: its lines by label, the drift table as one."""
    fleet, week = document["fleet"], document["week"]
    table = Section("top", "", HEADER, tuple(drift_cells(document)))
    return {
        "title": week["title"],
        "fleet": f"{many(fleet['pools'], 'pool')}, {many(fleet['servers'], 'server')}",
        "until": None if week["whole"] else until_text(document),
        "top": [
            (label, texts, table if label == MOVED and document["drift"] else None)
            for label, texts in sections(document)
        ],
    }


def plain(text: str) -> str:
    """Text that is nothing but text: a model named ``<script>`` or ``|`` stays a name.

    >>> plain("<b>|x_y")
    '\\\\<b\\\\>\\\\|x\\\\_y'
    """
    return _SPECIAL.sub(r"\\\1", text.replace("\r", " ").replace("\n", " "))


def _sections_with_figures(document: Document) -> Iterator[tuple[Section, list[Figure], str]]:
    """The sections, two of them with plots, and how many pools are not drawn."""
    drifted = {row["pool"] for row in document["drift"]}
    pools = sorted(
        document["pools"],
        key=lambda p: (p["pool"] not in drifted, -(p["finished_requests"] or 0.0), p["pool"]),
    )
    not_plotted = len(pools) - MOST_PLOTTED
    note = f"{many(not_plotted, 'pool')} not drawn; the table has them." if not_plotted > 0 else ""
    for section in below(document):
        figures: list[Figure] = []
        if section.key == "lengths":
            figures = [f for pool in pools[:MOST_PLOTTED] for f in _length_plot(document, pool)]
        elif section.key == "latency":
            figures = [f for pool in pools[:MOST_PLOTTED] for f in _latency_plot(pool)]
        yield section, figures, note if figures else ""


def _length_plot(document: Document, pool: Mapping[str, Any]) -> Iterator[Figure]:
    days = [row for row in document["days"] if row["pool"] == pool["pool"]]
    if sum(1 for row in days if row["prompt_tokens_mean"]) < 2:
        return  # one day is a number, and no line
    from driftwatch.report.plots import lengths_by_day

    words = []
    stems = ("prompt_tokens", "generation_tokens")
    for stem, word in zip(stems, ("prompts", "generations"), strict=True):
        ratio, mean = pool[stem]["ratio"], pool[stem]["mean"]
        if ratio is not None:
            words.append(f"{word} {times(ratio, 3)} of what it was tuned for")
        elif mean is not None:
            words.append(f"{word} {figure(mean)} tokens, no baseline")
    caption = f"{clean(pool['pool'])}: {', '.join(words) or 'no finished request'}"
    svg = lengths_by_day(days, {f"{s}_mean": pool[s]["reference_mean"] for s in stems})
    rows = tuple((row["day"], *(_mean(row[f"{s}_mean"]) for s in stems)) for row in days)
    numbers = Section("", "", ("day", "prompt tokens", "generation tokens"), rows)
    yield _figure(caption, svg, numbers)


def _mean(value: float | None) -> str:
    return "unknown" if value is None else tokens(value)


def _latency_plot(pool: Mapping[str, Any]) -> Iterator[Figure]:
    bands = [band for band in pool["bands"] if band["itl_seconds_mean"] is not None]
    if len(bands) < 2:
        return
    from driftwatch.report.plots import latency_by_batch

    ends = [bands[0], bands[-1]]
    itl = " → ".join(milliseconds(band["itl_seconds_mean"]) for band in ends)
    batch = " to ".join(figure(band["requests_mean"]) for band in ends)
    rows = tuple((figure(b["requests_mean"]), milliseconds(b["itl_seconds_mean"])) for b in bands)
    numbers = Section("", "", ("requests a step, mean", "ITL mean"), rows)
    caption = f"{clean(pool['pool'])}: ITL {itl} from {batch} requests a step"
    yield _figure(caption, latency_by_batch(bands), numbers)


def _figure(caption: str, svg: str, numbers: Section) -> Figure:
    from driftwatch.report.plots import inlined

    # of its content: the same in every run, and another for another plot
    prefix = f"p{hashlib.sha256((caption + svg).encode()).hexdigest()[:8]}-"
    return Figure(caption, inlined(svg, prefix, escape(caption, quote=True)), numbers)
