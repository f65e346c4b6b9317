"""Plots of the page of a target: lengths over the baseline's, signals over time. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from math import inf
from typing import Any

from driftwatch.model import Finding
from driftwatch.notify.shares import Shares, shares
from driftwatch.numbers import clean, count, figure, is_as_before, seconds, times, tokens
from driftwatch.plots.plot import Plot, Series, plot, thinned
from driftwatch.plots.scales import Axis
from driftwatch.web.target_minutes import Signals


@dataclass(frozen=True, slots=True)
class LengthShares:
    """How long requests are, over the baseline."""

    length: str  # prompt_tokens or generation_tokens
    text: str  # what moved, in a sentence
    edges_tokens: tuple[float | None, ...]  # upper edges; None = no upper edge
    share: tuple[float, ...]  # of requests in each cell, of 10 min
    baseline_share: tuple[float, ...] | None


STEMS = {"prompt_tokens": "Prompts", "generation_tokens": "Generations"}


def length_shares(finding: Finding) -> Iterator[LengthShares]:
    """Each length whose histogram is known."""
    for stem in STEMS:
        both = shares(finding.histograms, stem)
        alone = _cells(finding.histograms, stem) if both is None else None
        if both is None and alone is None:
            continue
        edges, now = alone or (both.edges, both.now)  # type: ignore[union-attr]
        yield LengthShares(
            length=stem,
            text=_text(finding, stem, both),
            edges_tokens=tuple(None if edge == inf else edge for edge in edges),
            share=now,
            baseline_share=None if both is None else both.before,
        )


_Cells = tuple[tuple[float, ...], tuple[float, ...]]


def _cells(histograms: Mapping[str, Sequence[float]], stem: str) -> _Cells | None:
    """Edges and shares of the window alone."""
    counts, edges = (histograms.get(f"{stem}_{part}") or () for part in ("buckets", "edges"))
    if len(edges) < 3 or len(counts) != len(edges) or not counts[-1]:
        return None
    now = tuple((b - a) / counts[-1] for a, b in pairwise([0.0, *counts]))
    return tuple(edges), now


def _text(finding: Finding, stem: str, both: Shares | None) -> str:
    """``Prompts ×2.3 longer than in the baseline: mean 512 → 1,200 tokens, n 87,000``."""
    who, now = STEMS[stem], finding.evidence.get(f"{stem}_mean")
    before = (finding.reference or {}).get("values", {}).get(f"{stem}_mean")
    if now is None:
        return f"{who}: mean unknown"
    if both is None or before is None:
        return f"{who}: mean {tokens(now)} tokens; no baseline to compare with"
    n = f"n {count(both.n_now)}"
    if is_as_before(now / before):
        return f"{who} as long as in the baseline: mean {tokens(now)} tokens, {n}"
    word = "longer than" if now > before else "as long as"
    moved = f"mean {tokens(before)} → {tokens(now)} tokens, {n}"
    return f"{who} {times(now / before)} {word} in the baseline: {moved}"


_BASELINE = 4  # the grey
_PER_SECOND = "tokens_per_second_per_gpu"
# signal → what it is called, its unit on the axis, how a number of it is written
WORDS = {
    _PER_SECOND: ("Throughput", "tokens/s/GPU", figure),
    "generation_tokens_per_second": ("Throughput", "tokens/s", figure),
    "requests_per_forward_pass": ("Batch", "requests a step", figure),
    "batch_assembly_wait_seconds": ("Wait in the queue", "seconds", seconds),
}
_LENGTHS = {"prompt_tokens_mean": "prompts", "generation_tokens_mean": "generations"}


def target_plots(view: Any) -> Mapping[str, Plot]:
    """By name: ``prompt_tokens``, ``generation_tokens``, one a signal, ``lengths``."""
    plots = {one.length: _shares(one) for one in view.lengths}
    if view.signals is not None:
        plots |= _signals(view.signals, view.since, view.until)
    return plots


def _plotted(signals: Signals) -> tuple[str, ...]:
    """Signals with a plot of their own: throughput of a GPU where GPUs are counted."""
    has_gpus = any(one[_PER_SECOND] is not None for one in signals.spans)
    other = "generation_tokens_per_second" if has_gpus else _PER_SECOND
    return tuple(name for name in WORDS if name != other)


def _shares(one: LengthShares) -> Plot:
    """Shares over log tokens: the baseline as grey steps, now as a line."""
    finite = [edge for edge in one.edges_tokens if edge is not None]
    # the first cell begins somewhere above 0, the last one has no end: as wide as its neighbour
    first = finite[0] ** 2 / finite[1] if len(finite) > 1 else finite[0] / 2
    last = finite[-1] ** 2 / finite[-2] if len(finite) > 1 else 2 * finite[-1]
    edges = [first, *finite, *([last] if None in one.edges_tokens else [])]
    percent = [100 * share for share in one.share]
    series = []
    if one.baseline_share is not None:
        grey = [100 * share for share in one.baseline_share]
        corners = [x for low, high in pairwise(edges) for x in (low, high)]
        heights = [y for y in grey for _ in range(2)]
        low = [0.0] * len(heights)
        series.append(Series("band", "baseline", corners, heights, low, colour=_BASELINE))
    series.append(Series("steps", "ten minutes at the end", edges, [*percent, percent[-1]]))
    word = one.length.split("_")[0]
    return plot(
        one.text,
        series,
        Axis(f"{word} tokens of a request, log scale", edges[0], edges[-1], is_log=True),
        Axis("share of requests, %"),
    )


def _signals(signals: Signals, since: datetime, until: datetime) -> dict[str, Plot]:
    axis = Axis("UTC", since.timestamp(), until.timestamp(), is_time=True)
    around = tuple(_around(signals, since, until))
    plots = {}
    for name in _plotted(signals):
        word, unit, _ = WORDS[name]
        elements = [*_usual(signals, name, since, until), *around, _line(signals, name, word, 0)]
        plots[name] = plot(_title(signals, name), elements, axis, Axis(unit))
    lines = [_line(signals, name, word, at) for at, (name, word) in enumerate(_LENGTHS.items())]
    bands = [one for name in _LENGTHS for one in _usual(signals, name, since, until)]
    others = [Series("band", "", one.x, one.y, one.low, colour=_BASELINE) for one in bands[1:]]
    plots["lengths"] = plot(
        _lengths_title(signals),
        [*bands[:1], *others, *around, *(thinned(one, _POINTS) for one in lines)],
        axis,
        Axis("tokens"),
    )
    return plots


_POINTS = 120  # of each line where there are two
_TOUCHING = 0.012  # of the axis: nearer than two stripes of a hatch are


def _title(signals: Signals, name: str) -> str:
    """``Batch: 67.0 requests a step in the last 10 min, below the baseline's 90 to 99``."""
    word, unit, write = WORDS[name]
    last = signals.recent.get(name)
    if last is None:
        return f"{word}: unknown in the last 10 min"
    title = f"{word}: {write(last)}{'' if unit == 'seconds' else f' {unit}'} in the last 10 min"
    if name not in signals.usual:
        return title
    low, high = signals.usual[name]
    where = "below" if last < low else "above" if last > high else "within"
    return f"{title}, {where} the baseline's {write(low)} to {write(high)}"


