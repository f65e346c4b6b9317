"""The plot of an advice: what is in it, who can read it, the same bytes twice."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from advice_stories import no_knob, refused, story
from matplotlib.colors import to_hex

from driftwatch.errors import NoVerdict
from driftwatch.report.advice_plot import (
    alt_text,
    axis_of,
    draw_advice,
    plot_advice,
    rows,
    title_of,
)

_SVG = "{http://www.w3.org/2000/svg}"


def test_two_panels_with_today_hollow_and_the_advised_value_filled() -> None:
    rate, late, *_ = plot_advice(story()).axes
    white = [
        line
        for panel in (rate, late)
        for line in panel.lines
        if line.get_markersize() == 9 and to_hex(line.get_markerfacecolor()) == "#ffffff"
    ]
    filled = [line for panel in (rate, late) for line in panel.lines if line.get_markersize() == 9]
    assert {tuple(line.get_xdata()) for line in white} == {(0,)}
    assert {tuple(line.get_xdata()) for line in filled} == {(0,), (2,)}
    assert late.get_yscale() == "log"
    assert rate.get_ylim()[0] == 0
    assert [tick.get_text() for tick in late.get_xticklabels()] == [
        "512\nnow",
        "1024",
        "2048\nadvised",
        "4096",
    ]
    said = [text.get_text() for panel in (rate, late) for text in panel.texts]
    assert {"now 15.0", "advised 19.0", "target TTFT 1.0 s", "target TPOT 50 ms"} <= set(said)
    offered = [line for line in rate.lines if line.get_linestyle() == "--"]
    assert [float(line.get_ydata()[0]) for line in offered] == [16.5]


def test_the_band_is_that_of_the_variants() -> None:
    rate, *_ = plot_advice(story()).axes
    corners = rate.collections[0].get_paths()[0].vertices
    at_advised = sorted({float(y) for x, y in corners if x == 2})
    assert at_advised == [17.9, 19.6]


def test_a_screen_reader_gets_the_finding_and_every_number() -> None:
    drawn = ElementTree.fromstring(draw_advice(story(), name="rag-8b-3").decode())
    said = drawn.find(f"{_SVG}title"), drawn.find(f"{_SVG}desc")
    assert said[0] is not None
    brings = story().recommendation.effect[0]
    assert said[0].text == f"rag-8b-3: max_num_batched_tokens 512 → 2048: {brings}"
    assert said[1] is not None
    assert said[1].text == alt_text(story())
    for row in rows(story()):
        assert f"{row[0]}: capacity {row[2]} requests/s, TTFT p95 {row[3]}" in alt_text(story())
    assert not list(drawn.iter(f"{_SVG}script"))


def test_what_is_not_known_or_refused_is_said_and_not_drawn_as_zero() -> None:
    assert [row[3] for row in rows(no_knob())] == ["?", "?", ""]
    assert rows(no_knob())[2][1] == "refused"
    assert title_of(no_knob()).startswith("no knob helps: the KV cache is full")
    late = plot_advice(no_knob()).axes[1]
    assert "TTFT p95" not in late.get_legend_handles_labels()[1]
    with pytest.raises(NoVerdict, match="nothing was replayed"):
        draw_advice(refused())


def test_an_unknown_value_is_a_gap_in_its_line() -> None:
    first, second, third, last, *_ = story().candidates
    gap = replace(
        second, ttft_p95_seconds=None, capacity_requests_per_second=None, in_target_ratio=None
    )
    advice = replace(story(), candidates=(first, gap, third, last))
    rate, late, *_ = plot_advice(advice).axes
    # overloaded today, so it has no TTFT either
    for panel, today in ((rate, False), (late, True)):
        line = panel.lines[0]
        assert [math.isnan(y) for y in line.get_ydata()] == [today, True, False, False]
    assert len(rate.collections[0].get_paths()) == 2  # the band has the gap as well


def test_the_axis_is_the_advised_knob_and_else_the_one_swept_most() -> None:
    axis = axis_of(story())
    assert axis is not None
    assert axis.knobs == ("max_num_batched_tokens",)
    assert [point.values[0] for point in axis.points] == [512, 1024, 2048, 4096]
    assert {tuple(c.knobs) for c in axis.others} == {("max_num_seqs",)}
    fewer = axis_of(no_knob())
    assert fewer is not None
    assert fewer.knobs == ("max_num_seqs",)
    short = axis_of(replace(story(), candidates=(story().candidates[0],)))
    assert short is not None
    assert [(p.values[0], p.advised) for p in short.points] == [(512, False), (2048, True)]
    both = replace(
        story(),
        candidates=(
            *story().candidates,
            two := replace(
                story().candidates[2], knobs={"max_num_batched_tokens": 2048, "max_num_seqs": 512}
            ),
        ),
        advised=two,
    )
    pair = axis_of(both)
    assert pair is not None
    assert pair.knobs == ("max_num_batched_tokens", "max_num_seqs")
    assert [point.values for point in pair.points if point.advised] == [(2048, 512)]
    assert [point.values for point in pair.points if point.now] == [(512, 256)]


def test_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    script = (
        "import sys; from advice_stories import story;"
        "from driftwatch.report.advice_plot import draw_advice;"
        "sys.stdout.buffer.write(draw_advice(story(), name='x'))"
    )
    here = Path(__file__).parent
    env = {**os.environ, "PYTHONPATH": str(here), "PYTHONHASHSEED": "7"}
    other = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, cwd=here, env=env
    ).stdout
    assert other == draw_advice(story(), name="x")
    png = draw_advice(story(), "png")
    assert png.startswith(b"\x89PNG")
