"""Small drawings by hand: SVG with axes, lines, bands and ticks; the same numbers, the same bytes.

A plot's title is its finding. Colours are classes of the style
sheet (Okabe and Ito's, light and dark), each line has a dash of its own. Pure, no text unescaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup, escape

from driftwatch.numbers import brief, clean, cut
from driftwatch.plots.scales import Axis, Scale, fitted

# of a drawing: as wide as a phone, so that its text of 12 pixels is never shown below 11
WIDTH = 340.0
_LAST_X, _TOP = 12.0, 26.0  # the unit of the vertical axis stands above it
_DIGIT, _LETTER = 7.7, 7.0  # widths, in pixels
# more points than pixels show nothing more
MOST_POINTS = 320
# line style of a series, by its number; the class has the colour
_DASHES = ("", "6 3", "2 3", "8 3 2 3")
Kind = Literal["line", "steps", "band", "hatch", "ticks", "level"]
Value = float | None


@dataclass(frozen=True, slots=True)
class Series:
    """One thing that is drawn, over the horizontal axis of its plot.

    ``line`` and ``steps``: y over x, a gap where y is unknown; ``steps`` hold their value up to
    the next x. ``band``: between ``low`` and ``y``. ``hatch``: the spans from x to ``y`` of the
    axis. ``ticks``: events at x, with their names. ``level``: one value across.
    """

    kind: Kind
    name: str  # in the legend
    x: Sequence[float] = ()
    y: Sequence[Value] = ()
    low: Sequence[Value] = ()
    names: Sequence[str] = ()  # of ticks, by x
    colour: int = 0  # number of its colour and dash, 0 to 3; 4 is the grey of a baseline


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing and its finding."""

    title: str  # the finding, in a sentence
    svg: Markup


def plot(
    title: str,
    series: Sequence[Series],
    x: Axis,
    y: Axis,
    *,
    height: float = 190.0,
) -> Plot:
    """Draw series over two axes.

    ``height``: of the axes with their labels, in pixels at which a text has 12.
    """
    thin = [thinned(one) for one in series]
    bottom = height - (38.0 if x.title else 22.0)
    up = Scale(fitted(y, _ys(thin), from_zero=not y.is_log), bottom, _TOP)
    # five signs at least, so that axes one above the other begin at one place
    longest = max((5, *(len(text) for _, text in up.ticks())))
    across = Scale(fitted(x, _xs(thin)), 14.0 + _DIGIT * longest, WIDTH - _LAST_X)
    parts = [*_grid(across, up, height)]
    for kind in ("hatch", "band", "level", "steps", "line", "ticks"):
        for one in thin:
            if one.kind == kind:
                parts += _elements(one, across, up)
    parts += _beyond(thin, across, up)
    legend = _legend(thin)
    alt = escape(cut(clean(title), 300))
    svg = (
        f'<svg class="plot" viewBox="0 0 {WIDTH:.0f} {height + legend.height:.0f}" role="img" '
        f'aria-label="{alt}">{"".join(parts)}{legend.svg(height)}</svg>'
    )
    return Plot(title, Markup(svg))  # noqa: S704 - texts are escaped


def thinned(series: Series, most: int = MOST_POINTS) -> Series:
    """At most so many points: of each stretch its lowest and highest value, so peaks stay."""
    if series.kind not in ("line", "steps") or len(series.x) <= most:
        return series
    per, keep = math.ceil(len(series.x) / (most / 2)), []
    for first in range(0, len(series.x), per):
        part = range(first, min(first + per, len(series.x)))
        values = [(value, i) for i in part if (value := series.y[i]) is not None]
        # a stretch without a value stays a gap
        keep += sorted({min(values)[1], max(values)[1]}) if values else [part[0]]
    return Series(
        series.kind,
        series.name,
        [series.x[i] for i in keep],
        [series.y[i] for i in keep],
        colour=series.colour,
    )


