"""A request log in the place of rebuilt traffic, once the metrics agree with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.arrays import Flags, Floats
from driftwatch.errors import WorkloadError
from driftwatch.recommend.traffic.arrivals import Flows, flows
from driftwatch.recommend.traffic.from_minutes import observed_of
from driftwatch.recommend.traffic.lengths import any_share, running_start
from driftwatch.recommend.traffic.observed import Observed, Server
from driftwatch.recommend.traffic.stretch import Clean, cached_tokens, clean, hit_ratios
from driftwatch.simulate.requests import LOOK_UP, NO_GROUP, Requests, make_requests

# Both count the same requests, but for those in flight at the edges of the window; and the
# tightest gate of a fit allows no more than this.
TOLERANCE = 0.05
_COVERED_AT_LEAST = 0.9
# A day in 2001: arrivals after it are seconds since 1970, not since the start of the log.
_UNIX_FROM = 1e9
# How finely, and over how many shifts, a log without a date is held against the metrics.
_MOST_SHIFTS = 20_000
_BLOCK_TOKENS = 16
_HELP = "it must be the log of this one server, with all its requests, over this window"


def observed_from_log(
    log: Requests, minutes: pl.DataFrame, server: Server, *, seed: int = 0
) -> Observed:
    """Traffic of a request log, held against the metrics of the same window.

    Arrivals from 2001 on are seconds since 1970; others are shifted to where the arrivals per
    minute fit the metrics best. What ran or waited when the window began is taken from the log
    where it reaches back as far. ``log``: sorted by arrival; ``minutes``:
    :data:`driftwatch.signals.minutes.MINUTE_SCHEMA` of one engine; the longest clean stretch up to
    the last row counts; ``seed``: of what is drawn: how far those that ran at the start had come.
    Raises WorkloadError: the log contradicts the metrics (span, requests, prompt or generation
    tokens); every contradiction at once, each with both numbers; NoVerdict: the minutes themselves
    say too little.
    """
    stretch = clean(minutes)
    counts = flows(stretch)
    at = _shifted(log, stretch, counts)
    inside = (at >= 0) & (at < stretch.seconds)
    problems = _span(at, stretch)
    if not problems:
        problems = _contradictions(log.take(inside), stretch, counts)
    if problems:
        raise WorkloadError(tuple(problems), help_text=_HELP)
    requests, before = _requests(log, at, inside, stretch, counts, server, seed)
    carried = len(before)
    notes = (*stretch.notes, *counts.notes)
    if carried < counts.running_first + counts.waiting_first:
        notes += ("the log begins with the window: what ran before is not simulated",)
    observed = observed_of(stretch, requests, carried, "request log", notes)
    return replace(observed, came_seconds=before)


def _shifted(log: Requests, stretch: Clean, counts: Flows) -> Floats:
    """Arrivals on the stretch's clock."""
    arrival = log.arrival_seconds
    if len(arrival) and arrival[0] >= _UNIX_FROM:
        return arrival - stretch.start.timestamp()
    if not len(arrival):
        return arrival
    # the log may begin before the window or in it
    low, high = -(arrival[-1] - arrival[0]), stretch.seconds
    step = max(1.0, (high - low) / _MOST_SHIFTS)
    shifts = np.arange(low, high, step) - arrival[0]
    shifts = np.append(shifts, 0.0)  # as it is: seconds since the start of the window
    expected = counts.arrived.astype(np.float64)
    best, least = 0.0, np.inf
    for shift in shifts:
        arrived = np.diff(np.searchsorted(arrival + shift, stretch.edges))
        off = float(((arrived - expected) ** 2 / (expected + 1.0)).sum())
        if off < least or (off == least and abs(shift) < abs(best)):
            best, least = float(shift), off
    moved: Floats = arrival + best
    return moved


def _span(at: Floats, stretch: Clean) -> list[str]:
    """What is wrong with when the log was written."""
    first, last = (float(at[0]), float(at[-1])) if len(at) else (0.0, 0.0)
    covered = max(0.0, min(last, stretch.seconds) - max(first, 0.0))
    if covered >= _COVERED_AT_LEAST * stretch.seconds:
        return []
    return [
        f"the log covers {covered / 60:.3g} min of the {stretch.seconds / 60:.3g} min of metrics"
    ]


