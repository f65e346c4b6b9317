"""Demand from a request log, checked against the metrics of the same window."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from driftwatch.arrays import Floats
from driftwatch.errors import WorkloadError
from driftwatch.recommend.demand import Demand, cached, hit_ratio, longest
from driftwatch.recommend.server import Server
from driftwatch.recommend.window import Window, arrivals
from driftwatch.simulate.requests import LOOK_UP, NO_GROUP, Requests

TOLERANCE = 0.05  # both count the same requests, but for those in flight at the edges
_COVERED = 0.9  # of the window, at least
_UNIX_FROM = 1e9  # a day in 2001: arrivals after it are seconds since 1970
_HELP = "it must be the log of this one server, with all its requests, over this window"


def demand_of_log(log: Requests, window: Window, server: Server, seed: int) -> Demand:
    """Demand of a request log, held against the metrics of the same window.

    Arrivals from 2001 on are seconds since 1970, earlier ones seconds since the window began.
    ``log``: sorted by arrival. Raises WorkloadError: the log contradicts the metrics, with both
    numbers; NoVerdict: the minutes themselves say too little.
    """
    at = log.arrival_seconds
    if len(at) and at[0] >= _UNIX_FROM:
        at = at - window.start.timestamp()
    inside = (at >= 0) & (at < window.seconds)
    own = log.take(inside).at(at[inside])
    problems = _contradictions(own, at, window)
    if problems:
        raise WorkloadError(tuple(problems), help_text=_HELP)
    if (own.cached_tokens == LOOK_UP).all() and (own.prefix_group == NO_GROUP).all():
        rng, ratio = np.random.default_rng(seed), hit_ratio(window) or 0.0
        hits = cached(own.prompt_tokens, ratio, server.block_tokens, rng)
        own.cached_tokens[:] = hits
    most = longest(server)
    if most is not None:
        own = own.take(own.prompt_tokens + own.generation_tokens <= most)
    minutes = max(1, int(window.seconds // 60.0))
    arrived, _ = np.histogram(own.arrival_seconds, 60.0 * np.arange(minutes + 1))
    return Demand(
        own.prompt_tokens,
        own.generation_tokens,
        arrived.astype(np.float64),
        np.full(minutes, 60.0),
        hit_ratio(window) or 0.0,
        server.block_tokens,
        log=own,
    )


def _clock(unix_seconds: float) -> str:
    """A date and time; seconds where it is no date, as of a log in milliseconds."""
    try:
        return f"{datetime.fromtimestamp(unix_seconds, UTC):%Y-%m-%d %H:%M}"
    except (OverflowError, ValueError):
        return f"{unix_seconds:.4g} s after 1970"


def _contradictions(own: Requests, at: Floats, window: Window) -> list[str]:
    """Where log and metrics differ, with both numbers."""
    first, last = (float(at[0]), float(at[-1])) if len(at) else (0.0, 0.0)
    covered = max(0.0, min(last, window.seconds) - max(first, 0.0))
    if covered < _COVERED * window.seconds:
        minutes = f"{covered / 60:.3g} min of the {window.seconds / 60:.3g} min of metrics"
        begin = window.start.timestamp()
        times = [_clock(begin + at) for at in (first, last, 0.0, window.seconds)]
        where = "the log {} to {}, the metrics {} to {} UTC".format(*times)
        return [f"the log covers {minutes}{f': {where}' if len(at) else ''}"]
    came = float(arrivals(window).sum())
    in_flight = sum(
        (window.column(name).max() or 0.0)
        for name in ("running_requests", "waiting_requests")
        if not np.isnan(window.column(name)).all()
    )
    problems = []
    if abs(len(own) - came) > TOLERANCE * came + in_flight + 1:
        problems.append(f"the log has {len(own):,} requests, the metrics {came:,.0f}")
    for name, ours, counter in (
        ("prompt tokens", own.prompt_tokens, "prompt_tokens_total"),
        ("generation tokens", own.generation_tokens, "generation_tokens_total"),
    ):
        theirs = window.total(counter)
        if theirs is None or not len(ours):
            continue
        edge = in_flight * max(float(ours.mean()), theirs / max(came, 1.0))
        if abs(float(ours.sum()) - theirs) > TOLERANCE * theirs + edge:
            problems.append(f"the log has {ours.sum():,} {name}, the metrics {theirs:,.0f}")
    return problems
