"""A comparison of batchers as a picture: throughput, latency, time to first token over load."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from driftwatch.notify.numbers import figure

if TYPE_CHECKING:
    from driftwatch.cli.simulate.compare.text import Comparison
    from driftwatch.lab.batchers.comparison import Point

# Okabe and Ito's colours, the yellow ones left out; each policy has its own line and marker too
_LOOKS: dict[str, dict[str, Any]] = {
    "static": {"color": "#D55E00", "linestyle": "-", "marker": "s"},
    "dynamic": {"color": "#0072B2", "linestyle": "--", "marker": "o"},
    "continuous": {"color": "#000000", "linestyle": "-", "marker": "^"},
    "hybrid": {"color": "#007A5A", "linestyle": "-.", "marker": "D"},
    "back-pressure": {"color": "#A0508A", "linestyle": ":", "marker": "v"},
}


def draw(path: Path, comparison: Comparison, title: str) -> None:
    """Three panels and the numbers below; the same bytes for the same comparison."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    kind = path.suffix.removeprefix(".")
    names = tuple(dict.fromkeys(p.policy for p in comparison.points))
    with mpl.rc_context({"svg.hashsalt": "driftwatch", "svg.fonttype": "none"}):
        page = Figure(figsize=(8.0, 11.0), layout="constrained")
        FigureCanvasAgg(page)
        rate, late, first, table = page.subplots(4, 1, height_ratios=(3, 3, 3, 1.6))
        page.suptitle(title, fontsize=11, wrap=True)
        for panel, what, label in (
            (rate, "throughput", "throughput, req/s"),
            (late, "p99", "end to end p99, s"),
            (first, "ttft", "to first token p99, s"),
        ):
            for name in names:
                points = [
                    (p.load, v)
                    for p in comparison.points
                    if p.policy == name and (v := _of(p, what)) is not None
                ]
                if points:
                    x, y = zip(*points, strict=True)
                    panel.plot(x, y, label=name, markersize=5, **_LOOKS[name])
            panel.set_ylabel(label)
            panel.set_xlim(left=0)
            if what == "throughput":
                panel.set_ylim(bottom=0)
                panel.legend(frameon=False, ncols=len(names), fontsize=8)
            else:
                panel.set_yscale("log")
        late.axhline(
            comparison.limit_seconds, color="#000000", linewidth=0.8, linestyle=(0, (1, 3))
        )
        late.annotate(
            f"limit {figure(comparison.limit_seconds)} s",
            (1, comparison.limit_seconds),
            xycoords=("axes fraction", "data"),
            xytext=(-4, 3),
            textcoords="offset points",
            ha="right",
            fontsize=8,
        )
        first.set_xlabel("clients at once" if comparison.closed else "arriving requests per second")
        _numbers(table, comparison, names)
        description = _alt(comparison, names)
        image = BytesIO()
        about = {
            "Title": title,
            "Description": description,
            **({"Date": None} if kind == "svg" else {}),
        }
        page.savefig(image, format=kind, metadata=about, dpi=150)
    drawn_bytes = image.getvalue()
    if kind == "svg":  # what a screen reader says
        head, mark, rest = drawn_bytes.partition(b"<metadata>")
        alt = f"<title>{escape(title)}</title>\n <desc>{escape(description)}</desc>\n "
        drawn_bytes = head + alt.encode() + mark + rest
    path.write_bytes(drawn_bytes)


def _of(p: Point, what: str) -> float | None:
    if p.steady is None:
        return None
    if what == "throughput":
        return p.steady.throughput_requests_per_second
    return p.steady.e2e.p99 if what == "p99" else p.steady.ttft.p99


def _numbers(panel: Any, comparison: Comparison, names: tuple[str, ...]) -> None:
    """Throughput / p99 end to end as a table below the panels."""
    panel.axis("off")
    cells = [[_cell(comparison, name, load) for load in comparison.loads] for name in names]
    grid = panel.table(
        cellText=cells,
        rowLabels=names,
        colLabels=[f"{load:g}" for load in comparison.loads],
        loc="upper center",
        cellLoc="center",
    )
    grid.auto_set_font_size(False)
    grid.set_fontsize(7 if len(comparison.loads) <= 10 else 5)
    grid.auto_set_column_width([-1])
    panel.set_title(f"req/s; p99 s, at each load ({comparison.unit})", fontsize=8)


def _cell(comparison: Comparison, name: str, load: float) -> str:
    for p in comparison.points:
        if p.policy == name and p.load == load and p.steady is not None:
            p99 = p.steady.e2e.p99
            late = "?" if p99 is None else figure(p99)
            return f"{figure(p.steady.throughput_requests_per_second)}; {late}"
    return "-"


def _alt(comparison: Comparison, names: tuple[str, ...]) -> str:
    rows = (
        f"{name}: "
        + ", ".join(
            f"{load:g} {comparison.unit} {_cell(comparison, name, load)} s"
            for load in comparison.loads
        )
        for name in names
    )
    return "Throughput in requests/s and p99 end to end over load. " + ". ".join(rows)
