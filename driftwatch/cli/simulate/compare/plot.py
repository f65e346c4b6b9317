"""A comparison of batchers as a picture: throughput, latency, time to first token over load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftwatch.cli.simulate import chart
from driftwatch.cli.simulate.chart import BLACK, BLUE, GREEN, PURPLE, VERMILLION
from driftwatch.notify.numbers import figure

if TYPE_CHECKING:
    from driftwatch.cli.simulate.compare.text import Comparison
    from driftwatch.lab.batchers.steady import Steady

_LOOKS: dict[str, dict[str, Any]] = {
    "static": {"color": VERMILLION, "linestyle": "-", "marker": "s"},
    "dynamic": {"color": BLUE, "linestyle": "--", "marker": "o"},
    "continuous": {"color": BLACK, "linestyle": "-", "marker": "^"},
    "hybrid": {"color": GREEN, "linestyle": "-.", "marker": "D"},
    "back-pressure": {"color": PURPLE, "linestyle": ":", "marker": "v"},
}
_PANELS: tuple[tuple[str, Callable[[Steady], float | None]], ...] = (
    ("throughput, req/s", lambda s: s.throughput_requests_per_second),
    ("end to end p99, s", lambda s: s.e2e.p99),
    ("to first token p99, s", lambda s: s.ttft.p99),
)


def draw(path: Path, comparison: Comparison, title: str) -> None:
    """Three panels and the numbers below.

    Raises UsageError: it cannot be written.
    """
    names = comparison.policies
    cells = [[_cell(comparison, name, load) for load in comparison.loads] for name in names]

    def paint(panels: Sequence[Any]) -> None:
        for panel, (label, value) in zip(panels, _PANELS, strict=False):
            for name in names:
                points = [p for p in comparison.points if p.policy == name and p.steady]
                values = [value(p.steady) for p in points if p.steady]
                chart.line(panel, [p.load for p in points], values, label=name, **_LOOKS[name])
            panel.set_ylabel(label)
            panel.set_xlim(left=0)
        rate, late, first, below = panels
        rate.set_ylim(bottom=0)
        rate.legend(frameon=False, ncols=len(names), fontsize=8)
        for panel in (late, first):
            panel.set_yscale("log")
        limit = comparison.limit_seconds
        late.axhline(limit, color=BLACK, linewidth=0.8, linestyle=(0, (1, 3)))
        late.annotate(
            f"limit {figure(limit)} s",
            (1, limit),
            xycoords=("axes fraction", "data"),
            xytext=(-4, 3),
            textcoords="offset points",
            ha="right",
            fontsize=8,
        )
        first.set_xlabel("clients at once" if comparison.closed else "arriving requests per second")
        chart.numbers(below, [f"{load:g}" for load in comparison.loads], cells, names)
        below.set_title(f"req/s; p99 s, at each load ({comparison.unit})", fontsize=8)

    rows = (
        f"{name}: "
        + ", ".join(
            f"{load:g} {comparison.unit} {cell} s"
            for load, cell in zip(comparison.loads, row, strict=True)
        )
        for name, row in zip(names, cells, strict=True)
    )
    description = "Throughput in requests/s and p99 end to end over load. " + ". ".join(rows)
    chart.draw(path, (8.0, 11.0), (3, 3, 3, 1.6), title, description, paint)


def _cell(comparison: Comparison, name: str, load: float) -> str:
    for p in comparison.points:
        if p.policy == name and p.load == load and p.steady is not None:
            p99 = p.steady.e2e.p99
            late = "?" if p99 is None else figure(p99)
            return f"{figure(p.steady.throughput_requests_per_second)}; {late}"
    return "-"
