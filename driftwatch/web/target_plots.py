"""The plots of a target: lengths over the baseline's, and four signals over one time axis. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

import polars as pl

from driftwatch.collect.schema import TIME
from driftwatch.incidents.incident import Incident
from driftwatch.model import Finding
from driftwatch.notify.shares import Shares, shares
from driftwatch.numbers import clean, count, figure, is_as_before, seconds, times, tokens
from driftwatch.plots.plot import Panel, Plot, Series, panels, plot
from driftwatch.plots.scales import Axis
from driftwatch.signals.minutes import MINUTE_SCHEMA

MOST_SPANS = 240
_WIDTHS = (60, 120, 300, 600, 1800, 3600, 7200, 21_600)
_BLOCK, _LEAST_BLOCKS = 600, 6
_BASELINE = 4  # the grey


class Signal(NamedTuple):
    """A signal: what is counted in a minute, over what; and its name and unit on a plot."""

    total: str
    over: str
    unit: str
    word: str


# The first of two of one place is drawn where it is known.
SIGNALS: Mapping[str, Signal] = {
    "tokens_per_second_per_gpu": Signal(
        "generation_tokens_total", "gpu_seconds", "tokens/s/GPU", "throughput"
    ),
    "generation_tokens_per_second": Signal(
        "generation_tokens_total", "duration_seconds", "tokens/s", "throughput"
    ),
    "requests_per_forward_pass": Signal("outputs", "forward_passes", "requests a step", "batch"),
    "batch_assembly_wait_seconds": Signal(
        "queue_seconds_sum", "queue_seconds_count", "wait in the queue, s", "wait"
    ),
    "prompt_tokens_mean": Signal("prompt_tokens_sum", "prompt_tokens_count", "tokens", "prompts"),
    "generation_tokens_mean": Signal(
        "generation_tokens_sum", "generation_tokens_count", "tokens", "generations"
    ),
}
_LENGTHS = ("prompt_tokens_mean", "generation_tokens_mean")
_FLAGS = ("restarted", "configuration_changed", "release_changed")
_KNOBS = ("max_num_seqs", "max_num_batched_tokens", "kv_cache_tokens")
_MADE = ("outputs", "gpu_seconds")
_COLUMNS = (
    *("end", "scrapes", "gpu_count", "itl_seconds_count", "ttft_seconds_count"),
    *("duration_seconds", *sorted({n for s in SIGNALS.values() for n in s[:2]} - {*_MADE})),
)
# What signals are computed from, and besides what the page shows of a span.
SIGNAL_SCHEMA = {name: MINUTE_SCHEMA[name] for name in dict.fromkeys(_COLUMNS)}
SCHEMA = SIGNAL_SCHEMA | {name: MINUTE_SCHEMA[name] for name in (*_FLAGS, *_KNOBS)}


def width_of(since: datetime, until: datetime, rows: pl.DataFrame) -> int:
    """Seconds of a span: at most :data:`MOST_SPANS` of them, and none shorter than a row."""
    whole = (until - since).total_seconds()
    longest = rows["seconds"].max()
    least = max(whole / MOST_SPANS, float(longest) if isinstance(longest, float) else 60.0)
    return next((width for width in _WIDTHS if width >= least), _WIDTHS[-1])


def spans(rows: pl.DataFrame, since: datetime, until: datetime, width: int) -> pl.DataFrame:
    """``end`` and :data:`SIGNALS` of every span of the axis, NULL where it is unknown.

    ``rows``: :data:`SIGNAL_SCHEMA` at least; ``width``: of a span, in seconds.
    """
    step = timedelta(seconds=width)
    first = _span_end(pl.lit(since + timedelta(microseconds=1), dtype=TIME), width)
    last = _span_end(pl.lit(until, dtype=TIME), width)
    ends = pl.select(pl.datetime_range(first, last, step, eager=False).cast(TIME).alias("end"))
    return ends.join(_means(rows, width), on="end", how="left", maintain_order="left")


def usual(rows: pl.DataFrame) -> dict[str, tuple[float, float]]:
    """Signal → what nine in ten of its ten-minute means lie between; too few: it is not there.

    ``rows``: of a baseline's window, :data:`SIGNAL_SCHEMA` at least.
    """
    blocks, bands = _means(rows, _BLOCK), {}
    for name in SIGNALS:
        values = blocks[name].drop_nulls()
        low, high = values.quantile(0.05, "linear"), values.quantile(0.95, "linear")
        if len(values) >= _LEAST_BLOCKS and low is not None and high is not None:
            bands[name] = (low, high)
    return bands


def changes(rows: pl.DataFrame) -> list[tuple[datetime, str]]:
    """When an engine restarted, a knob or the release changed; what, in words.

    ``rows``: :data:`SCHEMA` at least, those of one server next to each other and in order.
    """
    own = ["instance", "engine"] if "instance" in rows.columns else []
    before = pl.col(_KNOBS).fill_null(strategy="forward").shift(1)
    before = (before.over(own) if own else before).name.suffix("_before")
    marked = rows.with_columns(before).filter(
        pl.any_horizontal(pl.col(name).fill_null(False) for name in _FLAGS)
    )
    found = [(row["end"], ", ".join(_words(row))) for row in marked.iter_rows(named=True)]
    return sorted(found)


def _words(row: Mapping[str, Any]) -> list[str]:
    words = ["restart"] if row["restarted"] else []
    moved = [
        f"{name} {row[f'{name}_before']:.0f} → {row[name]:.0f}"
        for name in _KNOBS
        if row[name] is not None and row[f"{name}_before"] not in (None, row[name])
    ]
    if row["configuration_changed"]:
        words += moved or ["settings changed"]
    return words + (["release changed"] if row["release_changed"] else [])


def _means(rows: pl.DataFrame, width: int) -> pl.DataFrame:
    counted = rows.with_columns(
        end=_span_end(pl.col("end"), width),
        outputs=pl.col("itl_seconds_count") + pl.col("ttft_seconds_count"),
        gpu_seconds=pl.col("duration_seconds") * pl.col("gpu_count"),
    )
    means = {name: _mean_of(one.total, one.over) for name, one in SIGNALS.items()}
    return counted.group_by("end").agg(**means).sort("end")


def _mean_of(total: str, over: str) -> pl.Expr:
    """A sum over a sum, of the rows in which both are known; NULL where nothing was counted."""
    both = pl.col(total).is_not_null() & pl.col(over).is_not_null()
    n = pl.col(over).filter(both).sum()
    return pl.when(n > 0).then(pl.col(total).filter(both).sum() / n)


def _span_end(end: pl.Expr, width: int) -> pl.Expr:
    begins = (end - pl.duration(microseconds=1)).dt.truncate(f"{width}s")
    return (begins + pl.duration(seconds=width)).cast(TIME)


def signal_plot(
    title: str,
    rows: pl.DataFrame,
    span: tuple[datetime, datetime],
    bands: Mapping[str, tuple[float, float]],
    around: Iterable[Series],
) -> Plot:
    """Four plots above one time axis: throughput, batch, wait, lengths.

    ``bands``: of the baseline; ``around``: incidents and changes.
    """
    width = width_of(*span, rows)
    table = spans(rows, *span, width)
    ends = (span[0].timestamp(), span[1].timestamp())
    x = [at.timestamp() - width / 2 for at in table["end"]]

    def line(name: str, label: str, colour: int) -> Series:
        return Series("line", label, x, table[name].to_list(), colour=colour)

    def band(name: str, label: str = "baseline, nine in ten") -> Iterator[Series]:
        if name in bands:
            low, high = bands[name]
            yield Series("band", label, ends, [high] * 2, [low] * 2, colour=_BASELINE)

    rates = list(SIGNALS)[:2]
    drawn = next((one for one in rates if table[one].is_not_null().any()), rates[0])
    several = [
        Panel(Axis(SIGNALS[name].unit), [*band(name), line(name, "", 0)])
        for name in (drawn, "requests_per_forward_pass", "batch_assembly_wait_seconds")
    ]
    lines = [line(name, SIGNALS[name].word, at) for at, name in enumerate(_LENGTHS)]
    grounds = [one for name in _LENGTHS for one in band(name)]
    several.append(Panel(Axis("tokens of a request, mean"), [*grounds, *lines]))
    axis = Axis("", low=ends[0], high=ends[1], is_time=True)
    return panels(title, several, axis, around=list(around))


def signal_title(finding: Finding | None, bands: Mapping[str, tuple[float, float]]) -> str:
    """``Batch 67.0 requests a step in the last 10 min, below the baseline's 90 to 99``."""
    if finding is None:
        return "The last 10 min are unknown"
    told = []
    for name, write in (
        ("tokens_per_second_per_gpu", figure),
        ("requests_per_forward_pass", figure),
        ("batch_assembly_wait_seconds", seconds),
    ):
        value, signal = finding.evidence.get(name), SIGNALS[name]
        if value is None:
            continue
        unit = "" if write is seconds else f" {signal.unit}"
        text = f"{signal.word} {write(value)}{unit}"
        if name in bands:
            low, high = bands[name]
            where = "below" if value < low else "above" if value > high else "within"
            text += f", {where} the baseline's {write(low)} to {write(high)}"
        told.append(text)
    return f"Last 10 min: {'; '.join(told)}" if told else "The last 10 min are unknown"


