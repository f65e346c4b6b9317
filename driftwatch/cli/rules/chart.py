"""Pictures of a backtest: panels over one axis, the numbers below, a text for screen readers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from driftwatch.errors import UsageError

# Okabe and Ito's colours that are dark enough on white; whoever uses them adds lines and markers
BLUE, VERMILLION, BLACK = "#0072B2", "#D55E00", "#000000"
GREEN, PURPLE = "#007A5A", "#A0508A"


def check_plot(path: Path) -> None:
    """Refuse before the work a plot that could not be written after it.

    Raises UsageError: the suffix says no format, there is no such folder, or it is not writable.
    """
    if path.suffix not in (".svg", ".png"):
        raise UsageError(
            f"--plot {path}: the name ends in .svg or .png", help_text=f"--plot {path.stem}.svg"
        )
    if not path.parent.is_dir():
        raise UsageError(
            f"--plot {path}: no folder {path.parent}", help_text=f"mkdir -p {path.parent}"
        )
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"--plot {path}: cannot be written", help_text="choose another folder")


def draw(
    path: Path,
    inches: tuple[float, float],
    heights: Sequence[float],
    title: str,
    description: str,
    paint: Callable[[Sequence[Any]], None],
) -> None:
    """A file with panels of these relative heights; the same bytes for the same numbers.

    Raises UsageError: it cannot be written.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    kind = path.suffix.removeprefix(".")
    with mpl.rc_context({"svg.hashsalt": "driftwatch", "svg.fonttype": "none"}):
        page = Figure(figsize=inches, layout="constrained")
        FigureCanvasAgg(page)
        panels = page.subplots(len(heights), 1, height_ratios=heights)
        page.suptitle(title, fontsize=11, wrap=True)
        paint(panels)
        image = BytesIO()
        about = {"Title": title, "Description": description}
        dated = {"Date": None} if kind == "svg" else {}
        page.savefig(image, format=kind, metadata={**about, **dated}, dpi=150)
    picture = image.getvalue()
    if kind == "svg":  # what a screen reader says
        head, mark, rest = picture.partition(b"<metadata>")
        alt = f"<title>{escape(title)}</title>\n <desc>{escape(description)}</desc>\n "
        picture = head + alt.encode() + mark + rest
    try:
        path.write_bytes(picture)
    except OSError as error:
        raise UsageError(
            f"--plot {path}: {error.strerror}", help_text="choose another folder"
        ) from error


def line(panel: Any, x: Sequence[float], y: Sequence[float | None], **look: Any) -> None:
    """A line through the points that have a value."""
    points = [(a, b) for a, b in zip(x, y, strict=True) if b is not None]
    if points:
        panel.plot(*zip(*points, strict=True), markersize=5, **look)


def numbers(
    panel: Any, columns: Sequence[str], cells: Sequence[Sequence[str]], rows: Sequence[str] = ()
) -> None:
    """A table in place of a panel."""
    panel.axis("off")
    grid = panel.table(
        cellText=cells,
        rowLabels=rows or None,
        colLabels=columns,
        loc="upper center",
        cellLoc="center",
    )
    grid.auto_set_font_size(False)
    grid.set_fontsize(8 if len(columns) <= 6 else 7 if len(columns) <= 10 else 5)
    if rows:
        grid.auto_set_column_width([-1])
