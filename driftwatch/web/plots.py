"""Plots: the signals of a server, what the rule of an incident reads, lengths. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from itertools import pairwise
from math import ceil, inf

import polars as pl

from driftwatch.incidents.incident import Incident
from driftwatch.minutes.engine import STUCK_SECONDS
from driftwatch.model import Finding, Slo
from driftwatch.notify.explanation import is_stuck
from driftwatch.notify.shares import LengthShares, shares
from driftwatch.numbers import count, duration, figure, is_as_before, moment, percent, times, tokens
from driftwatch.plots.plot import Panel, Plot, Series, panel_plot, plot
from driftwatch.plots.scales import Axis
from driftwatch.web.signals import (
    LATENCIES,
    LENGTHS,
    RATES,
    SIGNALS,
    SPEED,
    Change,
    changes,
    missed,
    stretches,
    width_of,
)

_BAND = "baseline's usual range (9 of 10)"
_NO_TOKENS = "No tokens for"
GREY, _MOST_PANELS = 4, 3
_CLOCK_FELL = 0.95  # of its highest: less is the usual change with the load
_LEAST_SECONDS = 300  # between two points of an incident's plot: a minute has few requests


def signal_plot(
    title: str,
    rows: pl.DataFrame,
    span: tuple[datetime, datetime],
    bands: Mapping[str, tuple[float, float]],
    around: Iterable[Series],
) -> tuple[Plot, list[str]]:
    """Throughput, speed, requests, requests a step, wait and lengths of a server above one time
    axis, and the names of those that the whole range lacks, but the speed, whose gaps have a
    reason.

    ``bands``: of the baseline; ``around``: incidents and changes.
    """
    width = width_of(*span, rows)
    table = stretches(rows, *span, width)
    every = ([_rate(table)], [SPEED], *([name] for name in list(SIGNALS)[2:5]), LENGTHS)
    drawn = [some for some in every if any(table[one].is_not_null().any() for one in some)]
    words = {name: one.word or one.unit for name, one in SIGNALS.items()}
    lacking = [some for some in every if some not in (*drawn, [SPEED])]
    unknown = [" and ".join(words[name] for name in some) for some in lacking]
    several = [_panel(names, table, width, span, bands) for names in drawn or every]
    return panel_plot(title, several, _time_axis(span, width), shared=list(around)), unknown


def _rate(table: pl.DataFrame) -> str:
    return next((one for one in RATES if table[one].is_not_null().any()), RATES[1])


def _time_axis(span: tuple[datetime, datetime], width: int) -> Axis:
    low, high = (at.timestamp() for at in span)
    return Axis(f"UTC; a point every {duration(width)}", low=low, high=high, is_time=True)


def _panel(
    names: Sequence[str],
    table: pl.DataFrame,
    width: int,
    span: tuple[datetime, datetime],
    bands: Mapping[str, tuple[float, float]],
    whose: str = "",
    during: pl.DataFrame | None = None,
) -> Panel:
    """One panel of a signal, or of both lengths. ``during``: the part of the table that must not
    be flat beside a peak outside it; its numbers give the scale.
    """
    x = [at.timestamp() - width / 2 for at in table["end"]]
    ends, series = [at.timestamp() for at in span], list[Series]()
    if names[0] == SPEED:
        values = [None if one is None else 100 * one for one in table[SPEED]]
        level = Series("level", "speed of its baseline", y=[100.0], colour=GREY)
        most = max((one for one in values if one is not None), default=0.0)
        axis = Axis(f"speed{whose}, % of its baseline", high=max(125.0, 25 * ceil(most / 25)))
        return Panel(axis, [level, Series("line", "", x, values)])
    for name in names:
        if name in bands:
            low, high = bands[name]
            series.append(Series("band", _BAND, ends, [high] * 2, [low] * 2, colour=GREY))
    for colour, name in enumerate(names):
        label = SIGNALS[name].word if len(names) > 1 else ""
        series.append(Series("line", label, x, table[name].to_list(), colour=colour))
    unit = "tokens of a request, mean" if len(names) > 1 else SIGNALS[names[0]].unit
    most = max((one for name in names for one in table[name] if one is not None), default=0.0)
    own = most if during is None else during.select(pl.max_horizontal(pl.col(names).max())).item()
    if own and own < most / 2:
        unit += f"; axis cut at {figure(1.2 * own, 2)}, {figure(most)} outside the incident"
        return Panel(Axis(unit, high=1.2 * own), series)
    return Panel(Axis(unit), series)


def signal_title(finding: Finding | None, end: datetime, today: date) -> str:
    """``10 min to 02:56 UTC: 67.0 requests a step; …``, or since when it hangs.

    ``end``: of the ten minutes of the finding.
    """
    evidence, parts = {} if finding is None else finding.evidence, []
    if is_stuck(evidence):
        began = end - timedelta(seconds=evidence["seconds_since_last_token"])
        return f"Hung since {moment(began, today)}: no tokens up to {moment(end, today)}"
    for name in ("tokens_per_second_per_gpu", SPEED, *list(SIGNALS)[2:5]):
        value, one = evidence.get(name), SIGNALS[name]
        if value is not None:
            of = " of its baseline's" if name == SPEED else ""
            parts.append(f"{one.word} {one.write(value)}{of}".lstrip())
    return f"10 min to {moment(end, today)}: {'; '.join(parts) or 'unknown'}"


# subject of a rule → its signals, their worst point in words, parts of the names of columns that
# its condition reads
_ABOUT: Mapping[str, tuple[Sequence[str], str, tuple[str, ...]]] = {
    "missed": ((), "", ("target_missed", "slo_missed", "in_target")),
    "wait": (
        ("batch_assembly_wait_seconds",),
        "mean wait in the queue {high}",
        ("wait", "queue", "rejected", "deferred", "limit_full", "limit_binding"),
    ),
    "speed": (
        (SPEED,),
        "speed at equal load {low} of the baseline's",
        ("slower", "speed", "creeps", "drafts"),
    ),
    "tokens": (
        RATES,
        "throughput {low}",
        ("last_token", "tokens_per_second", "gpus_lost", "given_up", "gauges_live"),
    ),
    "lengths": (
        LENGTHS,
        "{word} {low} to {high}",
        ("lengths", "tokens_drift", "phase_mix", "tokens_mean", "prefix_hits"),
    ),
}


def incident_plot(
    rows: pl.DataFrame,
    slo: Slo | None,
    incident: Incident,
    columns: Collection[str],
    sent_at: datetime | None,
) -> Plot | None:
    """What an incident's rule reads, over its time. Where none of that was measured: missed
    requests, else wait, else throughput; None where these are unknown, too.

    ``rows``: ``STORED_SCHEMA``, instance, engine and ``seconds``, by server and time; ``columns``:
    what its rule reads; ``sent_at``: when a receiver took its page, None = none did. The title
    names the worst point that is drawn.
    """
    first, last = rows["end"].min(), rows["end"].max()
    if not isinstance(first, datetime) or not isinstance(last, datetime):
        return None
    span = (first - timedelta(minutes=1), last)
    width = width_of(*span, rows, _LEAST_SECONDS)
    table = stretches(rows, *span, width)
    table = table.join(
        missed(rows, width, slo).drop(SPEED), on="end", how="left", maintain_order="left"
    )
    begins = pl.col("end") - timedelta(seconds=width)
    ended = incident.last_true_at if incident.resolved_at else last
    during = table.filter(pl.col("end") > incident.started_at, begins < ended)
    servers = rows.n_unique(["instance", "engine"])
    in_it = rows.filter(pl.col("end") > incident.started_at, pl.col("end") <= ended)
    if in_it.is_empty():
        return None
    hung = in_it["seconds_since_last_token"].max()
    parts = ((what, some) for what, (_, _, some) in _ABOUT.items())
    wanted = [what for what, some in parts if any(p in c for p in some for c in columns)]
    wanted, panels, worst, others = wanted[:_MOST_PANELS], list[Panel](), list[str](), list[str]()
    for what in (*wanted, *(one for one in ("missed", "wait", "tokens") if one not in wanted)):
        if panels and what not in wanted:
            break
        if what == "missed":
            for panel, share in _missed_panels(table, during, width, slo, servers):
                panels.append(panel)
                worst.append(share)
        elif (finding := _worst(what, during, hung)) is not None:
            if what == "speed":
                finding += _fallen_clock(table["gpu_sm_clock_hertz"], during["gpu_sm_clock_hertz"])
            names = [_rate(table)] if what == "tokens" else _ABOUT[what][0]
            panels.append(_panel(names, table, width, span, {}, " of the slowest", during))
            is_range = what == "lengths" or finding.startswith(_NO_TOKENS)
            (others if is_range else worst).append(finding)
    if not panels:
        return None
    word = "it fired, and nobody got it" if sent_at is None else f"{incident.severity} sent"
    at = [(sent_at or fired, word)] if (fired := incident.firing_at) is not None else []
    around = [*marks(span, [incident], changes(rows), at)]
    title = ". ".join(([f"Worst {duration(width)}: {'; '.join(worst)}"] if worst else []) + others)
    return panel_plot(title, panels, _time_axis(span, width), shared=around)


def _missed_panels(
    table: pl.DataFrame, during: pl.DataFrame, width: int, slo: Slo | None, servers: int
) -> Iterator[tuple[Panel, str]]:
    """Each latency that missed its target too often, else each that missed it at all."""
    worst = {name: during[name].max() for name in LATENCIES}
    most = {name: share for name, share in worst.items() if isinstance(share, float) and share > 0}
    allowed = 1.0 if slo is None else 1 - slo.share
    on = f" on {servers} servers" if servers > 1 else ""
    x = [at.timestamp() - width / 2 for at in table["end"]]
    for name in [name for name, worst in most.items() if worst > allowed] or most:
        target = f"{LATENCIES[name]} {getattr(slo, f'{name}_seconds'):g} s"
        level = Series("level", "the target allows", y=[100 * allowed], colour=2)
        line = Series("line", "", x, (100 * table[name]).to_list())
        panel = Panel(Axis(f"requests that miss {target}, %", high=100.0), [level, line])
        yield panel, f"{percent(most[name])} of requests{on} missed {target}"


def _worst(what: str, during: pl.DataFrame, hung: object) -> str | None:
    """The worst point of a subject's signals in words; None: they are unknown.

    ``hung``: the longest time without a token although requests are there, in seconds.
    """
    if what == "tokens" and isinstance(hung, float) and hung >= STUCK_SECONDS:
        return f"{_NO_TOKENS} {duration(hung)}"
    names, words, _ = _ABOUT[what]
    ends = [(SIGNALS[one], during[one].min(), during[one].max()) for one in names]
    found = [
        words.format(word=one.word, low=one.write(low), high=one.write(high))
        for one, low, high in ends
        if isinstance(low, float) and isinstance(high, float)
    ]
    if what == "lengths" and found:
        return f"Tokens of a request: {', '.join(found)}"
    return "; ".join(found[:1] if what == "tokens" else found) or None


def _fallen_clock(every: pl.Series, during: pl.Series) -> str:
    """``; SM clock 1,520 MHz``, its lowest; empty where it did not fall, or is unknown."""
    usual, low = every.max(), during.min()
    if not isinstance(usual, float) or not isinstance(low, float) or low > _CLOCK_FELL * usual:
        return ""
    return f"; SM clock {count(low / 1e6)} MHz"


def marks(
    span: tuple[datetime, datetime],
    incidents: Iterable[Incident],
    changed: Iterable[Change],
    moments: Iterable[tuple[datetime, str]] = (),
) -> Iterator[Series]:
    """Incidents as hatched grounds over an axis; changes and named moments as ticks."""
    first, last = (at.timestamp() for at in span)
    overs = ((o.started_at, o.last_true_at if o.resolved_at else span[1]) for o in incidents)
    spans = [(max(a.timestamp(), first), min(b.timestamp(), last)) for a, b in overs]
    if shown := [one for one in spans if one[0] < one[1]]:
        starts, ends = zip(*shown, strict=True)
        yield Series("hatch", "incident", starts, ends, colour=1)
    ticks = [one for one in changed if span[0] <= one.at <= span[1]]
    if ticks:
        at, names = zip(*((o.at.timestamp(), f"{o.server}: {o.what}") for o in ticks), strict=True)
        yield Series("ticks", "restart or change", at, names=names, colour=3)
    for when, what in moments:
        yield Series("ticks", what, [when.timestamp()], names=[what], colour=1)


STEMS = {"prompt_tokens": "Prompts", "generation_tokens": "Generations"}
_OF_HISTOGRAM = ("buckets", "edges")


def length_plots(finding: Finding) -> Iterator[Plot]:
    """The distribution of each length that has a histogram, over the baseline's."""
    for stem in STEMS:
        both = shares(finding.histograms, stem)
        if both is not None:
            edges = tuple(inf if edge is None else edge for edge in both.edges_tokens)
            text = _length_text(finding, stem, both)
            yield _shares(text, stem, edges, both.share, both.baseline_share)
            continue
        counts, bounds = (finding.histograms.get(f"{stem}_{one}") or () for one in _OF_HISTOGRAM)
        if len(bounds) >= 3 and len(counts) == len(bounds) and counts[-1]:
            now = [(b - a) / counts[-1] for a, b in pairwise([0.0, *counts])]
            yield _shares(_length_text(finding, stem, None), stem, bounds, now, None)


