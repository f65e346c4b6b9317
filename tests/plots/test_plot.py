"""Drawings: what they show, that they stay small, and that no text gets out of its place."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from driftwatch.plots.plot import (
    Plot,
    Series,
    plot,
)
from driftwatch.plots.scales import Axis

DAY = 1_772_334_000.0  # 2026-03-01T03:00:00Z
TIME = Axis("time, <UTC>", is_time=True)
SPEED = Axis("speed <at> equal load")
COUNTS = [((7 * n) % 13) / 13 for n in range(240)]


def busy() -> Plot:
    """A day at 6 min with everything that can be drawn."""
    x = [DAY + 360.0 * n for n in range(240)]
    known: list[float | None] = [None if 50 < n < 60 else v for n, v in enumerate(COUNTS)]
    hourly = x[::10]
    return plot(
        "Speed fell to 80 % at 14:00 UTC <and> stayed",
        [
            Series("band", "<script>", hourly, [1.1] * 24, low=[0.9] * 24, colour=4),
            Series("hatch", "slower", [DAY + 3600], [DAY + 7200], colour=1),
            Series("line", "speed", x, known, colour=0),
            Series("steps", "in target", x, known, colour=2),
            Series("level", "threshold", (), [0.85], colour=3),
            Series("ticks", "restart", [DAY + 9000], names=["<b>v0.32.0</b>"], colour=1),
        ],
        TIME,
        SPEED,
    )


def test_a_full_plot_is_small_well_formed_and_has_its_titles() -> None:
    drawn = busy()
    assert len(drawn.svg.encode()) <= 10_000
    root = ElementTree.fromstring(f"<p>{drawn.svg}</p>")
    assert {"time, <UTC>", "speed <at> equal load", "<script>", "restart"} <= set(root.itertext())
    assert root[0].attrib["aria-label"] == drawn.title and root[0].attrib["role"] == "img"
    assert "<b>" not in drawn.svg and "style=" not in drawn.svg
    assert str(drawn.svg) == str(busy().svg)


def test_a_value_that_is_unknown_is_a_gap() -> None:
    drawn = plot(
        "t", [Series("line", "", [0, 1, 2, 3], [1.0, None, 2.0, 3.0])], Axis("x"), Axis("y")
    )
    (path,) = re.findall(r'class="line c0" d="([^"]+)"', drawn.svg)
    assert path.count("M") == 2 and path.count("L") == 1
    steps = plot("t", [Series("steps", "", [0, 1, 2], [1.0, None, 2.0])], Axis("x"), Axis("y"))
    (path,) = re.findall(r'class="line c0" d="([^"]+)"', steps.svg)
    assert re.fullmatch(r"M[\d. ]+h0H[\d.]+M[\d. ]+h0", path)


@pytest.mark.parametrize(
    "y",
    [[], [None], [0.0], [5.0, 5.0], [-3.0, 4.0], [1e-12, 1e12], [math.inf, 1.0], [math.nan, 2.0]],
)
@pytest.mark.parametrize("axis", [Axis("y"), Axis("y", is_log=True)])
def test_nothing_that_is_measured_breaks_a_plot(y: list[float | None], axis: Axis) -> None:
    drawn = plot("t", [Series("line", "n", list(range(len(y))), y)], Axis("x"), axis)
    ElementTree.fromstring(f"<p>{drawn.svg}</p>")
    assert "nan" not in drawn.svg and "inf" not in drawn.svg


def test_labels_beside_each_other_do_not_touch() -> None:
    """12 pixels of text are 7 a digit."""
    axes = [
        Axis("", low=DAY, high=DAY + days * 86_400.0, is_time=True)
        for days in (0.125, 0.5, 2, 7, 28)
    ]
    axes += [Axis("", low=1, high=high, is_log=True) for high in (6, 60, 1e4, 1e6)]
    assert ">00:00<" in plot("t", [], axes[2], Axis("y")).svg  # beside hours no name of a day
    for axis in axes:
        drawn = plot("t", [], axis, Axis("y"))
        found = re.findall(r'<text x="([\d.]+)%" y="\d+" class="(mid|end)">([^<]+)<', drawn.svg)
        # of a drawing that a phone shows 280 pixels wide
        labels = [(2.8 * float(x) - (3.5 * len(t) if at == "end" else 0), t) for x, at, t in found]
        assert len(labels) >= 2
        for (x, one), (next_x, other) in pairwise(labels):
            assert next_x - x > 7.0 * (len(one) + len(other)) / 2, (axis, labels)