def _xs(series: Iterable[Series]) -> list[float]:
    return [
        value
        for one in series
        for value in (*one.x, *(one.y if one.kind == "hatch" else ()))
        if value is not None and math.isfinite(value)
    ]


def _ys(series: Iterable[Series]) -> list[float]:
    return [
        value
        for one in series
        if one.kind != "hatch"
        for value in (*one.y, *one.low)
        if value is not None and math.isfinite(value)
    ]


def _grid(across: Scale, up: Scale, height: float) -> Iterator[str]:
    first_x, bottom = across.first, up.first
    yield f'<path class="axis" d="M{first_x:.1f} {_TOP:.0f}V{bottom:.0f}H{across.last:.0f}"/>'
    for value, text in up.ticks():
        y = up(value)
        yield f'<path class="grid" d="M{first_x:.1f} {y:.1f}H{across.last:.0f}"/>'
        yield f'<text x="{first_x - 6:.1f}" y="{y + 4:.1f}" class="end">{escape(text)}</text>'
    for value, text in across.ticks():
        x = across(value)
        yield f'<path class="axis" d="M{x:.1f} {bottom:.0f}v4"/>'
        # a label at the very end stays inside the drawing
        is_late = x + len(text) * _DIGIT / 2 > across.last + _LAST_X
        css, at = ("end", across.last + _LAST_X) if is_late else ("mid", x)
        yield f'<text x="{at:.1f}" y="{bottom + 17:.0f}" class="{css}">{escape(text)}</text>'
    middle, title = (first_x + across.last) / 2, across.axis.title
    if title:
        yield f'<text x="{middle:.0f}" y="{height - 5:.0f}" class="mid">{escape(title)}</text>'
    yield f'<text x="2" y="12">{escape(up.axis.title)}</text>'


def _elements(series: Series, across: Scale, up: Scale) -> Iterator[str]:
    css = f"c{series.colour}"
    if series.kind == "hatch":
        for start, end in zip(series.x, series.y, strict=True):
            begin_x, end_x = across(start), across(start if end is None else end)
            yield (
                f'<rect class="hatch {css}" x="{begin_x:.1f}" y="{_TOP:.0f}" '
                f'width="{max(end_x - begin_x, 2.0):.1f}" height="{up.first - _TOP:.0f}"/>'
            )
            for x in _stripes(begin_x, end_x):
                yield f'<path class="stripe {css}" d="M{x:.1f} {up.first:.0f}V{_TOP:.0f}"/>'
    elif series.kind == "band":
        yield from _band(series, across, up, css)
    elif series.kind == "level":
        y = next((value for value in series.y if value is not None), None)
        if y is not None:
            at = f"M{across.first:.1f} {up(y):.1f}H{across.last:.0f}"
            yield f'<path class="line {css}"{_dash(series)} d="{at}"/>'
    elif series.kind == "ticks":
        for position, x in enumerate(series.x):
            name = series.names[position] if position < len(series.names) else series.name
            yield (
                f'<path class="tick {css}" d="M{across(x):.1f} {up.first:.0f}V{_TOP:.0f}">'
                f"<title>{escape(cut(clean(name), 80))}</title></path>"
            )
    else:
        path = _path(series, across, up)
        if path:
            yield f'<path class="line {css}"{_dash(series)} d="{path}"/>'


def _beyond(series: Iterable[Series], across: Scale, up: Scale) -> Iterator[str]:
    """What the axis leaves out, printed at its upper end beside the highest."""
    high = up.axis.high
    points = [
        (y, x)
        for one in series
        if one.kind in ("line", "steps")
        for x, y in zip(one.x, one.y, strict=True)
        if high is not None and y is not None and math.isfinite(y) and y > high * (1 + 1e-9)
    ]
    if not points:
        return
    y, x = max(points)
    others = f" and {len(points) - 1} more" if len(points) > 1 else ""
    at, is_late = across(x), across(x) > (across.first + across.last) / 2
    yield f'<path class="beyond" d="M{at:.1f} {_TOP - 6:.0f}l4 7h-8Z"/>'
    end = ' class="end"' if is_late else ""
    text = f"off the scale: {escape(brief(y))}{others}"
    yield f'<text x="{at + (-8 if is_late else 8):.1f}" y="{_TOP + 4:.0f}"{end}>{text}</text>'