def _contradictions(log: Requests, stretch: Clean, counts: Flows) -> list[str]:
    """Every total that is not that of the metrics, with both numbers."""
    arrived, first = float(counts.arrived.sum()), stretch.column("ttft_seconds_count")
    edge = counts.running_first + counts.waiting_first + max(counts.unfinished, 0)
    problems = []
    if abs(len(log) - arrived) > TOLERANCE * arrived + edge + 1:
        problems.append(f"the log has {len(log):,} requests, the metrics {arrived:,.0f}")
    prompts, generated = _prompts(stretch), stretch.column("generation_tokens_total").sum()
    if np.isnan(generated):
        generated = stretch.column("generation_tokens_sum").sum()
    got_first = float(np.nan_to_num(first).sum()) or arrived
    for name, ours, theirs in (
        ("prompt tokens", log.prompt_tokens, prompts),
        ("generation tokens", log.generation_tokens, float(generated)),
    ):
        if np.isnan(theirs) or not len(ours):
            continue
        per_request = max(float(ours.mean()), theirs / max(got_first, 1.0))
        if abs(float(ours.sum()) - theirs) > TOLERANCE * theirs + edge * per_request:
            problems.append(f"the log has {ours.sum():,} {name}, the metrics {theirs:,.0f}")
    return problems


def _prompts(stretch: Clean) -> float:
    """Prompt tokens of those that got a first token, else of those that finished."""
    booked = stretch.column("prompt_tokens_total").sum()
    return float(stretch.column("prompt_tokens_sum").sum() if np.isnan(booked) else booked)


def _requests(
    log: Requests,
    at: Floats,
    inside: Flags,
    stretch: Clean,
    counts: Flows,
    server: Server,
    seed: int,
) -> tuple[Requests, Floats]:
    """Those of the window, behind those that ran and waited when it began; when these came."""
    rng = np.random.default_rng(seed)
    before = np.flatnonzero(at < 0)
    waiting = before[len(before) - min(counts.waiting_first, len(before)) :]
    earlier = before[: len(before) - len(waiting)]
    running = earlier[len(earlier) - min(counts.running_first, len(earlier)) :]
    generation = log.generation_tokens[running]
    start = running_start(log.prompt_tokens[running], generation, any_share(generation, rng))
    later = log.take(np.concatenate((waiting, np.flatnonzero(inside))))
    arrivals = np.concatenate((np.zeros(len(waiting)), at[inside]))
    looked_up = bool((later.cached_tokens == LOOK_UP).all())
    grouped = bool((later.prefix_group != NO_GROUP).any())
    cached = later.cached_tokens
    if looked_up and not grouped:
        ratio, _ = hit_ratios(stretch)
        row = np.clip(np.searchsorted(stretch.edges, arrivals, side="right") - 1, 0, len(ratio) - 1)
        block = server.block_size or _BLOCK_TOKENS
        cached = cached_tokens(later.prompt_tokens, ratio[row], block, rng)
    # where hits are looked up by group none can be given
    had = np.full(len(running), LOOK_UP) if looked_up and grouped else start.cached_tokens

    def behind(of_running: npt.ArrayLike, of_later: npt.ArrayLike) -> npt.NDArray[np.generic]:
        return np.concatenate((np.asarray(of_running), np.asarray(of_later)))

    nothing = np.zeros(len(running), dtype=np.int64)
    joined = make_requests(
        behind(nothing, arrivals),
        behind(start.prompt_tokens, later.prompt_tokens),
        behind(start.generation_tokens, later.generation_tokens),
        priority=behind(log.priority[running], later.priority),
        prefix_group=behind(log.prefix_group[running], later.prefix_group),
        shared_prefix_tokens=behind(log.shared_prefix_tokens[running], later.shared_prefix_tokens),
        cached_tokens=behind(had, cached),
        adapter=behind(log.adapter[running], later.adapter),
    )
    return joined, np.concatenate((np.full(len(running), np.nan), at[waiting]))