def event_ticks(
    events: Iterable[tuple[datetime, str]], first: float, last: float, label: str, *, colour: int
) -> Iterator[Series]:
    """Events as ticks with their names; those that would touch are one."""
    near, ticks = 0.006 * (last - first), dict[float, list[str]]()
    for moment, what in events:
        at = moment.timestamp()
        latest = next(reversed(ticks), None)
        if latest is not None and at <= latest + near:
            ticks[latest].append(what)
        elif first <= at <= last:
            ticks[at] = [what]
    if ticks:
        names = [", ".join(clean(one) for one in dict.fromkeys(some)) for some in ticks.values()]
        yield Series("ticks", label, [*ticks], names=names, colour=colour)


def incident_spans(incidents: Iterable[Incident], first: float, last: float) -> Iterator[Series]:
    """Incidents as one hatched ground over an axis; what would touch is one."""
    touching = 0.012 * (last - first)
    pairs: list[list[float]] = []
    for one in sorted(incidents, key=lambda one: one.started_at):
        end = min(last, one.resolved_at.timestamp() if one.resolved_at else last)
        start = max(one.started_at.timestamp(), first)
        if pairs and start <= pairs[-1][1] + touching:
            pairs[-1][1] = max(pairs[-1][1], end)
        elif end > first and start < last:
            pairs.append([start, end])
    if pairs:
        yield Series("hatch", "incident", [a for a, _ in pairs], [b for _, b in pairs], colour=1)


