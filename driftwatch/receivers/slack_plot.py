"""The lengths that drifted, beside the baseline's, as a small picture for a phone. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from driftwatch.notify.numbers import count, times
from driftwatch.notify.page_values import Page, drifted_length
from driftwatch.notify.phrases.traffic import length_ratio
from driftwatch.notify.shares import few_cells, shares_of

# 600 by 380 dots: a phone shows it without zooming
_INCHES, _DOTS_PER_INCH = (4.0, 2.53), 150
# Okabe and Ito's: grey and hatched before, blue now
_BEFORE, _NOW = "#BBBBBB", "#0072B2"
_STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": False,
    "text.parse_math": False,
}
_MOST_CELLS = 6


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture and what a screen reader says of it."""

    png: bytes
    title: str
    alt_text: str


def plot_of(page: Page) -> Plot | None:
    """The plot of a page; None where no length drifted, or nobody kept both distributions."""
    stem = drifted_length(page)
    both = (page.get("shares") or {}).get(stem or "")
    if stem is None or both is None:
        return None
    distributions = shares_of(both)
    edges, before, now = few_cells(distributions, _MOST_CELLS)
    word = f"{stem.split('_')[0]} tokens"
    ratio = length_ratio(page, stem.split("_")[0])
    title = f"{word.capitalize()} {times(ratio)}" if ratio else f"{word.capitalize()} drifted"
    requests = (count(distributions.n_before), count(distributions.n_now))
    cells = ", ".join(
        f"{edge} {100 * one:.0f} to {100 * other:.0f}"
        for edge, one, other in zip(edges, before, now, strict=True)
    )
    alt = f"{title}. Share of requests in percent by {word}, baseline to now: {cells}"
    return Plot(_png(title, word, edges, (before, now), requests), title, alt)


def _png(
    title: str,
    word: str,
    edges: Sequence[str],
    rows: tuple[Sequence[float], Sequence[float]],
    requests: tuple[str, str],
) -> bytes:
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    looks: Sequence[Mapping[str, Any]] = (
        {"color": _BEFORE, "hatch": "///", "edgecolor": "#595959"},
        {"color": _NOW},
    )
    with mpl.rc_context(_STYLE):
        picture = Figure(figsize=_INCHES, dpi=_DOTS_PER_INCH)
        FigureCanvasAgg(picture)
        axes: Any = picture.add_axes((0.13, 0.2, 0.84, 0.6))
        names = (f"baseline, n {requests[0]}", f"now, n {requests[1]}")
        for side, (row, name, look) in enumerate(zip(rows, names, looks, strict=True)):
            at = [cell + (side - 0.5) * 0.4 for cell in range(len(edges))]
            axes.bar(at, [100 * share for share in row], 0.4, label=name, **look)
        axes.set_xticks(range(len(edges)), edges)
        axes.set_xlabel(word)
        axes.set_ylabel("requests, %")
        picture.text(0.02, 0.94, title, fontsize=12, fontweight="bold")
        axes.legend(
            frameon=False, ncols=2, fontsize=9, loc="lower left", bbox_to_anchor=(0, 1, 1, 0)
        )
        image = BytesIO()
        picture.savefig(image, format="png", metadata={"Software": None})
    return image.getvalue()
