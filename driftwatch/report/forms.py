"""The forms of a whole report: HTML and JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from driftwatch.plots.plot import Plot
from driftwatch.report.figures import plots_of
from driftwatch.report.sections import Section, below
from driftwatch.report.text import HEADER, MOVED, drift_cells, many, part_text, sections

Document = Mapping[str, Any]
# rows of a table; a fleet of thousands keeps its JSON
_MOST_ROWS = 400


def as_json_text(document: Document) -> str:
    """The document itself, keys sorted, a line each."""
    text = json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False, indent=1)
    return text + "\n"


def as_html(document: Document) -> str:
    """One page without script, nothing loaded from anywhere, its plots inside."""
    return _drawn("week.html.j2", document) + "\n"


def as_html_body(document: Document) -> str:
    """The same without the page around it, escaped."""
    return _drawn("body.html.j2", document)


def _drawn(template: str, document: Document) -> str:
    drawn = _templates().get_template(template)
    below = [*_sections_with_figures(document)]
    top, style = _top(document), _plot_style()
    return str(drawn.render(**top, below=below, plot_style=style, most_rows=_MOST_ROWS))


def _plot_style() -> str:
    return (files("driftwatch.plots") / "plot.css").read_text(encoding="utf-8")


@cache
def _templates() -> Any:
    from jinja2 import PackageLoader, select_autoescape
    from jinja2.sandbox import SandboxedEnvironment

    return SandboxedEnvironment(
        loader=PackageLoader("driftwatch.report"), autoescape=select_autoescape(("html.j2",))
    )


def _top(document: Document) -> dict[str, Any]:
    """The top screen: its lines by label, the drift table as one."""
    fleet, week = document["fleet"], document["week"]
    table = Section("top", "", HEADER, tuple(drift_cells(document)))
    return {
        "title": week["title"],
        "fleet": f"{many(fleet['pools'], 'pool')}, {many(fleet['servers'], 'server')}",
        "until": part_text(document),
        "top": [
            (label, texts, table if label == MOVED and document["drift"] else None)
            for label, texts in sections(document)
        ],
    }


def _sections_with_figures(document: Document) -> Iterator[tuple[Section, list[Plot], str]]:
    """The sections, the week with its plots, and how many pools are not drawn."""
    names = {timeline["pool"] for timeline in document.get("timelines", ())}
    more = sum(1 for pool in document["pools"] if pool["pool"] not in names)
    note = f"{many(more, 'pool')} not drawn; the tables have them." if more > 0 else ""
    for section in below(document):
        own = plots_of(document) if section.key == "week" else []
        yield section, own, note if own else ""
