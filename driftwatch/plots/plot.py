"""Drawings as SVG without script: plots of panels above one axis, and sparklines.

A drawing fills the width of its place: lines stretch, texts keep their size and stand at a
percentage of the width. A plot's title states its finding and is its alternative text. Colours are
classes of ``plot.css`` (Okabe and Ito's, light and dark); each line has a dash of its own. Pure:
the same numbers give the same bytes, and every text is escaped.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from markupsafe import Markup, escape

from driftwatch.numbers import clean, cut
from driftwatch.plots.scales import Axis, Scale, fitted, time_ticks

PANEL_UNITS = 1000.0  # width of a panel in its own units, on every screen
# width of a drawing on a phone and on a wide screen, in pixels: labels are chosen for both
_NARROW, _WIDE = 280.0, 570.0
# heights in pixels: of a panel's title, of the time axis, between two panels
_TITLE_HEIGHT, _FOOT_HEIGHT, _PANEL_GAP = 24.0, 24.0, 12.0
# line style of a series, by its number; the class has the colour
_DASHES = ("", "6 3", "2 3", "8 3 2 3", "1 3")
Kind = Literal["line", "steps", "band", "hatch", "ticks", "level"]
Value = float | None


@dataclass(frozen=True, slots=True)
class Series:
    """Values drawn in one style over the horizontal axis of a plot.

    ``line`` and ``steps``: y over x, a gap where y is unknown; ``steps`` hold their value up to
    the next x. ``band``: between ``low`` and ``y``, all known. ``hatch``: the spans from x to ``y``
    of the axis. ``ticks``: events at x, with their names. ``level``: one value across.
    """

    kind: Kind
    name: str  # in the legend; empty = not in the legend
    x: Sequence[float] = ()
    y: Sequence[Value] = ()
    low: Sequence[Value] = ()
    names: Sequence[str] = ()  # of ticks, by x
    colour: int = 0  # number of its colour, 0 to 3; 4 is the grey of a baseline
    dash: int | None = None  # number of its dash, 0 to 4; None = as the colour's


@dataclass(frozen=True, slots=True)
class Panel:
    """Series above one vertical axis."""

    y: Axis
    series: Sequence[Series]


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing and its finding."""

    title: str  # the finding, in a sentence
    svg: Markup  # with its legend


def plot(title: str, series: Sequence[Series], x: Axis, y: Axis) -> Plot:
    """Draw series over two axes."""
    return panel_plot(title, [Panel(y, series)], x, panel_height=142.0)


def panel_plot(
    title: str,
    panels: Sequence[Panel],
    x: Axis,
    *,
    shared: Sequence[Series] = (),
    panel_height: float = 96.0,
) -> Plot:
    """Draw panels one above the other over one horizontal axis.

    ``shared``: hatches and ticks of every panel; ``panel_height``: in pixels.
    """
    panels = [replace(one, series=[*shared, *one.series]) for one in panels]
    every = [one for panel in panels for one in panel.series]
    ends = (v for one in every for v in (*one.x, *(one.y if one.kind == "hatch" else ())))
    across = Scale(fitted(x, _finite(ends)), 0.0, PANEL_UNITS)
    identity = f"h{zlib.crc32(title.encode()):x}"
    has_spans = any(one.kind == "hatch" for one in every)
    top, parts = _TITLE_HEIGHT, [_pattern(identity)] if has_spans else []
    for one in panels:
        parts += _panel(one, across, top, panel_height, identity)
        top += panel_height + _TITLE_HEIGHT + _PANEL_GAP
    bottom = top - _TITLE_HEIGHT - _PANEL_GAP
    parts += _foot(across, bottom)
    alt = escape(cut(clean(title), 300))
    height = bottom + _FOOT_HEIGHT + (16.0 if x.title else 0.0)
    if x.title:
        parts.append(f'<text x="50%" y="{height - 4:.0f}" class="mid">{escape(x.title)}</text>')
    svg = (
        f'<svg class="plot" height="{height:.0f}" role="img" aria-label="{alt}">'
        f"{''.join(parts)}</svg>{_legend(every)}"
    )
    return Plot(title, Markup(svg))  # noqa: S704 - texts are escaped


