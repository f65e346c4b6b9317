"""An advice as a picture: capacity, and latency, over the knob; the same bytes for the same advice.

Two panels: capacity with its band over three step-time variants, the offered rate dashed; TTFT p95
and ITL p99 on a logarithmic axis with their targets. Today's value is hollow.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal
from xml.sax.saxutils import escape

import numpy as np

from driftwatch.errors import NoVerdict
from driftwatch.notify.numbers import figure, knob, milliseconds, percent, seconds
from driftwatch.notify.todo import change_text
from driftwatch.recommend.advice import Advice, Candidate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BLUE, _VERMILLION, _BLACK = "#0072B2", "#D55E00", "#000000"
_CLEAR = {"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.8}  # behind text
_MOST = 16  # rows of the table: as many values as a sweep has


@dataclass(frozen=True, slots=True)
class Point:
    """One value of the axis."""

    values: tuple[float | None, ...]  # one a knob of the axis; None = today's, which is unknown
    candidate: Candidate  # replayed with it
    now: bool  # it is today's
    advised: bool


@dataclass(frozen=True, slots=True)
class Axis:
    """Candidates over one knob (two where the advice moves two), by value."""

    knobs: tuple[str, ...]  # vLLM's names
    points: tuple[Point, ...]  # today's and those that differ from today in these knobs only
    others: tuple[Candidate, ...]  # what was swept besides


def axis_of(advice: Advice) -> Axis | None:
    """The axis; None where nothing was swept and today was not replayed."""
    today = advice.today
    swept = [c for c in advice.candidates if c.knobs]
    advised = advice.advised
    # a page's advice comes without its table
    if advised is not None and advised.knobs and not any(_is(c, advised) for c in swept):
        swept.append(advised)
    if today is None and not swept:
        return None
    knobs = _knobs(advice, swept)
    if today is None:
        points = []
    else:
        advised_today = advice.advised is not None and not advice.advised.knobs
        points = [Point(_values(advice.settings, knobs), today, True, advised_today)]
    others = []
    for candidate in swept:
        if knobs and set(candidate.knobs) <= set(knobs):
            values = _values({**advice.settings, **candidate.knobs}, knobs)
            points.append(Point(values, candidate, False, _is(candidate, advice.advised)))
        else:
            others.append(candidate)
    points.sort(key=lambda point: tuple(-1.0 if v is None else v for v in point.values))
    return Axis(knobs, tuple(points), tuple(others))


def by_knobs(candidates: Sequence[Candidate]) -> Mapping[tuple[str, ...], Sequence[Candidate]]:
    """Candidates by which knobs they move, in the order in which they come."""
    groups: dict[tuple[str, ...], list[Candidate]] = {}
    for candidate in candidates:
        groups.setdefault(tuple(sorted(candidate.knobs)), []).append(candidate)
    return groups


def _knobs(advice: Advice, swept: Sequence[Candidate]) -> tuple[str, ...]:
    if advice.advised is not None and advice.advised.knobs:
        first = advice.recommendation.knob
        return tuple(sorted(advice.advised.knobs, key=lambda name: (name != first, name)))
    counted = Counter(next(iter(c.knobs)) for c in swept if len(c.knobs) == 1)
    if not counted:
        return ()
    most = max(counted.values())
    return (min(name for name, number in counted.items() if number == most),)


def _values(settings: Mapping[str, float], knobs: Sequence[str]) -> tuple[float | None, ...]:
    return tuple(settings.get(name) for name in knobs)


def _is(candidate: Candidate, advised: Candidate | None) -> bool:
    return advised is not None and dict(candidate.knobs) == dict(advised.knobs)


HEADER = ("", "in target", "capacity, req/s", "TTFT p95", "ITL p99", "KV peak")


def draw_advice(advice: Advice, kind: Literal["svg", "png"] = "svg", *, name: str = "") -> bytes:
    """The picture as a file's bytes, with a title and a description for a screen reader.

    ``name``: the server, for the title. Raises NoVerdict: nothing was swept.
    """
    import matplotlib as mpl

    with mpl.rc_context({"svg.hashsalt": "driftwatch", "svg.fonttype": "none"}):
        page = plot_advice(advice, name=name)
        title, description = title_of(advice, name), alt_text(advice)
        about: dict[str, Any] = {"Title": title, "Description": description}
        image = BytesIO()
        undated = {"Date": None} if kind == "svg" else {}
        page.savefig(image, format=kind, metadata=about | undated, dpi=150)
    file = image.getvalue()
    if kind == "svg":
        head, mark, rest = file.partition(b"<metadata>")
        alt = f"<title>{escape(title)}</title>\n <desc>{escape(description)}</desc>\n "
        file = head + alt.encode() + mark + rest
    return file


def plot_advice(advice: Advice, *, name: str = "") -> Figure:
    """The picture as a figure: two panels and the numbers below them."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    axis = _axis(advice)
    many = len(axis.points)
    page = Figure(figsize=(7.0, 6.2 + 0.25 * many), layout="constrained")
    FigureCanvasAgg(page)
    rate, late, numbers = page.subplots(3, 1, height_ratios=(2.8, 2.8, 0.4 + 0.2 * many))
    rate.sharex(late)
    rate.tick_params(labelbottom=False)
    page.suptitle(title_of(advice, name), fontsize=11, wrap=True)
    _capacity(rate, axis, advice)
    _latency(late, axis, advice)
    # evenly side by side: the values are powers of two, and today's may be none
    late.set_xticks(range(many), [_label(p).replace(" ", "\n", 1) for p in axis.points])
    late.set_xlabel(", ".join(axis.knobs) or "today's settings")
    numbers.axis("off")
    grid = numbers.table(
        cellText=[list(row) for row in rows(advice)],
        colLabels=list(HEADER),
        loc="upper center",
        cellLoc="center",
    )
    grid.auto_set_font_size(False)
    grid.set_fontsize(8)
    return page