def _lengths_title(signals: Signals) -> str:
    values = {word: signals.recent.get(name) for name, word in _LENGTHS.items()}
    texts = (f"{w} {'unknown' if v is None else f'{tokens(v)} tokens'}" for w, v in values.items())
    return f"Lengths, mean of the last 10 min: {', '.join(texts)}"


def _usual(signals: Signals, name: str, since: datetime, until: datetime) -> Iterator[Series]:
    span = [since.timestamp(), until.timestamp()]
    if name in signals.usual:
        low, high = signals.usual[name]
        yield Series("band", "baseline", span, [high] * 2, [low] * 2, colour=_BASELINE)


def _line(signals: Signals, name: str, word: str, colour: int) -> Series:
    half = signals.span_seconds / 2
    x = [one["end"].timestamp() - half for one in signals.spans]
    return Series("line", word.lower(), x, [one[name] for one in signals.spans], colour=colour)


def _around(signals: Signals, since: datetime, until: datetime) -> Iterator[Series]:
    """Episodes as one hatched ground, and what changed as ticks; what would touch is one."""
    first, last = since.timestamp(), until.timestamp()
    near = _TOUCHING * (last - first)
    pairs: list[list[float]] = []
    for one in sorted(signals.episodes, key=lambda one: one["started_at"]):
        end = min(last, one["resolved_at"].timestamp() if one["resolved_at"] else last)
        start = max(one["started_at"].timestamp(), first)
        if pairs and start <= pairs[-1][1] + near:
            pairs[-1][1] = max(pairs[-1][1], end)
        else:
            pairs.append([start, end])
    if pairs:
        yield Series("hatch", "incident", [a for a, _ in pairs], [b for _, b in pairs], colour=1)
    ticks: dict[float, str] = {}
    for changed_at, what in signals.changes:
        at = changed_at.timestamp()
        latest = next(reversed(ticks), None)
        if latest is not None and at <= latest + near:
            ticks[latest] += f", {clean(what)}"
        else:
            ticks[at] = clean(what)
    if ticks:
        yield Series("ticks", "restart or change", [*ticks], names=[*ticks.values()], colour=3)
