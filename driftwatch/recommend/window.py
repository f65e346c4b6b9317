"""The minutes behind an answer: undisturbed, and since the traffic last changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np
import polars as pl

from driftwatch.arrays import Floats
from driftwatch.errors import NoVerdict
from driftwatch.model import Slo
from driftwatch.signals.histograms import share_within

# Flag of a minute → why what lies before it is left out.
_CUTS = {
    "restarted": "a restart",
    "configuration_changed": "a change of its settings",
    "release_changed": "a change of its release",
}
_LEAST_SECONDS = 30.0  # observed of a minute that counts
_GAP_MINUTES = 2  # a longer gap between usable minutes ends the stretch


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Minutes (:data:`driftwatch.signals.minutes.MINUTE_SCHEMA`) of one engine, in order."""

    rows: pl.DataFrame
    notes: tuple[str, ...] = ()

    def column(self, name: str) -> Floats:
        """A column as numbers; NaN = unknown."""
        return self.rows[name].cast(pl.Float64).fill_null(np.nan).to_numpy().astype(np.float64)

    @property
    def durations_seconds(self) -> Floats:
        """Observed seconds of each minute."""
        return self.column("duration_seconds")

    @property
    def seconds(self) -> float:
        """Observed seconds."""
        return float(self.durations_seconds.sum())

    @property
    def start(self) -> datetime:
        """When the first minute began, UTC."""
        end: datetime = self.rows["end"][0]
        return end - timedelta(minutes=1)

    def total(self, name: str) -> float | None:
        """A counter over the window; None where a minute does not have it."""
        values = self.column(name)
        return None if np.isnan(values).any() else float(values.sum())

    def mean(self, name: str) -> float | None:
        """A gauge's mean over time; None where no minute has it."""
        values, seconds = self.column(name), self.durations_seconds
        known = ~np.isnan(values)
        return float(np.average(values[known], weights=seconds[known])) if known.any() else None

    def ratio(self, numerator: str, denominator: str) -> float | None:
        """A quotient of two counters over the window; None = unknown."""
        over, under = self.total(numerator), self.total(denominator)
        return over / under if over is not None and under else None

    def histogram(self, name: str) -> tuple[list[float], Floats, float] | None:
        """Edges (+Inf last), growth of the cumulative counts, and of the sum; None = none."""
        rows = self.rows.select(f"{name}_buckets", f"{name}_edges", f"{name}_sum").drop_nulls()
        if rows.is_empty():
            return None
        counts = np.array(rows[f"{name}_buckets"].to_list(), dtype=np.float64).sum(axis=0)
        return rows[f"{name}_edges"][0].to_list(), counts, float(rows[f"{name}_sum"].sum())

    def since(self, row: int) -> Window:
        """The minutes from a row on."""
        return replace(self, rows=self.rows.slice(row))


def undisturbed(minutes: pl.DataFrame) -> Window:
    """The longest stretch up to the last usable minute without restart, change or gap.

    ``minutes``: :data:`driftwatch.signals.minutes.MINUTE_SCHEMA` of one engine. Raises NoVerdict:
    no minute has a usable scrape.
    """
    rows = minutes.sort("end")
    usable = (
        (rows["scrapes"].fill_null(0) > 0) & (rows["duration_seconds"].fill_null(0) > 0)
    ).to_numpy()
    if not usable.any():
        raise NoVerdict(
            "no minute with a usable scrape in the window",
            help_text="name a window with --at and --window in which the server was scraped",
        )
    rows = rows.filter(pl.Series(usable))
    first, why = _begin(rows)
    stretch = rows.slice(first)
    seen = stretch["duration_seconds"] >= _LEAST_SECONDS
    stretch = stretch.filter(seen) if seen.any() else stretch
    window = Window(stretch)
    if why is None:
        return window
    return replace(window, notes=(f"before {window.start:%H:%M} UTC not used: {why}",))


def _begin(rows: pl.DataFrame) -> tuple[int, str | None]:
    """The stretch's first row, and what happened before it."""
    ends = rows["end"].to_list()
    names = ("prompt_tokens_edges", "generation_tokens_edges")
    edges = rows.select(pl.col(names).forward_fill().backward_fill()).rows()
    for row in range(len(rows) - 1, 0, -1):
        if (ends[row] - ends[row - 1]) > timedelta(minutes=_GAP_MINUTES):
            return row, "a gap without scrapes"
        if edges[row] != edges[row - 1]:
            return row, "other histogram buckets"
        for name, why in _CUTS.items():
            if rows[name][row]:
                # the disturbed minute holds some of both; alone it is all there is
                return min(row + 1, len(rows) - 1), why
    return 0, None


# A change of traffic: a figure's mean differs by more than that,
_MOVED = np.log(1.25)
# by so many standard errors: of the best of 60 places and three figures chance alone reaches it in
# fewer than one window of a hundred,
_CERTAIN = 4.0
# and lasts: from fewer minutes no server can be judged; a lower rate may be a lull.
_SHORTEST_MINUTES, _LULL_MINUTES = 5, 10