def sparkline(
    alt: str, values: Sequence[Value], low: float, high: float, level: float | None = None
) -> Markup:
    """A line the size of a word; ``low``, ``high``: ends of its axis; ``level``: of a grey line."""

    def y(value: float) -> int:
        return round(20 - 19 * min(max((value - low) / (high - low), 0.0), 1.0))

    path, pen = [], ""
    for x, value in enumerate(values):
        # a value without a neighbour is a dot, as lines have round ends
        lone = not pen and (x + 1 == len(values) or values[x + 1] is None)
        if value is not None:
            path.append(f"{pen or 'M'}{x} {y(value)}{'h0' if lone else ''}")
        pen = "" if value is None else (" " if pen else "L")
    grey = "" if level is None else f'<path class="c4" d="M0 {y(level)}H{len(values) - 1}"/>'
    return Markup(  # noqa: S704 - the text is escaped
        f'<svg class="spark" viewBox="0 0 {max(len(values) - 1, 1)} 21" preserveAspectRatio="none" '
        f'role="img"><title>{escape(cut(clean(alt), 200))}</title>{grey}'
        f'<path d="{"".join(path)}"/></svg>'
    )


def _finite(values: Iterable[Value]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]


def _pattern(identity: str) -> str:
    """The hatch of spans, in pixels: it does not stretch."""
    return (
        f'<pattern id="{identity}" width="7" height="7" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><path class="stripe" d="M0 0V7"/></pattern>'
    )


def _panel(panel: Panel, across: Scale, top: float, height: float, identity: str) -> Iterator[str]:
    """One panel between ``top`` and ``top + height`` pixels of the drawing."""
    values = (v for one in panel.series if one.kind != "hatch" for v in (*one.y, *one.low))
    up = Scale(fitted(panel.y, _finite(values), from_zero=not panel.y.is_log), height, 0.0)
    yield f'<text x="-48" y="{top - 9:.0f}" class="unit">{escape(up.axis.title)}</text>'
    for value, text in up.ticks():
        y = top + up(value)
        yield f'<line class="grid" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="-6" y="{y + 4:.1f}" class="end">{escape(text)}</text>'
    for one in panel.series:
        if one.kind == "hatch":
            yield from _hatch(one, across, top, height, identity)
    lines = "".join(
        part
        for kind in ("band", "level", "steps", "line")
        for one in panel.series
        if one.kind == kind
        for part in _paths(one, across, up)
    )
    yield (
        f'<svg y="{top:.0f}" height="{height:.0f}" width="100%" preserveAspectRatio="none" '
        f'viewBox="0 0 {PANEL_UNITS:.0f} {height:.0f}">{lines}</svg>'
    )
    for one in panel.series:
        if one.kind == "ticks":
            yield from _ticks(one, across, top, height)
    bottom = f"{top + height:.0f}"
    yield f'<line class="axis" x2="100%" y1="{bottom}" y2="{bottom}"/>'


def _foot(across: Scale, bottom: float) -> Iterator[str]:
    """Labels of the horizontal axis; a wide screen shows those that do not fit on a phone."""
    if across.axis.is_time:
        assert across.axis.low is not None and across.axis.high is not None  # noqa: S101 - fitted
        many, few = (time_ticks(across.axis.low, across.axis.high, px) for px in (_WIDE, _NARROW))
    else:
        many, few = (across.ticks_across(pixels) for pixels in (_WIDE, _NARROW))
    narrow = {value for value, _ in few}
    # an axis has one kind of label
    many = many if narrow <= {value for value, _ in many} else few
    for value, text in many:
        share = across(value) / PANEL_UNITS
        css = ("end" if share > 0.97 and len(text) > 5 else "mid") + (
            "" if value in narrow else " wide"
        )
        at = f'x="{100 * share:.2f}%" y="{bottom + 17:.0f}"'
        yield f'<text {at} class="{css}">{escape(text)}</text>'


