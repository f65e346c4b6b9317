"""A crude program that does the whole job in a page: what driftwatch must beat in every figure.

It reads the same compact recording and shares no code with driftwatch. Per server and minute: a
step time fitted by least squares on the baseline, the baseline's own noise as a threshold, the
share of minutes in which requests wait, shares in target from buckets, and one line of leaf logic.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import yaml
from scipy.optimize import nnls

from truth_judge.commands import Case
from truth_judge.facts import Finding

WINDOW = 10  # minutes of every statistic
LENGTHS_WINDOW = 20
FEWEST_TOKENS, FEWEST_REQUESTS, FEWEST_MINUTES = 100.0, 50.0, 60
LOSS, DEVIATIONS = 0.12, 4.0
WAITS, LONG_WAIT_SECONDS = 0.5, 1.0
LONGER, SHORTER = 1.5, 0.67
HELD = 15  # minutes without the condition after which an alarm has ended
_COUNTERS = (
    *("itl_seconds_sum", "itl_seconds_count", "iteration_tokens_count", "ttft_seconds_count"),
    *("queue_seconds_sum", "queue_seconds_count", "prompt_tokens_computed_total"),
    *("prompt_tokens_sum", "prompt_tokens_count", "generation_tokens_sum"),
)

Floats = npt.NDArray[np.float64]
Minutes = dict[str, Floats]


def judged(case: Case) -> tuple[Finding, ...]:
    """What it says of a case with a baseline."""
    assert case.reference is not None
    settings = yaml.safe_load((case.recording / "driftwatch.yaml").read_text())["pools"][0]
    servers = {
        instance: _minutes(case.recording, instance, case, settings) for instance in case.instances
    }
    base = {name: minutes["base"] > 0 for name, minutes in servers.items()}
    slow = {name: _slow(r, base[name]) for name, r in _speeds(servers, case).items()}
    found = []
    for instance, minutes in servers.items():
        limit, leaf = _limit(minutes, settings)
        others = [on for name, on in slow.items() if name != instance]
        alone = np.full(len(limit), len(others) >= 2)
        for on in others:
            alone &= ~on
        said = [
            ("page", "SlowerAtEqualLoad", slow[instance],
             np.where(alone, "replica_slow", "scheduler_regression")),
            ("page", "BatchLimitBinding", limit & ~slow[instance], leaf),
            *(("notice", "LengthDrift", _moved(minutes, name, base[instance]), leaf)
              for name in ("prompt_tokens", "generation_tokens")),
        ]  # fmt: skip
        for severity, rule, on, leaves in said:
            for at in _begins(on):
                end, named = case.start_seconds + 60.0 * (at + 1), str(leaves[at])
                found.append(
                    Finding("firing", rule, severity, end, end, frozenset({instance}), named)
                )
    return tuple(sorted(found, key=lambda one: one.at_seconds))


def _minutes(folder: Path, instance: str, case: Case, settings: dict[str, Any]) -> Minutes:
    """What grew in each minute, and what stood at its end; NaN is unknown."""
    files = sorted(folder.glob("*.scrapes.parquet"))
    slo = settings.get("slo", {}).get("ttft_seconds")
    target = pl.col("ttft_seconds_edges").list.eval(pl.element() <= (slo or 0.0)).list.sum()
    rows = pl.concat(
        pl.scan_parquet(file)
        .filter((pl.col("instance") == instance) & pl.col("ok"))
        .select(
            "time", "running_requests", "waiting_requests", "kv_cache_usage_ratio", *_COUNTERS,
            in_target=pl.when(target > 0).then(
                pl.col("ttft_seconds_buckets").list.get(target - 1, null_on_oob=True)
            ),
        )
        .collect()
        for file in files
    ).sort("time")  # fmt: skip
    minute = ((rows["time"].dt.epoch("s") - int(case.start_seconds)) // 60).alias("minute")
    last = rows.with_columns(minute).group_by("minute", maintain_order=True).last()
    count = int((case.end_seconds - case.start_seconds) // 60)
    grid = pl.DataFrame({"minute": np.arange(count)}).join(
        last.with_columns(pl.col("minute").cast(pl.Int64)), on="minute", how="left"
    )
    found: Minutes = {}
    for name in (*_COUNTERS, "in_target"):
        values = grid[name].cast(pl.Float64).to_numpy()
        grown = np.diff(values, prepend=np.nan)
        found[name] = np.where(grown >= 0, grown, np.nan)
    for name in ("running_requests", "waiting_requests", "kv_cache_usage_ratio"):
        found[name] = grid[name].cast(pl.Float64).to_numpy()
    first, until = ((at - case.start_seconds) // 60 for at in case.reference or ())
    found["base"] = ((np.arange(count) >= first) & (np.arange(count) < until)).astype(float)
    return found


def _speeds(servers: dict[str, Minutes], case: Case) -> dict[str, Floats]:
    """ln(fitted / measured time between tokens) of each server, by minute."""
    works, itls = {}, {}
    for name, m in servers.items():
        tokens, passes = m["itl_seconds_count"], m["iteration_tokens_count"]
        with np.errstate(invalid="ignore", divide="ignore"):
            itl = m["itl_seconds_sum"] / tokens
            n = (tokens + m["ttft_seconds_count"]) / passes
            prefill = m["prompt_tokens_computed_total"] / passes
            work = np.stack([np.ones_like(n), n, m["kv_cache_usage_ratio"], prefill], axis=-1)
        known = (tokens >= FEWEST_TOKENS) & np.isfinite(work).all(-1) & np.isfinite(itl)
        works[name], itls[name] = work, np.where(known, itl, np.nan)
    learn = {n: np.isfinite(itls[n]) & (servers[n]["base"] > 0) for n in servers}
    rows = np.concatenate([works[n][learn[n]] for n in servers])
    times = np.concatenate([itls[n][learn[n]] for n in servers])
    if len(times) < FEWEST_MINUTES:
        return {name: np.full(len(itl), np.nan) for name, itl in itls.items()}
    b, _ = nnls(rows / times[:, None], np.ones(len(times)))
    with np.errstate(invalid="ignore", divide="ignore"):
        return {name: np.log(works[name] @ b / itls[name]) for name in servers}


def _slow(r: Floats, base: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    level = _rolling(r, WINDOW)
    usual = level[base & np.isfinite(level)]
    if len(usual) < FEWEST_MINUTES:
        return np.zeros(len(r), bool)
    limit = np.median(usual) + min(np.log(1 - LOSS), -DEVIATIONS * float(np.std(usual)))
    slow: npt.NDArray[np.bool_] = np.nan_to_num(level, nan=0.0) <= limit
    return slow


def _limit(m: Minutes, settings: dict[str, Any]) -> tuple[npt.NDArray[np.bool_], Any]:
    """Whether requests wait and it costs, and which limit is full."""
    waits = _rolling((m["waiting_requests"] > 0).astype(float), WINDOW) >= WAITS
    first, finished = _total(m["ttft_seconds_count"]), _total(m["queue_seconds_count"])
    with np.errstate(invalid="ignore", divide="ignore"):
        share = _total(m["in_target"]) / first
        wait = _total(m["queue_seconds_sum"]) / finished
    known = "ttft_seconds" in settings.get("slo", {})
    wanted = settings.get("slo", {}).get("share", 0.95)
    costs = share < wanted if known else wait > LONG_WAIT_SECONDS
    cap = settings.get("max_num_seqs") or float(np.nanmax(m["running_requests"], initial=1.0))
    full = np.where(
        _rolling(m["kv_cache_usage_ratio"], WINDOW) >= 0.9,
        "kv_pressure",
        np.where(
            _rolling(m["running_requests"], WINDOW) >= 0.97 * cap,
            "concurrency_cap_binding",
            "token_budget_binding",
        ),
    )
    return waits & costs, full


def _moved(m: Minutes, name: str, base: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    count = _total(m["prompt_tokens_count"], LENGTHS_WINDOW)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = _total(m[f"{name}_sum"], LENGTHS_WINDOW) / count
    mean = np.where(count >= FEWEST_REQUESTS, mean, np.nan)
    usual = mean[base & np.isfinite(mean)]
    if not len(usual):
        return np.zeros(len(mean), bool)
    middle = float(np.mean(usual))
    up = np.nan_to_num(mean, nan=middle) > max(LONGER * middle, float(usual.max()))
    down = np.nan_to_num(mean, nan=middle) < min(SHORTER * middle, float(usual.min()))
    moved: npt.NDArray[np.bool_] = up | down
    return moved


def _total(values: Floats, minutes: int = WINDOW) -> Floats:
    summed = np.cumsum(np.nan_to_num(values))
    summed[minutes:] = summed[minutes:] - summed[:-minutes]
    return summed


def _rolling(values: Floats, minutes: int) -> Floats:
    """Mean of the known minutes; NaN with fewer than half."""
    known = np.isfinite(values).astype(float)
    count = _total(known, minutes)
    return np.where(count >= minutes / 2, _total(values, minutes) / np.maximum(count, 1), np.nan)


def _begins(on: npt.NDArray[np.bool_]) -> Iterator[int]:
    last = -HELD - 1
    for minute in np.flatnonzero(on).tolist():
        if minute - last > HELD:
            yield minute
        last = minute