def title_of(advice: Advice, name: str = "") -> str:
    """The finding."""
    advised = advice.recommendation
    where = f"{name}: " if name else ""
    if advised.moves:
        brings = f": {advised.effect[0]}" if advised.effect else ""
        return f"{where}{change_text(advised)}{brings}"
    word = {"none": "no knob helps", "no_action": "change nothing"}.get(
        advised.action, "no verdict"
    )
    return f"{where}{word}: {advised.reason.text}"


def rows(advice: Advice) -> tuple[tuple[str, ...], ...]:
    """What is drawn as a table, a row a value under :data:`HEADER`; "?" where it is not known."""
    return tuple((_label(point), *_cells(point.candidate)) for point in _axis(advice).points)


def alt_text(advice: Advice) -> str:
    """What the picture shows, in words."""
    axis = _axis(advice)
    names = ", ".join(axis.knobs) or "today's settings"
    sentences = [
        f"{row[0]}: capacity {row[2]} requests/s, TTFT p95 {row[3]}, ITL p99 {row[4]}"
        for row in rows(advice)
    ]
    offered = advice.offered_requests_per_second
    rate = "" if offered is None else f"; offered {figure(offered)} requests/s"
    return f"Capacity and latency over {names}{rate}. {'. '.join(sentences)}."


def _axis(advice: Advice) -> Axis:
    axis = axis_of(advice)
    if axis is None or not axis.points:
        raise NoVerdict(
            "there is nothing to draw: nothing was replayed",
            help_text=advice.recommendation.why,
        )
    return replace(axis, points=axis.points[:_MOST])


def _label(point: Point) -> str:
    values = ", ".join("?" if v is None else knob(v) for v in point.values) or "today"
    return f"{values} now" if point.now else f"{values} advised" if point.advised else values


def _cells(c: Candidate) -> tuple[str, ...]:
    if c.refused is not None:
        return ("refused", *[""] * 4)
    capacity = "?"
    if c.capacity_requests_per_second is not None:
        capacity = figure(c.capacity_requests_per_second)
    return (
        "?" if c.in_target_ratio is None else percent(c.in_target_ratio),
        capacity,
        "?" if c.ttft_p95_seconds is None else seconds(c.ttft_p95_seconds, 3),
        "?" if c.itl_p99_seconds is None else milliseconds(c.itl_p99_seconds),
        "?" if c.kv_cache_peak_ratio is None else percent(c.kv_cache_peak_ratio),
    )