def _percent(across: Scale, value: float) -> str:
    return f"{100 * across(value) / PANEL_UNITS:.2f}%"


def _hatch(
    series: Series, across: Scale, top: float, height: float, identity: str
) -> Iterator[str]:
    for start, end in zip(series.x, series.y, strict=True):
        width = (across(start if end is None else end) - across(start)) / PANEL_UNITS * 100
        yield (
            f'<rect class="hatch" fill="url(#{identity})" x="{_percent(across, start)}" '
            f'y="{top:.0f}" width="{max(width, 0.4):.2f}%" height="{height:.0f}"/>'
        )


def _ticks(series: Series, across: Scale, top: float, height: float) -> Iterator[str]:
    """Events: a line each, with its name as tooltip."""
    for position, x in enumerate(series.x):
        name = series.names[position] if position < len(series.names) else series.name
        at = _percent(across, x)
        yield (
            f'<line class="tick c{series.colour}"{_dash(series)} x1="{at}" x2="{at}" '
            f'y1="{top - 4:.0f}" y2="{top + height:.0f}">'
            f"<title>{escape(cut(clean(name), 80))}</title></line>"
        )


def _paths(series: Series, across: Scale, up: Scale) -> Iterator[str]:
    css = f"c{series.colour}"
    if series.kind == "band":
        edges = (zip(series.x, ends, strict=True) for ends in (series.y, series.low))
        upper, lower = ([_point(across(x), up(y or 0.0)) for x, y in edge] for edge in edges)
        yield f'<path class="band {css}" d="M{"L".join([*upper, *reversed(lower)])}Z"/>'
        return
    if series.kind == "level":
        known = [value for value in series.y if value is not None][:1]
        path = "".join(f"M0 {up(value):.1f}H{PANEL_UNITS:.0f}" for value in known)
    else:
        path = _path(series, across, up)
    if path:
        yield f'<path class="line {css}"{_dash(series)} d="{path}"/>'


def _point(x: float, y: float) -> str:
    return f"{x:.0f} {y:.1f}"


def _path(series: Series, across: Scale, up: Scale) -> str:
    parts, is_pen_down = [], False
    for x, y in zip(series.x, series.y, strict=True):
        at = across(x)
        if y is None or not math.isfinite(y):
            if series.kind == "steps" and is_pen_down:
                parts.append(f"H{at:.0f}")
            is_pen_down = False
            continue
        if not is_pen_down:
            # a value without a neighbour is a dot
            parts.append(f"M{_point(at, up(y))}h0")
        elif series.kind == "steps":
            parts.append(f"H{at:.0f}V{up(y):.1f}")
        else:
            parts.append(f"L{_point(at, up(y))}")
        is_pen_down = True
    return "".join(parts)


def _dash(series: Series) -> str:
    dash = _DASHES[(series.colour if series.dash is None else series.dash) % len(_DASHES)]
    return f' stroke-dasharray="{dash}"' if dash else ""


_KEYS = {
    "band": '<path class="band c{c}" d="M0 2h22v9h-22Z"/>',
    "hatch": '<path class="stripe" d="M2 11l7 -9m0 9l7 -9m0 9l7 -9"/>',
    "ticks": '<path class="tick c{c}"{dash} d="M11 0v13"/>',
}
_LINE = '<path class="line c{c}"{dash} d="M0 7h22"/>'


def _legend(series: Iterable[Series]) -> str:
    """The names of series below the axes, each once, beside a sample of its line."""
    named = {(one.kind, one.name, one.colour): one for one in series if one.name}
    entries = "".join(
        f'<li><svg class="key" width="24" height="13" aria-hidden="true">'
        f"{_KEYS.get(one.kind, _LINE).format(c=one.colour, dash=_dash(one))}</svg>"
        f"{escape(cut(clean(one.name), 40))}</li>"
        for one in named.values()
    )
    return f'<ul class="legend">{entries}</ul>' if entries else ""
