"""How much a healthy server's speed at equal load wanders: the sd of ln r, from counters alone.

r is the measured over the expected time between two tokens in one scrape interval. Expected is what
a regression over the healthy intervals of that server gives for the load they carried: n (requests
per forward pass), P (computed prompt tokens per forward pass), KV use, their squares and n·P, by
least squares of the relative error. It is the judge's own measure of how noisy the fleet is. It is
fitted to the same intervals, so it follows a part of the wander; and it does not know the engine's
step-time model, so a part of the sd is its own misfit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

FEWEST_TOKENS = 100.0  # of an interval: below, the mean of a few tokens is noise of its own
FEWEST_INTERVALS = 120
LAG_SECONDS = 3600.0
GOAL_SD = 0.03  # of a healthy server's ln r, per scrape
_GAP = 3.0  # times the usual distance of two scrapes

_COUNTERS = (
    "itl_seconds_sum",
    "itl_seconds_count",
    "iteration_tokens_count",
    "prompt_tokens_computed_total",
    "preemptions_total",
)
_COLUMNS = ("instance", "engine", "time", "ok", "kv_cache_usage_ratio", *_COUNTERS)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Wander:
    """One server's."""

    instance: str
    intervals: int
    sd: float
    robust_sd: float
    correlation_1h: float | None


def counters_of(folder: Path) -> pl.DataFrame:
    """The needed columns of a compact recording's scrapes, as they are in its Parquet parts."""
    parts = sorted(folder.glob("*.scrapes.parquet"))
    return pl.concat(pl.read_parquet(part, columns=list(_COLUMNS)) for part in parts)


def wander(
    scrapes: pl.DataFrame, excluded: Iterable[tuple[str | None, float, float]] = ()
) -> list[Wander]:
    """Every server that has enough intervals."""
    out = list(excluded)
    found = []
    for (instance, _), rows in scrapes.group_by(["instance", "engine"], maintain_order=True):
        at, load, itl = intervals_of(rows.sort("time"))
        healthy = np.ones(len(at), dtype=bool)
        for which, first, last in out:
            if which in (None, instance):
                healthy &= (at < first) | (at > last)
        if healthy.sum() >= FEWEST_INTERVALS:
            found.append(wander_of(str(instance), at[healthy], load[healthy], itl[healthy]))
    return sorted(found, key=lambda w: w.instance)


def intervals_of(rows: pl.DataFrame) -> tuple[Floats, Floats, Floats]:
    """(end, (n, P, KV), ITL) of the intervals between two scrapes that can be used."""
    at = rows["time"].dt.epoch("us").to_numpy() / 1e6
    ok = rows["ok"].fill_null(value=False).to_numpy()
    level = {c: rows[c].cast(pl.Float64).to_numpy() for c in _COUNTERS}
    usage = rows["kv_cache_usage_ratio"].cast(pl.Float64).to_numpy()
    grown = {c: np.diff(values) for c, values in level.items()}
    apart = np.diff(at)
    usable = ok[1:] & ok[:-1] & (apart <= _GAP * np.median(apart)) if len(at) > 1 else ok[1:]
    for values in grown.values():
        usable &= np.isfinite(values) & (values >= 0)  # a restart begins at zero
    tokens, steps = grown["itl_seconds_count"], grown["iteration_tokens_count"]
    usable &= (tokens >= FEWEST_TOKENS) & (steps > 0) & (grown["itl_seconds_sum"] > 0)
    usable &= grown["preemptions_total"] == 0  # waiting to be admitted again is in ITL, not speed
    usable &= np.isfinite(usage[1:] + usage[:-1])
    steps, tokens = steps[usable], tokens[usable]
    load = np.column_stack(
        (
            tokens / steps,
            grown["prompt_tokens_computed_total"][usable] / steps,
            ((usage[1:] + usage[:-1]) / 2)[usable],
        )
    )
    return at[1:][usable], load, grown["itl_seconds_sum"][usable] / tokens


def wander_of(instance: str, at: Floats, load: Floats, itl: Floats) -> Wander:
    scaled = load / np.maximum(load.max(axis=0), 1e-12)
    n, prefill = scaled[:, 0], scaled[:, 1]
    features = np.column_stack((np.ones(len(at)), scaled, scaled**2, n * prefill))
    weight = 1 / itl
    coefficients, *_ = np.linalg.lstsq(features * weight[:, None], itl * weight, rcond=None)
    expected = np.maximum(features @ coefficients, 0.05 * itl)
    ln_r = np.log(itl / expected)
    middle = np.median(ln_r)
    return Wander(
        instance,
        len(at),
        float(ln_r.std(ddof=1)),
        float(1.4826 * np.median(np.abs(ln_r - middle))),
        _correlation(at, ln_r - middle),
    )


def _correlation(at: Floats, values: Floats) -> float | None:
    """With the value an hour later (the interval nearest to it, within a tenth of an hour)."""
    later = np.clip(np.searchsorted(at, at + LAG_SECONDS), 0, len(at) - 1)
    pairs = np.abs(at[later] - at - LAG_SECONDS) <= LAG_SECONDS / 10
    if pairs.sum() < FEWEST_INTERVALS:
        return None
    limit = 4 * 1.4826 * np.median(np.abs(values))  # a stall is not wander
    first, second = (np.clip(v[pairs], -limit, limit) for v in (values, values[later]))
    return float(np.corrcoef(first, second)[0, 1])


def summary(found: Sequence[Wander]) -> dict[str, Any]:
    """Over servers: the median, and the quietest server."""
    if not found:
        return {"servers": 0, "sd_median": None, "reason": "no server has enough intervals"}
    hourly = [w.correlation_1h for w in found if w.correlation_1h is not None]
    return {
        "servers": len(found),
        "intervals": sum(w.intervals for w in found),
        "sd_median": float(np.median([w.sd for w in found])),
        "sd_lowest": min(w.sd for w in found),
        "robust_sd_median": float(np.median([w.robust_sd for w in found])),
        "correlation_1h_median": float(np.median(hourly)) if hourly else None,
        "goal_sd": GOAL_SD,
    }
