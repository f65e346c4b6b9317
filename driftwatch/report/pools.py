"""Pools: lengths and batch against what they were tuned for, unused caps, the month. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from driftwatch.report.cells import HOUR_SECONDS
from driftwatch.report.material import Material, Reference

LENGTHS = ("prompt_tokens", "generation_tokens")
# a cap counts as reached where so much of it ran, as in the limits model
REACHED = 0.95


def pool_names(material: Material) -> list[str]:
    """Pools of the week, in order."""
    return sorted(material.cells["pool"].drop_nulls().unique().to_list())


def pool_rows(material: Material) -> list[dict[str, Any]]:
    """A row a pool, as JSON values."""
    return [_pool(material, name) for name in pool_names(material)]


def _pool(material: Material, name: str) -> dict[str, Any]:
    cells = material.cells.filter(pl.col("pool") == name)
    slo = material.slos.get(name)
    reference = _reference(material.references, name)
    return {
        "pool": name,
        "servers": cells.select("instance", "engine").unique().height,
        "slo": None
        if slo is None
        else {
            "ttft_seconds": slo.ttft_seconds,
            "tpot_seconds": slo.tpot_seconds,
            "share": slo.share,
            "derived": name in material.derived,
        },
        "finished_requests": _total(cells, "finished_requests_total"),
        "requests_over_target": _over(cells),
        "tuned_for": None if reference is None else reference.said_by,
        **{stem: _length(stem, cells, reference) for stem in LENGTHS},
        "requests_per_forward_pass": _batch(cells, reference),
        "caps": _caps(cells) | {"max_num_seqs_since": _cap_since(material, name)},
    }


def _reference(references: Sequence[Reference], pool: str) -> Reference | None:
    """The pool's own, else the mean of its targets' baselines."""
    of_pool = [one for one in references if one.pool == pool]
    whole = [one for one in of_pool if one.instance is None]
    if whole or len(of_pool) < 2:
        return next(reversed(whole or of_pool), None)
    means = {}
    for name in sorted({name for one in of_pool for name in one.values}):
        values = [one.values[name] for one in of_pool if name in one.values]
        means[name] = sum(values) / len(values)
    return Reference(pool, None, f"{len(of_pool)} baselines of its servers", means)


def _total(cells: pl.DataFrame, name: str) -> float | None:
    return None if cells[name].is_null().all() else float(cells[name].sum())


def _over(cells: pl.DataFrame) -> dict[str, float | None]:
    return {
        f"{stem}_{bound}": _total(cells, f"{stem}_over_{bound}")
        for stem in ("ttft", "tpot")
        for bound in ("low", "high")
    }


def _length(stem: str, cells: pl.DataFrame, reference: Reference | None) -> dict[str, Any]:
    """Mean of the week, the reference's mean, and how far they are apart."""
    n = _total(cells, f"{stem}_count")
    mean = float(cells[f"{stem}_sum"].sum()) / n if n else None
    before = None if reference is None else reference.values.get(f"{stem}_mean")
    return {
        "mean": mean,
        "n": n,
        "reference_mean": before,
        "ratio": mean / before if mean and before else None,
        "reason": None if mean else "no finished request",
    }


def _batch(cells: pl.DataFrame, reference: Reference | None) -> dict[str, float | None]:
    """Requests per forward pass: the week's mean, and the reference's."""
    outputs = pl.col("itl_seconds_count") + pl.col("ttft_seconds_count")
    busy = cells.filter((pl.col("forward_passes") > 0) & (outputs > 0))
    requests, passes = (
        busy.select(column.sum()).item() for column in (outputs, pl.col("forward_passes"))
    )
    before = None if reference is None else reference.values.get("requests_per_forward_pass")
    return {"mean": requests / passes if passes else None, "reference_mean": before}


def _caps(cells: pl.DataFrame) -> dict[str, Any]:
    """How far the caps and the KV cache were used; means of ten minutes, so peaks are higher."""

    def most(name: str) -> float | None:
        highest = cells[name].max()
        return float(highest) if isinstance(highest, int | float) else None

    running, kv = most("running_requests"), most("kv_cache_usage_ratio")
    caps = cells["max_num_seqs"].drop_nulls().unique().sort().to_list()
    queued = float(cells["queued_seconds"].sum())
    never = None
    if caps and running is not None:
        never = bool(running < REACHED * caps[0] and not float(cells["cap_seconds"].sum()))
    return {
        "max_num_seqs": caps,
        "max_num_seqs_inferred": bool(cells["max_num_seqs_inferred"].fill_null(False).any()),
        "max_num_seqs_reason": None if caps else "max_num_seqs unknown",
        "running_requests_peak": running,
        "queued_hours": queued / HOUR_SECONDS,
        "never_reached": never,
        "max_num_batched_tokens": cells["max_num_batched_tokens"]
        .drop_nulls()
        .unique()
        .sort()
        .to_list(),
        "kv_cache_usage_peak_ratio": kv,
        "preemptions": _total(cells, "preemptions_total"),
    }


def _cap_since(material: Material, pool: str) -> str | None:
    """The cap that was seen to be changed last, where a cap inferred before does not hold now."""
    changes = [
        one.change
        for one in material.verifications
        if one.pool == pool
        and material.since <= one.change.at < material.until
        and "max_num_seqs" in one.change.what
    ]
    last = max(changes, key=lambda change: change.at, default=None)
    return None if last is None else last.what["max_num_seqs"][1]
