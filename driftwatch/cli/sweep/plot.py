"""A sweep as a picture: throughput and latency over concurrency."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from driftwatch.cli.simulate import chart
from driftwatch.cli.simulate.chart import BLACK, BLUE, VERMILLION
from driftwatch.lab.sweep import Degradation, Level
from driftwatch.notify.numbers import figure

_LATENCIES = (
    ("e2e_seconds_p99", "end to end, p99", VERMILLION, "-", "s"),
    ("e2e_seconds_mean", "end to end, mean", BLUE, "--", "o"),
    ("ttft_seconds_p99", "to first token, p99", BLACK, ":", "^"),
)


def draw(path: Path, levels: Sequence[Level], where: Degradation) -> None:
    """Two panels over concurrency and the numbers below.

    Raises UsageError: it cannot be written.
    """
    served = [level for level in levels if level.requests_per_second is not None]
    users = [level.concurrency for level in served]

    def paint(panels: Sequence[Any]) -> None:
        rate, late, below = panels
        rate.sharex(late)
        rate.tick_params(labelbottom=False)
        speeds = [level.requests_per_second for level in served]
        chart.line(rate, users, speeds, color=BLUE, marker="o", label="requests/s")
        rate.set_ylabel("requests/s")
        rate.set_ylim(bottom=0)
        _latency(late, users, served)
        if where.degrades_at is not None:
            _mark(rate, late, where.degrades_at, users)
        names = ("requests_per_second", *(f"e2e_seconds_{n}" for n in ("mean", "p99")))
        cells = [
            [str(level.concurrency)]
            + [_cell(getattr(level, name)) for name in (*names, "ttft_seconds_p99")]
            for level in served
        ]
        columns = ("users", "requests/s", "mean, s", "p99, s", "first token p99, s")
        chart.numbers(below, columns, cells)

    description = "; ".join(
        f"{_users(level.concurrency)}: {figure(level.requests_per_second or 0)} requests/s, "
        f"mean {figure(level.e2e_seconds_mean or 0)} s"
        for level in served
    )
    table_height = 0.2 * len(served)
    heights = (2.8, 2.8, 0.4 + table_height)
    chart.draw(path, (7.0, 6.4 + table_height), heights, _title(where), description, paint)


def _title(where: Degradation) -> str:
    if where.degrades_at is not None:
        return f"Latency starts to degrade at {_users(where.degrades_at)}"
    if where.holds_to is not None:
        return f"Latency does not degrade up to {_users(where.holds_to)}"
    return "No verdict on where latency degrades"


def _latency(panel: Any, users: Sequence[int], served: Sequence[Level]) -> None:
    for name, label, colour, style, marker in _LATENCIES:
        values = [getattr(level, name) for level in served]
        chart.line(panel, users, values, color=colour, linestyle=style, marker=marker, label=label)
    panel.set_ylabel("seconds")
    panel.set_yscale("log")
    panel.set_xscale("log", base=2)
    panel.set_xticks(users, [str(n) for n in users])
    panel.minorticks_off()
    panel.set_xlabel("users at once (closed loop)")
    # above its panel, where the line of the finding does not reach
    panel.legend(frameon=False, ncols=3, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1))


def _mark(rate: Any, late: Any, degrades_at: int, users: Sequence[int]) -> None:
    """Where latency starts to degrade: a line through both panels, with its name."""
    for panel in (rate, late):
        panel.axvline(degrades_at, color=BLACK, linestyle="--", linewidth=0.8)
    early = users.index(degrades_at) < len(users) / 2  # room on its right
    rate.annotate(
        f"degrades at {_users(degrades_at)}",
        (degrades_at, 0.04),
        xycoords=("data", "axes fraction"),
        xytext=(4 if early else -4, 0),
        textcoords="offset points",
        ha="left" if early else "right",
        fontsize=8,
    )


def _cell(value: float | None) -> str:
    return "?" if value is None else figure(value)


def _users(count: int) -> str:
    return "1 user" if count == 1 else f"{count} users"
