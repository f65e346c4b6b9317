"""A grid as a picture: pages per server-month of the varied rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from driftwatch.backtest.report import BacktestReport, grid_noun, grid_rows
from driftwatch.cli.rules import chart
from driftwatch.cli.rules.chart import BLACK, BLUE, GREEN, PURPLE, VERMILLION

_LOOKS = (
    (BLUE, "-", "o"),
    (VERMILLION, "--", "s"),
    (BLACK, ":", "^"),
    (GREEN, "-.", "D"),
    (PURPLE, "-", "v"),
)


def draw_grid(path: Path, report: BacktestReport) -> None:
    """Pages, beside them what was missed where there is a truth file, and the numbers below.

    Raises UsageError: it cannot be written.
    """
    values = list(report.axes[0].values)
    lines = _lines(report)
    missed = [len(score.missed) for score in report.cell_scores]

    def paint(panels: Sequence[Any]) -> None:
        rates, *more, below = panels
        for (name, cells), (colour, style, marker) in zip(
            lines.items(), _cycle(len(lines)), strict=True
        ):
            look = {"color": colour, "linestyle": style, "marker": marker, "label": name}
            heights = _rates(report, cells)
            chart.line(rates, range(len(values)), heights, **look)
            for panel in more:
                chart.line(panel, range(len(values)), [missed[n] for n in cells], **look)
        labels = (f"{grid_noun(report.axes)} per server-month", "missed")
        for panel, label in zip((rates, *more), labels, strict=False):
            panel.set_ylabel(label)
            panel.set_ylim(0, max(panel.get_ylim()[1], 1.0 if panel is not rates else 0.01))
            panel.set_xticks(range(len(values)), values)
        (more or [rates])[-1].set_xlabel(report.axes[0].name)
        if len(report.axes) > 1:
            rates.legend(title=report.axes[1].name, fontsize=8)
        header, rows = grid_rows(report)
        chart.numbers(below, [name.replace(".", ".\n") for name in header], rows)

    height = 0.2 * len(report.cells)
    heights = (2.8, *((1.6,) if missed else ()), 0.6 + height)
    title = _title(report)
    header, rows = grid_rows(report)
    description = "; ".join(
        ", ".join(f"{name} {cell}".strip() for name, cell in zip(header, row, strict=True) if cell)
        for row in rows
    )
    chart.draw(path, (7.0, sum(heights) + 1.0), heights, title, description, paint)


def _title(report: BacktestReport) -> str:
    """The finding: from how many pages to how many."""
    noun = grid_noun(report.axes)
    rates = _rates(report, range(len(report.cells)))
    certain = [rate for rate in rates if rate is not None]
    if not certain:
        return f"No server-month to count {noun} over"
    low, high = (f"{rate:.2f}" for rate in (min(certain), max(certain)))
    between = low if low == high else f"{low} to {high}"
    return f"{between} {noun} per server-month"


def _rates(report: BacktestReport, cells: Sequence[int]) -> list[float | None]:
    """A server-month, of the varied rules."""
    chosen = [report.cells[number] for number in cells]
    return [cell.result.per_server_month(cell.pages_of(report.axes)) for cell in chosen]


def _lines(report: BacktestReport) -> Mapping[str, list[int]]:
    """Name of a line → its cells: one line for each value of the second axis."""
    lines: dict[str, list[int]] = {}
    for number, cell in enumerate(report.cells):
        lines.setdefault(cell.values[1] if len(cell.values) > 1 else "", []).append(number)
    return lines


def _cycle(count: int) -> list[tuple[str, str, str]]:
    return [_LOOKS[number % len(_LOOKS)] for number in range(count)]