def _length_text(finding: Finding, stem: str, both: LengthShares | None) -> str:
    """``Prompts ×2.3 as long as in the baseline: mean 512 → 1,200 tokens, n 87,000``."""
    who, now = STEMS[stem], finding.evidence.get(f"{stem}_mean")
    before = (finding.reference or {}).get("values", {}).get(f"{stem}_mean")
    if now is None:
        return f"{who}: mean unknown"
    if both is None or before is None:
        return f"{who}: mean {tokens(now)} tokens; no baseline to compare with"
    how, mean = f"{times(now / before)} as", f"{tokens(before)} → {tokens(now)}"
    if is_as_before(now / before):
        how, mean = "as", tokens(now)
    n = count(both.requests)
    return f"{who} {how} long as in the baseline: mean {mean} tokens, n {n}"


def _shares(
    title: str,
    stem: str,
    upper: Sequence[float],
    now: Sequence[float],
    before: Sequence[float] | None,
) -> Plot:
    """Shares over log tokens: the baseline as grey steps, now as a line."""
    finite = [edge for edge in upper if edge != inf]
    # draw the first and the last cell, which have one edge, as wide as their neighbours
    first = finite[0] ** 2 / finite[1] if len(finite) > 1 else finite[0] / 2
    last = finite[-1] ** 2 / finite[-2] if len(finite) > 1 else 2 * finite[-1]
    edges = [first, *finite, *([last] if len(finite) < len(upper) else [])]
    percent = [100 * share for share in now]
    series = [Series("steps", "the answer's 10 min", edges, [*percent, percent[-1]])]
    if before is not None:
        corners = [x for low, high in pairwise(edges) for x in (low, high)]
        heights = [100 * share for share in before for _ in range(2)]
        low = [0.0] * len(heights)
        series.insert(0, Series("band", "baseline", corners, heights, low, colour=GREY))
    word = stem.split("_")[0]
    across = Axis(f"{word} tokens of a request, log scale", edges[0], edges[-1], is_log=True)
    return plot(title, series, across, Axis("share of requests, %"))
