"""A sweep as a picture: throughput and latency over concurrency."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from xml.sax.saxutils import escape

from driftwatch.notify.numbers import figure
from driftwatch.simulate.sweeping import Degradation, Level

# Okabe and Ito's colours that are dark enough on white; each has a marker of its own as well
_BLUE, _VERMILLION, _BLACK = "#0072B2", "#D55E00", "#000000"


def draw(path: Path, levels: Sequence[Level], where: Degradation) -> None:
    """Two panels over concurrency; the same bytes for the same levels.

    Args:
        path: ends in .svg or .png.
        levels: those that were not served are left out.
        where: is drawn as a dashed line.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    served = [level for level in levels if level.requests_per_second is not None]
    users = [level.concurrency for level in served]
    if where.degrades_at is not None:
        title = f"Latency starts to degrade at {where.degrades_at} users"
    elif where.holds_to is not None:
        title = f"Latency does not degrade up to {where.holds_to} users"
    else:
        title = "One level only: no verdict on latency"
    with mpl.rc_context({"svg.hashsalt": "driftwatch", "svg.fonttype": "none"}):
        page = Figure(figsize=(7.0, 6.0), layout="constrained")
        FigureCanvasAgg(page)
        rate, late = page.subplots(2, 1, sharex=True)
        page.suptitle(title)
        rate.plot(
            users,
            [level.requests_per_second for level in served],
            color=_BLUE,
            marker="o",
            label="requests/s",
        )
        rate.set_ylabel("requests/s")
        rate.set_ylim(bottom=0)
        for name, label, colour, style, marker in (
            ("e2e_seconds_p99", "end to end, p99", _VERMILLION, "-", "s"),
            ("e2e_seconds_mean", "end to end, mean", _BLUE, "--", "o"),
            ("ttft_seconds_p99", "to first token, p99", _BLACK, ":", "^"),
        ):
            values = [getattr(level, name) for level in served]
            known = [(n, v) for n, v in zip(users, values, strict=True) if v is not None]
            if known:
                x, y = zip(*known, strict=True)
                late.plot(x, y, color=colour, linestyle=style, marker=marker, label=label)
        late.set_ylabel("seconds")
        late.set_yscale("log")
        late.set_xscale("log", base=2)
        late.set_xticks(users, [str(n) for n in users])
        late.minorticks_off()
        late.set_xlabel("users at once (closed loop)")
        late.legend(frameon=False)
        if where.degrades_at is not None:
            for panel in (rate, late):
                panel.axvline(where.degrades_at, color=_BLACK, linestyle="--", linewidth=0.8)
        numbers = "; ".join(
            f"{level.concurrency} users: {figure(level.requests_per_second or 0)} requests/s, "
            f"mean {figure(level.e2e_seconds_mean or 0)} s"
            for level in served
        )
        image = BytesIO()
        kind = path.suffix.removeprefix(".")
        about = {
            "Title": title,
            "Description": numbers,
            **({"Date": None} if kind == "svg" else {}),
        }
        page.savefig(image, format=kind, metadata=about, dpi=150)
    drawn = image.getvalue()
    if kind == "svg":  # what a screen reader says
        head, mark, rest = drawn.partition(b"<metadata>")
        said = f"<title>{escape(title)}</title>\n <desc>{escape(numbers)}</desc>\n "
        drawn = head + said.encode() + mark + rest
    path.write_bytes(drawn)
