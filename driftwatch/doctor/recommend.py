"""Whether ``driftwatch recommend`` can answer on a pool: settings, datasheets, what is replayed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from driftwatch.doctor.checks import Check
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.advising_server import server_of
from driftwatch.pipeline.plan import Plan, Pool
from driftwatch.recommend.calibration.prior import find_gpu, find_model
from driftwatch.signals.minutes import no_minutes
from driftwatch.simulate.hardware import shipped_hardware

_PRIOR = "what recommend says of KV blocks under other settings"


def can_recommend(
    pool: Pool,
    members: Sequence[TargetKey],
    rows: Mapping[TargetKey, Mapping[str, object]],
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    gpus: pl.DataFrame | None,
) -> list[Check]:
    """Checks of one pool, by its first target that answers; none where none does.

    That max_num_seqs and max_num_batched_tokens are unknown is said by their own checks.

    Args:
        pool: the pool.
        members: its targets.
        rows: newest scrape of each target.
        targets: with their labels.
        plan: pools, and what the servers told.
        gpus: GPU readings, for their names; None = GPUs were not looked for.
    """
    key = next((k for k in members if (rows.get(k) or {}).get("ok")), None)
    if key is None:
        return []
    server = server_of(targets[key], plan, no_minutes(), row=rows[key], gpus=gpus)
    checks = [
        Check(
            "WARNING",
            pool.name,
            f"runs {what}, which no replay here knows",
            ("recommend",),
            pool=pool.name,
        )
        for what in server.unsupported
    ]
    tables = shipped_hardware()
    model, no_model = find_model(tables, server.model)
    gpu, no_gpu = find_gpu(tables, server.gpu)
    if model is None:
        checks.append(_unknown(pool, "model", server.model, no_model))
    if gpu is None and (gpus is not None or server.gpu is not None):
        checks.append(_unknown(pool, "gpu", server.gpu, no_gpu))
    if model is not None and gpu is not None:
        what = f"recommend knows the datasheets: {model.name} on {gpu.name}"
        checks.append(Check("ok", pool.name, what))
    return checks


def _unknown(pool: Pool, setting: str, name: str | None, why: str) -> Check:
    """A model or GPU that is not known, or not in the tables."""
    what = f"{setting} unknown" if name is None else why.split("; --hardware")[0]
    return Check(
        "off",  # it answers without: wider, and not on KV blocks
        pool.name,
        f"recommend: no datasheet, {what}",
        (_PRIOR,),
        f"serving.{setting}: its name in driftwatch's tables",
        pool.name,
        f"driftwatch recommend --{setting} NAME, or --hardware FILE",
        ("serving", setting),
    )
