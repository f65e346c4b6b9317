"""A sweep as a picture: throughput and latency over concurrency."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from driftwatch.lab.sweep import Degradation, Level
from driftwatch.notify.numbers import figure

# Okabe and Ito's colours that are dark enough on white; each has a marker of its own as well
_BLUE, _VERMILLION, _BLACK = "#0072B2", "#D55E00", "#000000"


def draw(path: Path, levels: Sequence[Level], where: Degradation) -> None:
    """Two panels over concurrency and the numbers below; the same bytes for the same levels."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    served = [level for level in levels if level.requests_per_second is not None]
    title, numbers = _title(where), _in_words(served)
    with mpl.rc_context({"svg.hashsalt": "driftwatch", "svg.fonttype": "none"}):
        page = Figure(figsize=(7.0, 6.4 + 0.2 * len(served)), layout="constrained")
        FigureCanvasAgg(page)
        share = 0.4 + 0.2 * len(served)
        rate, late, table = page.subplots(3, 1, height_ratios=(2.8, 2.8, share))
        rate.sharex(late)
        rate.tick_params(labelbottom=False)
        page.suptitle(title)
        _throughput(rate, served)
        _latency(late, served)
        if where.degrades_at is not None:
            _mark(rate, late, where.degrades_at, [level.concurrency for level in served])
        _numbers(table, served)
        image = BytesIO()
        kind = path.suffix.removeprefix(".")
        about = {
            "Title": title,
            "Description": numbers,
            **({"Date": None} if kind == "svg" else {}),
        }
        page.savefig(image, format=kind, metadata=about, dpi=150)
    picture = image.getvalue()
    if kind == "svg":  # what a screen reader says
        head, mark, rest = picture.partition(b"<metadata>")
        description = f"<title>{escape(title)}</title>\n <desc>{escape(numbers)}</desc>\n "
        picture = head + description.encode() + mark + rest
    path.write_bytes(picture)


def _title(where: Degradation) -> str:
    if where.degrades_at is not None:
        return f"Latency starts to degrade at {_users(where.degrades_at)}"
    if where.holds_to is not None:
        return f"Latency does not degrade up to {_users(where.holds_to)}"
    return "No verdict on where latency degrades"


def _in_words(served: Sequence[Level]) -> str:
    """What is drawn, for a screen reader."""
    return "; ".join(
        f"{_users(level.concurrency)}: {figure(level.requests_per_second or 0)} requests/s, "
        f"mean {figure(level.e2e_seconds_mean or 0)} s"
        for level in served
    )


def _throughput(panel: Any, served: Sequence[Level]) -> None:
    panel.plot(
        [level.concurrency for level in served],
        [level.requests_per_second for level in served],
        color=_BLUE,
        marker="o",
        label="requests/s",
    )
    panel.set_ylabel("requests/s")
    panel.set_ylim(bottom=0)


def _latency(panel: Any, served: Sequence[Level]) -> None:
    users = [level.concurrency for level in served]
    for name, label, colour, style, marker in (
        ("e2e_seconds_p99", "end to end, p99", _VERMILLION, "-", "s"),
        ("e2e_seconds_mean", "end to end, mean", _BLUE, "--", "o"),
        ("ttft_seconds_p99", "to first token, p99", _BLACK, ":", "^"),
    ):
        values = [getattr(level, name) for level in served]
        points = [(n, v) for n, v in zip(users, values, strict=True) if v is not None]
        if points:
            x, y = zip(*points, strict=True)
            panel.plot(x, y, color=colour, linestyle=style, marker=marker, label=label)
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
        panel.axvline(degrades_at, color=_BLACK, linestyle="--", linewidth=0.8)
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


def _users(count: int) -> str:
    return "1 user" if count == 1 else f"{count} users"


def _numbers(panel: Any, served: Sequence[Level]) -> None:
    """What is drawn, as a table below the panels."""
    panel.axis("off")
    names = ("e2e_seconds_mean", "e2e_seconds_p99", "ttft_seconds_p99")
    cells = []
    for level in served:
        values = (level.requests_per_second, *(getattr(level, name) for name in names))
        texts = ("?" if value is None else figure(value) for value in values)
        cells.append([str(level.concurrency), *texts])
    grid = panel.table(
        cellText=cells,
        colLabels=("users", "requests/s", "mean, s", "p99, s", "first token p99, s"),
        loc="upper center",
        cellLoc="center",
    )
    grid.auto_set_font_size(False)
    grid.set_fontsize(8)