def _capacity(panel: Any, axis: Axis, advice: Advice) -> None:
    """Capacity with its band, the offered rate dashed."""
    middle, low, high = (
        _series(axis, f"capacity_{name}requests_per_second") for name in ("", "low_", "high_")
    )
    bounds = [np.where(np.isnan(bound), middle, bound) for bound in (low, high)]
    bounds = [np.where(np.isnan(middle), math.nan, bound) for bound in bounds]
    if not np.isnan(middle).all():
        panel.fill_between(range(len(middle)), *bounds, color=_BLUE, alpha=0.25, linewidth=0)
        # without a target it is the rate of a server that is always full
        of = "when full" if advice.slo is None else "in target"
        _line(panel, axis, middle, _BLUE, "-", "o", f"capacity {of} (band: 3 models)")
        for place, point in enumerate(axis.points):
            if (point.now or point.advised) and not math.isnan(middle[place]):
                panel.annotate(
                    f"{'now' if point.now else 'advised'} {figure(middle[place])}",
                    (place, middle[place]),
                    xytext=(0, -18),  # above lies the line of what is offered
                    textcoords="offset points",
                    ha="center",
                    fontsize=8,
                    bbox=_CLEAR,
                )
    if (offered := advice.offered_requests_per_second) is not None:
        text = f"offered {figure(offered)} req/s"
        panel.axhline(offered, color=_BLACK, linestyle="--", linewidth=0.8, label=text)
    panel.set_ylabel("requests/s of a replica")
    panel.margins(y=0.2)
    panel.set_ylim(bottom=0)
    _legend(panel)


def _latency(panel: Any, axis: Axis, advice: Advice) -> None:
    """TTFT p95 and ITL p99, with the targets."""
    slo = advice.slo
    first, later = (None, None) if slo is None else (slo.ttft_seconds, slo.tpot_seconds)
    for name, label, colour, style, marker, target in (
        ("ttft_p95_seconds", "TTFT p95", _VERMILLION, "-", "s", first),
        ("itl_p99_seconds", "ITL p99", _BLUE, "--", "^", None),
        ("tpot_p95_seconds", "TPOT p95", _BLACK, ":", "v", later),
    ):
        values = _series(axis, name)
        values[values <= 0] = math.nan  # the axis is logarithmic
        if not np.isnan(values).all():
            _line(panel, axis, values, colour, style, marker, label)
        if target is not None:
            panel.axhline(target, color=colour, linestyle=(0, (1, 3)), linewidth=0.8)
            panel.annotate(
                f"target {label.split()[0]} {_time(target)}",
                (1, target),
                xycoords=("axes fraction", "data"),
                xytext=(-4, 3),
                textcoords="offset points",
                ha="right",
                fontsize=8,
                bbox=_CLEAR,
            )
    panel.set_yscale("log")
    panel.margins(y=0.1)
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panel.set_ylabel("seconds")
    _legend(panel)


def _series(axis: Axis, name: str) -> Any:
    """A figure of every point, NaN where it is unknown: a gap, not a line drawn through."""
    values = (
        None if point.candidate.refused is not None else getattr(point.candidate, name)
        for point in axis.points
    )
    return np.array([math.nan if value is None else value for value in values])


def _line(
    panel: Any, axis: Axis, values: Any, colour: str, style: str, marker: str, label: str
) -> None:
    """A line whose marker is hollow at today's value, large and filled at the advised one."""
    panel.plot(values, color=colour, linestyle=style, marker=marker, markersize=4, label=label)
    for place, point in enumerate(axis.points):
        if (point.now or point.advised) and not math.isnan(values[place]):
            panel.plot(
                [place],
                [values[place]],
                color=colour,
                marker=marker,
                markersize=9,
                markerfacecolor=colour if point.advised else "white",
                linestyle="none",
            )


def _legend(panel: Any) -> None:
    if panel.get_legend_handles_labels()[0]:
        panel.legend(
            frameon=False, ncols=3, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1)
        )


def _time(value: float) -> str:
    """``1.0 s``, ``50 ms``."""
    return milliseconds(value) if value < 0.1 else seconds(value)
