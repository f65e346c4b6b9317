"""What distances between distributions are worth on traffic with nothing injected.

    python bench/distances.py FOLDER [--false PERCENT]

FOLDER is a compact recording of a healthy pool of some days (docs/contributing/fleet.md). Its
lengths in windows of 10 min are compared with those of the peers in the same window, and with the
server's own hour before:

* how often chi-square calls undisturbed windows different at p < 0.05, and chi-square per degree of
  freedom, which is 1 for independent requests;
* power: the share of windows that each statistic finds when their lengths are multiplied (spliced
  into the same windows), each threshold being the quantile of that statistic over the same
  server's undisturbed windows that leaves so many percent false.

Cramer's V is scaled to what it would be for samples of equal size. Windows of fewer than 100
requests are left out. No threshold of driftwatch is read or set here.
"""

from __future__ import annotations

import argparse
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
from scipy.special import chdtrc

from driftwatch.collect.recordings.compact import CompactRecordingSource
from driftwatch.detect.distributions import counts_of, js_and_w1, shares
from driftwatch.detect.lengths.detectable import rescaling

Floats = np.ndarray
WINDOW = "10m"
HOUR = 6  # windows
LEAST = 100
FACTORS = (1.15, 1.3, 1.5, 2.0)
DAY = timedelta(days=1)


def windows(folder: Path, signal: str) -> tuple[Floats, Floats, Floats]:
    """Counts by cell [servers, windows, k], sums [servers, windows], edges; NaN where unknown."""
    source = CompactRecordingSource(folder)
    first, last = source.span()
    names = ["instance", "engine", "time", f"{signal}_buckets", f"{signal}_edges", f"{signal}_sum"]
    kept = []
    at = first
    while at < last:
        scrapes = source.collect(at, min(at + DAY, last)).scrapes.select(names).drop_nulls()
        kept.append(
            scrapes.sort("time")
            .group_by("instance", "engine", pl.col("time").dt.truncate(WINDOW).alias("window"))
            .last()
        )
        at += DAY
    # a window across midnight is in two pieces: the later one holds its last scrape
    ends = pl.concat(kept).sort("time").group_by("instance", "engine", "window").last()
    ends = ends.sort("instance", "engine", "window")
    edges = ends[f"{signal}_edges"].to_list()
    if any(layout != edges[0] for layout in edges):
        raise SystemExit(f"{folder}: the edges of {signal} change")
    grid = {at: i for i, at in enumerate(ends["window"].unique().sort())}
    servers = {key: i for i, key in enumerate(ends.select("instance", "engine").unique().rows())}
    totals = np.full((len(servers), len(grid), len(edges[0])), np.nan)
    sums = np.full((len(servers), len(grid)), np.nan)
    for instance, engine, window, _, buckets, _, total in ends.iter_rows():
        place = servers[instance, engine], grid[window]
        totals[place], sums[place] = buckets, total
    counts = np.full_like(totals, np.nan)
    for server, cumulative in enumerate(totals):
        counts[server, 1:] = counts_of(np.diff(cumulative, axis=0))
    return counts, np.diff(sums, axis=1, prepend=np.nan), np.array(edges[0])


def psi(counts: Floats, other: Floats) -> Floats:
    """Population stability index; an empty cell counts as the 0.01 % of scorecard practice."""
    p, q = (np.maximum(shares(side), 1e-4) for side in (counts, other))
    index: Floats = ((p - q) * np.log(p / q)).sum(axis=1)
    return index


def ks_distance(counts: Floats, other: Floats) -> Floats:
    """Kolmogorov-Smirnov distance at the edges."""
    distance: Floats = np.abs(np.cumsum(shares(counts) - shares(other), axis=1)).max(axis=1)
    return distance


