"""The longest stretch of minutes, up to the last one, in which one engine ran undisturbed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.errors import NoVerdict

Floats = npt.NDArray[np.float64]

# Flag of a minute → why what lies before it is left out.
_CUTS = {
    "restarted": "a restart",
    "configuration_changed": "a change of its settings",
    "release_changed": "a change of its release",
}
# A row that saw less of its time than this is a gap: what was lost is not told apart.
_SEEN_AT_LEAST = 0.5
_MINUTE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, eq=False)
class Clean:
    """Rows that can be read as one undisturbed stretch.

    Attributes:
        rows: :data:`driftwatch.signals.minutes.MINUTE_SCHEMA`, in order, at least one.
        edges: observed seconds since the start at each edge of the rows, one more than rows. Gaps
            between scrapes are not in them: counters say nothing of those.
        start: when the stretch began.
        notes: what was cut, in words.
    """

    rows: pl.DataFrame
    edges: Floats
    start: datetime
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Length of the stretch, as observed."""
        return float(self.edges[-1])

    def column(self, name: str) -> Floats:
        """A column as numbers, NaN where it is NULL."""
        return self.rows[name].cast(pl.Float64).fill_null(np.nan).to_numpy().astype(np.float64)


def clean(minutes: pl.DataFrame) -> Clean:
    """The longest clean stretch that ends with the last row that has a scrape.

    A restart, a change of settings or release, and a gap end it; so does a change of the bucket
    edges of the lengths.

    Args:
        minutes: :data:`driftwatch.signals.minutes.MINUTE_SCHEMA` of one engine, in order; rows may
            be longer than a minute.

    Raises:
        NoVerdict: no row has a usable scrape.
    """
    rows = minutes.sort("end")
    seen = rows.with_columns(
        usable=(pl.col("scrapes") > 0) & (pl.col("duration_seconds") > 0),
        span=_row_seconds(rows),
    )
    usable = seen["usable"].fill_null(False).to_numpy()
    if not usable.any():
        raise NoVerdict(
            "no minute with a usable scrape in the window",
            help_text="name a window with --at and --window in which the server was scraped",
        )
    last = int(np.flatnonzero(usable)[-1])
    first, why = _begin(seen, usable, last)
    kept = rows.slice(first, last - first + 1)
    edges = np.concatenate(([0.0], np.cumsum(kept["duration_seconds"].to_numpy())))
    start = _start(kept, edges)
    notes = []
    if why is not None and bool((rows["scrapes"].head(first) > 0).any()):
        notes.append(f"before {start:%H:%M} UTC not used: {why}")
    longest = float(seen["span"].slice(first, last - first + 1).max() or 0.0)  # type: ignore[arg-type]
    if longest > _MINUTE_SECONDS:
        notes.append(f"rows of {longest / _MINUTE_SECONDS:.0f} min: minutes are no longer kept")
    return Clean(kept, edges, start, tuple(notes))


def _start(kept: pl.DataFrame, edges: Floats) -> datetime:
    """When the stretch began, by most of its rows: one before a gap saw less than its time."""
    first: datetime = kept["end"][0]
    ends = (kept["end"] - first).dt.total_seconds(fractional=True).to_numpy()
    return first + timedelta(seconds=float(np.median(ends - edges[1:])))


def _row_seconds(rows: pl.DataFrame) -> pl.Series:
    """Length of each row: a minute, or what separates a rolled-up one from the row before."""
    apart = rows["end"].diff().dt.total_seconds(fractional=True)
    seen = rows["duration_seconds"].fill_null(0.0)
    # a roll-up is told by what it saw: more than two minutes can hold
    long = seen > 2 * _MINUTE_SECONDS
    lengths = pl.DataFrame({"apart": apart, "seen": seen, "long": long}).select(
        pl.when("long")
        .then(pl.min_horizontal(pl.col("apart").fill_null(pl.col("seen")), 3_600.0))
        .otherwise(_MINUTE_SECONDS)
    )
    return lengths.to_series()


def _begin(seen: pl.DataFrame, usable: npt.NDArray[np.bool_], last: int) -> tuple[int, str | None]:
    """First row of the stretch that ends with row ``last``, and why not an earlier one."""
    flags = {name: seen[name].fill_null(False).to_numpy() for name in _CUTS if name in seen.columns}
    spans = seen["span"].to_numpy()
    durations = seen["duration_seconds"].fill_null(0.0).to_numpy()
    ends = seen["end"].to_list()
    edges = [
        (seen["prompt_tokens_edges"][i], seen["generation_tokens_edges"][i])
        for i in range(len(seen))
    ]
    for i in range(last, -1, -1):
        why = None
        if not usable[i]:
            before = any(usable[:i])
            why = "a gap without scrapes" if before else "nothing was scraped before"
        elif durations[i] < _SEEN_AT_LEAST * spans[i] and _alone(durations, spans, i, last):
            why = "a minute of which too little was scraped"
        elif i < last and (ends[i + 1] - ends[i]).total_seconds() > 1.5 * spans[i + 1]:
            return i + 1, "a gap without scrapes"
        elif i < last and _differ(edges[i], edges[i + 1]):
            why = "other histogram buckets"
        else:
            why = next((text for name, text in _CUTS.items() if flags[name][i]), None)
        if why is not None:
            # the last row itself is all there is where it is the disturbed one
            return (i + 1, why) if i < last else (i, None)
    return 0, None


def _alone(durations: Floats, spans: Floats, i: int, last: int) -> bool:
    """Too little was seen, and the row after does not make up for it (scrapes a minute apart)."""
    after = i + 1 if i < last else i - 1
    if after < 0:
        return True
    return bool(durations[i] + durations[after] < _SEEN_AT_LEAST * (spans[i] + spans[after]))


def _differ(one: tuple[pl.Series | None, ...], other: tuple[pl.Series | None, ...]) -> bool:
    for before, after in zip(one, other, strict=True):
        if before is None or after is None or not len(before) or not len(after):
            continue
        if len(before) != len(after) or before.to_list() != after.to_list():
            return True
    return False