def steady(window: Window) -> Window:
    """The end of a window in which rate and lengths are as they are now.

    The window is split where two means differ most, and its later part again (binary segmentation,
    Scott and Knott 1974).
    """
    arrived = arrivals(window)
    figures = [np.log((arrived + 0.5) / window.durations_seconds)]
    for name in ("prompt_tokens", "generation_tokens"):
        with np.errstate(divide="ignore", invalid="ignore"):
            figures.append(np.log(window.column(f"{name}_sum") / window.column(f"{name}_count")))
    first = 0
    while (place := _change([row[first:] for row in figures])) is not None:
        first += place
    if not first:
        return window
    late = window.since(first)
    return replace(
        late, notes=(*window.notes, f"traffic since {late.start:%H:%M} UTC, when it changed")
    )


def _change(figures: list[Floats]) -> int | None:
    """The row at which the traffic changes, by the figure that shows it best; None = nowhere."""
    best, change = _CERTAIN, None
    for number, row in enumerate(figures):
        many = len(row)
        steps = np.diff(row[np.isfinite(row)])
        if len(steps) < 2 * _SHORTEST_MINUTES:
            continue
        # of squared normal steps, each with twice the variance, the median is 0.455 of the mean
        noise = float(np.median(steps**2)) / 0.91
        splits = []
        for place in range(_SHORTEST_MINUTES, many - _SHORTEST_MINUTES + 1):
            before, after = (part[np.isfinite(part)] for part in (row[:place], row[place:]))
            if min(len(before), len(after)) < _SHORTEST_MINUTES:
                continue
            off = float(after.mean() - before.mean())
            inside = before.var() * len(before) + after.var() * len(after)
            variance = max(inside / (len(before) + len(after) - 2), noise)
            score = abs(off) / np.sqrt(variance * (1 / len(before) + 1 / len(after)) + 1e-12)
            if abs(off) > _MOVED:
                splits.append((float(score), place, off))
        score, place, off = max(splits, default=(0.0, 0, 0.0))
        lull = number == 0 and off < 0 and many - place < _LULL_MINUTES
        if score > best and not lull:
            best, change = score, place
    return change


def arrivals(window: Window) -> Floats:
    """Requests that came in each minute: first tokens and the queue's growth.

    Raises NoVerdict: neither first tokens nor finished requests are on every page.
    """
    waiting = window.column("waiting_requests")
    known = np.flatnonzero(~np.isnan(waiting))
    places = np.arange(len(waiting))
    queue = np.interp(places, known, waiting[known]) if len(known) else np.zeros(len(waiting))
    edges = np.concatenate((queue[:1], (queue[:-1] + queue[1:]) / 2, queue[-1:]))
    first = window.column("ttft_seconds_count")
    if np.isnan(first).any():
        first = window.column("generation_tokens_count")
    if np.isnan(first).any():
        raise NoVerdict("time_to_first_token not on the page: how many requests came is unknown")
    return np.maximum(first + np.diff(edges), 0.0)


_RISES = 1.1  # less is chance: a third of a steady window may hold so much more


def rise(window: Window) -> float:
    """Tokens asked for a second in the window's last third over those of all of it; at least 1.

    Where lengths or rate still grow, the load that comes is above the window's mean. Raises
    NoVerdict: as :func:`arrivals`.
    """
    third = len(window.rows) // 3
    if third < _SHORTEST_MINUTES:
        return 1.0
    tokens = np.zeros(len(window.rows))
    for name in ("prompt_tokens", "generation_tokens"):
        with np.errstate(divide="ignore", invalid="ignore"):
            length = window.column(f"{name}_sum") / window.column(f"{name}_count")
        known = np.isfinite(length)
        tokens += np.where(known, length, length[known].mean() if known.any() else 0.0)
    asked, seconds = arrivals(window) * tokens, window.durations_seconds
    whole = asked.sum() / seconds.sum()
    late = asked[-third:].sum() / seconds[-third:].sum()
    return float(late / whole) if late > _RISES * whole else 1.0


def missed(window: Window) -> bool:
    """Whether the latency targets were missed, by the newest of the last ten minutes that knows."""
    known = window.rows["slo_missed"].tail(10).drop_nulls()
    return bool(known[-1]) if len(known) else False


def share_met(window: Window, slo: Slo | None) -> float | None:
    """Upper bound of the share of served requests that met each target; None = no histogram."""
    met = []
    for name, target in (
        ("ttft_seconds", None if slo is None else slo.ttft_seconds),
        ("tpot_seconds", None if slo is None else slo.tpot_seconds),
    ):
        if target is None or (seen := window.histogram(name)) is None:
            continue
        edges, counts, spent = seen
        one = (counts.tolist(), edges, target, spent)
        met.append(share_within(*(pl.Series([part]) for part in one)))
    known = [share for one in met if (share := one["upper"][0]) is not None]
    return min(known, default=None)


def nobody_waited(minutes: pl.DataFrame, slo: Slo | None) -> bool:
    """No scrape saw a waiting request, nothing was preempted, and no target is missed.

    Then no limit binds, even with the settings unknown. ``minutes``:
    :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`.
    """
    try:
        window = undisturbed(minutes)
    except NoVerdict:
        return False
    met = share_met(window, slo)
    if slo is not None and met is not None and met < slo.share:
        return False
    waiting = window.rows["waiting_requests"].drop_nulls()
    preempted = window.rows["preemptions_total"].drop_nulls().sum()
    return bool(len(waiting) and not waiting.sum() and not preempted and not missed(window))