STEMS = {"prompt_tokens": "Prompts", "generation_tokens": "Generations"}


def length_plots(finding: Finding) -> Iterator[Plot]:
    """Each length whose histogram is known, over the baseline's."""
    for stem in STEMS:
        both = shares(finding.histograms, stem)
        alone = _cells(finding.histograms, stem) if both is None else None
        if both is not None:
            yield _shares(
                _length_text(finding, stem, both), stem, both.edges, both.now, both.before
            )
        elif alone is not None:
            yield _shares(_length_text(finding, stem, None), stem, *alone, None)


_Cells = tuple[tuple[float, ...], tuple[float, ...]]


def _cells(histograms: Mapping[str, Sequence[float]], stem: str) -> _Cells | None:
    """Edges and shares of the window alone."""
    counts, edges = (histograms.get(f"{stem}_{part}") or () for part in ("buckets", "edges"))
    if len(edges) < 3 or len(counts) != len(edges) or not counts[-1]:
        return None
    now = tuple((b - a) / counts[-1] for a, b in pairwise([0.0, *counts]))
    return tuple(edges), now


def _length_text(finding: Finding, stem: str, both: Shares | None) -> str:
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


def _shares(
    title: str,
    stem: str,
    upper: Sequence[float],
    now: Sequence[float],
    before: Sequence[float] | None,
) -> Plot:
    """Shares over log tokens: the baseline as grey steps, now as a line."""
    finite = [edge for edge in upper if edge != inf]
    # the first cell begins somewhere above 0, the last one has no end: as wide as its neighbour
    first = finite[0] ** 2 / finite[1] if len(finite) > 1 else finite[0] / 2
    last = finite[-1] ** 2 / finite[-2] if len(finite) > 1 else 2 * finite[-1]
    edges = [first, *finite, *([last] if len(finite) < len(upper) else [])]
    percent = [100 * share for share in now]
    series = [Series("steps", "ten minutes at the end", edges, [*percent, percent[-1]])]
    if before is not None:
        corners = [x for low, high in pairwise(edges) for x in (low, high)]
        heights = [100 * share for share in before for _ in range(2)]
        low = [0.0] * len(heights)
        series.insert(0, Series("band", "baseline", corners, heights, low, colour=_BASELINE))
    word = stem.split("_")[0]
    across = Axis(f"{word} tokens of a request, log scale", edges[0], edges[-1], is_log=True)
    return plot(title, series, across, Axis("share of requests, %"))
