"""Plots of the report as inline SVG: the same bytes for the same numbers, no text of users in them.

Okabe and Ito's colours that are dark enough on white, each with a line style and a marker of its
own; lengths and latencies begin at zero. What a plot found is its caption, which the page writes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from io import BytesIO
from typing import Any

from driftwatch.notify.numbers import figure

BLUE, VERMILLION, BLACK, GREY = "#0072B2", "#D55E00", "#000000", "#595959"
_INCHES = (4.2, 2.6)
_STYLE: Any = {
    "svg.hashsalt": "driftwatch",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": False,
    "text.parse_math": False,
}
_METADATA = re.compile(r"<metadata>.*?</metadata>\s*", re.DOTALL)
_OWN_STYLE = re.compile(r"<defs>\s*<style[^>]*>.*?</style>\s*</defs>\s*", re.DOTALL)
_ID = re.compile(r'\bid="([^"]+)"')
_REFERENCE = re.compile(r'(url\(#|href="#)([^)"]+)')


def lengths_by_day(days: Sequence[Mapping[str, Any]], reference: Mapping[str, float | None]) -> str:
    """Mean prompt and generation lengths over days, the reference as thin lines.

    ``days``: rows of one pool: ``day``, ``prompt_tokens_mean``, ``generation_tokens_mean``;
    ``reference``: the same two columns → mean of the pin or of tuned_for.
    """

    def draw(axes: Any) -> None:
        at = [date.fromisoformat(row["day"]) for row in days]
        for column, label, colour, style, marker in (
            ("prompt_tokens_mean", "prompts", BLUE, "-", "o"),
            ("generation_tokens_mean", "generations", VERMILLION, "--", "s"),
        ):
            values = [row[column] for row in days]
            points = [(d, v) for d, v in zip(at, values, strict=True) if v is not None]
            if points:
                x, y = zip(*points, strict=True)
                axes.plot(
                    x, y, color=colour, linestyle=style, marker=marker, markersize=4, label=label
                )
            if (before := reference.get(column)) is not None:
                axes.axhline(before, color=colour, linestyle=":", linewidth=1)
        _days_below(axes, at)
        axes.set_ylabel("tokens, mean")
        _from_zero(axes)
        _legend(axes, dotted=any(value is not None for value in reference.values()))

    return _svg(draw)


def latency_by_batch(bands: Sequence[Mapping[str, Any]]) -> str:
    """Inter-token latency over requests per forward pass, at the mean of each power of two."""

    def draw(axes: Any) -> None:
        points = [b for b in bands if b["itl_seconds_mean"] is not None]
        at = [b["requests_mean"] for b in points]
        axes.plot(
            at,
            [1000 * b["itl_seconds_mean"] for b in points],
            color=BLUE,
            marker="o",
            markersize=4,
        )
        axes.set_xscale("log", base=2)
        axes.set_xticks(at, [figure(n, 2) for n in at])
        axes.minorticks_off()
        axes.set_xlabel("requests a forward pass, mean")
        axes.set_ylabel("ITL mean, ms")
        _from_zero(axes)

    return _svg(draw)


def _from_zero(axes: Any) -> None:
    """From zero to a little above what is drawn."""
    axes.set_ylim(0, 1.05 * axes.get_ylim()[1])


def _days_below(axes: Any, at: Sequence[date]) -> None:
    """At most six dates, so that they stay apart."""
    step = max(1, -(-len(at) // 6))
    ticks = sorted(set(at))[::step]
    axes.set_xticks(ticks, [f"{d.day} {d:%b}" for d in ticks])


def _legend(axes: Any, *, dotted: bool) -> None:
    if dotted:
        axes.plot([], [], color=GREY, linestyle=":", linewidth=1, label="tuned for")
    handles, _ = axes.get_legend_handles_labels()
    if handles:
        axes.legend(
            frameon=False, ncols=3, fontsize=9, loc="lower left", bbox_to_anchor=(0, 1, 1, 0)
        )


def _svg(draw: Any) -> str:
    """What ``draw`` puts on axes, as an SVG element that scales with its page."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        page = Figure(figsize=_INCHES)
        FigureCanvasAgg(page)
        # one place for all: a layout that measures its texts takes five times as long
        draw(page.add_axes((0.16, 0.2, 0.81, 0.66)))
        image = BytesIO()
        page.savefig(image, format="svg", metadata={"Date": None})
    return image.getvalue().decode()


def inlined(file: str, prefix: str, label: str) -> str:
    """An SVG file as an element of a page.

    ``file``: the file; ``prefix``: before each of its ids, so that two plots of a page have none in
    common; ``label``: what a screen reader says, escaped for an attribute.
    """
    text = file[file.index("<svg ") :].rstrip()
    text = _OWN_STYLE.sub("", _METADATA.sub("", text))
    text = _ID.sub(lambda m: f'id="{prefix}{m[1]}"', text)
    text = _REFERENCE.sub(lambda m: f"{m[1]}{prefix}{m[2]}", text)
    head, mark, rest = text.partition(">")
    head = re.sub(r' (width|height|xmlns:xlink|version)="[^"]*"', "", head)
    # the element is HTML here, where xlink needs no name space of its own
    rest = rest.replace("xlink:href", "href")
    return f'{head} role="img" aria-label="{label}"{mark}{rest}'