def chi_square(counts: Floats, other: Floats) -> tuple[Floats, Floats, Floats]:
    """Pearson's statistic of the 2 x k table, its p value and Cramer's V."""
    own, of_other = counts.sum(axis=1, keepdims=True), other.sum(axis=1, keepdims=True)
    together = counts + other
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = np.where(together > 0, (counts * of_other - other * own) ** 2 / together, 0.0)
        statistic = apart.sum(axis=1) / (own * of_other)[:, 0]
        v = np.sqrt(statistic / (own + of_other)[:, 0])
    degrees = np.maximum((together > 0).sum(axis=1) - 1.0, 1.0)
    return statistic / degrees, chdtrc(degrees, statistic), np.clip(v, 0.0, 1.0)


def ln_mean_ratio(sums: Floats, n: Floats, other_sums: Floats, m: Floats) -> Floats:
    """Size of ln of the ratio of means."""
    with np.errstate(invalid="ignore", divide="ignore"):
        size: Floats = np.abs(np.log(sums / n / (other_sums / m)))
    return size


def statistics_of(
    counts: Floats, sums: Floats, other: Floats, other_sums: Floats, edges: Floats
) -> dict[str, Floats]:
    """Every statistic of windows against their references [n]."""
    js, w1 = js_and_w1(counts, other, edges)
    n, m = counts.sum(axis=1), other.sum(axis=1)
    return {
        "JS": js,
        "W1": np.log(w1),
        "mean": ln_mean_ratio(sums, n, other_sums, m),
        "PSI": psi(counts, other),
        "KS": ks_distance(counts, other),
        "V": chi_square(counts, other)[2] * np.sqrt((n + m) / np.minimum(n, m) / 2),
    }


def judge(folder: Path, signal: str, false: float) -> None:
    """Print one signal's tables."""
    counts, sums, edges = windows(folder, signal)
    known = np.nan_to_num(counts)
    own_sums = np.nan_to_num(sums)
    peers = known.sum(axis=0, keepdims=True) - known
    before, before_sums = np.zeros_like(known), np.zeros_like(own_sums)
    for back in range(1, HOUR + 1):
        before[:, back:] += known[:, :-back]
        before_sums[:, back:] += own_sums[:, :-back]
    everything = known.sum(axis=(0, 1))
    references = {
        "twins": (peers, own_sums.sum(axis=0, keepdims=True) - own_sums),
        "hour before": (before, before_sums),
    }
    for name, (other, other_sums) in references.items():
        asked = (known.sum(axis=2) >= LEAST) & (other.sum(axis=2) >= LEAST)
        asked[:, : HOUR + 1] = False
        if not asked.any():
            print(f"{signal} against {name}: no window of {LEAST} requests")
            continue
        server = np.nonzero(asked)[0]
        own, own_sum, ref, ref_sum = known[asked], own_sums[asked], other[asked], other_sums[asked]
        per_degree, p_value, _ = chi_square(own, ref)
        print(
            f"{signal} against {name}: {len(own):,} windows, n {np.median(own.sum(axis=1)):,.0f}; "
            f"p < 0.05 in {np.mean(p_value < 0.05):.0%}, "
            f"chi2/degree of freedom {np.mean(per_degree):.1f}"
        )
        usual = statistics_of(own, own_sum, ref, ref_sum, edges)
        thresholds = {
            which: np.array(
                [
                    np.quantile(values[server == one], 1 - false) if (server == one).any() else 0
                    for one in range(len(known))
                ]
            )[server]
            for which, values in usual.items()
        }
        for factor in FACTORS:
            moved = own @ rescaling(edges, factor, everything)
            found = statistics_of(moved, own_sum * factor, ref, ref_sum, edges)
            power = [f"{w} {np.mean(found[w] > thresholds[w]):.0%}" for w in usual]
            print(f"  x{factor}: {', '.join(power)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--false", type=float, default=1.0, help="percent of false windows")
    arguments = parser.parse_args()
    for signal in ("prompt_tokens", "generation_tokens"):
        judge(arguments.folder, signal, arguments.false / 100)


if __name__ == "__main__":
    main()