def _stripes(begin_x: float, end_x: float, each: float = 6.0) -> Iterator[float]:
    # one at least, however short the span is
    x = begin_x + min(each, max(end_x - begin_x, 1.0)) / 2
    yield x
    x += each
    count = 0
    while x < end_x and count < 60:
        yield x
        x, count = x + max(each, (end_x - begin_x) / 60), count + 1


def _path(series: Series, across: Scale, up: Scale) -> str:
    parts, pen_down = [], False
    for x, y in zip(series.x, series.y, strict=True):
        if y is None or not math.isfinite(y):
            if series.kind == "steps" and pen_down:
                parts.append(f"H{across(x):.1f}")
            pen_down = False
            continue
        at_x, at_y = across(x), up(y)
        if not pen_down:
            parts.append(f"M{at_x:.1f} {at_y:.1f}")
        elif series.kind == "steps":
            parts.append(f"H{at_x:.1f}V{at_y:.1f}")
        else:
            parts.append(f"L{at_x:.1f} {at_y:.1f}")
        pen_down = True
    return "".join(parts)


def _band(series: Series, across: Scale, up: Scale, css: str) -> Iterator[str]:
    upper: list[str] = []
    lower: list[str] = []
    for x, high, low in zip(series.x, series.y, series.low, strict=True):
        if high is None or low is None:
            if upper:
                yield _area(upper, lower, css)
            upper, lower = [], []
            continue
        upper.append(f"{across(x):.1f} {up(high):.1f}")
        lower.append(f"{across(x):.1f} {up(low):.1f}")
    if upper:
        yield _area(upper, lower, css)


def _area(upper: Sequence[str], lower: Sequence[str], css: str) -> str:
    return f'<path class="band {css}" d="M{"L".join([*upper, *reversed(lower)])}Z"/>'


def _dash(series: Series) -> str:
    dash = _DASHES[series.colour % len(_DASHES)] if series.colour < 4 else "1 3"
    return f' stroke-dasharray="{dash}"' if dash else ""


@dataclass(frozen=True, slots=True)
class _Legend:
    """Names below the axes, each beside what it looks like."""

    entries: tuple[tuple[float, float, Series], ...]  # x, y below the axes
    height: float

    def svg(self, top: float) -> str:
        parts = []
        for x, y, one in self.entries:
            at = top + y
            mark: Mapping[str, str] = {
                "band": f'<path class="band c{one.colour}" d="M{x} {at - 8}h22v9h-22Z"/>',
                "hatch": f'<path class="stripe c{one.colour}" d="M{x + 4} {at - 9}v10m6 -10v10m6 '
                '-10v10"/>',
                "ticks": f'<path class="tick c{one.colour}" d="M{x + 11} {at - 10}v12"/>',
            }
            usual = f'<path class="line c{one.colour}"{_dash(one)} d="M{x} {at - 4}h22"/>'
            parts.append(mark.get(one.kind, usual))
            parts.append(f'<text x="{x + 28}" y="{at}">{escape(cut(clean(one.name), 40))}</text>')
        return "".join(parts)


def _legend(series: Sequence[Series]) -> _Legend:
    """Where each name stands: as many beside each other as there is room."""
    entries: list[tuple[float, float, Series]] = []
    x, y = 2.0, 16.0
    for one in series:
        if not one.name:
            continue
        width = 44.0 + _LETTER * min(len(one.name), 40)
        if entries and x + width > WIDTH + 16.0:
            x, y = 2.0, y + 18.0
        entries.append((x, y, one))
        x += width
    return _Legend(tuple(entries), y + 6.0 if entries else 0.0)
