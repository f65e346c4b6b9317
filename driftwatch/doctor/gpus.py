"""What DCGM and NVML say of each target's GPUs, beside what is declared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import polars as pl

from driftwatch.collect.gpus import GPU_FIELDS, GpuField
from driftwatch.doctor.checks import Check, Seen
from driftwatch.doctor.needs import Cost, Costs
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.plan import Plan
from driftwatch.signals.gpus import gpu_counts
from driftwatch.signals.gpus.words import reasons_of

_UNIT = "serve it in DCGM's unit: take away what multiplies it (a recording or relabelling rule)"
_BUSY = 0.2  # a kernel is resident at least as long as the engine is active
_COUNTED = ("gpu_count", "gpu_count_source")


def counted(
    gpus: pl.DataFrame, targets: Mapping[TargetKey, Target], plan: Plan, now: datetime
) -> dict[TargetKey, Mapping[str, Any]]:
    """Each target's row of :func:`driftwatch.signals.gpus.gpu_counts`.

    Args:
        gpus: GPU table of the last minutes.
        targets: with their pools.
        plan: what is declared.
        now: aware.
    """
    rows = gpu_counts(gpus, plan.gpu_targets(targets.values()), now)
    return {TargetKey(row["instance"], row["engine"]): row for row in rows.iter_rows(named=True)}


def gpu_inputs(
    gpus: pl.DataFrame,
    rows: Mapping[TargetKey, Mapping[str, Any]],
    costs: Costs,
) -> Iterator[Seen | Check]:
    """Counts, and the readings of each target.

    Args:
        gpus: GPU table of the last minutes.
        rows: from :func:`counted`.
        costs: what is never known.
    """
    if gpus.is_empty():
        cost = costs.of(rows, "gpu_reading", "gpu_count")
        undeclared = any(row["gpus_declared"] is None for row in rows.values())
        yield Check(
            "MISSING" if cost.lost else "WARNING",
            "gpus",
            "no DCGM or NVML reading",
            (
                *cost.told,
                "GPU_UTIL, tensor, DRAM activity, power and clock beside a page",
                *(("tokens/s/GPU where gpus_per_replica is not declared",) if undeclared else ()),
            ),
            "dcgm-exporter in the Prometheus of a source, sources: [{dcgm: "
            "[http://host:9400/metrics]}], or sources: [{nvml: true}] on the GPUs' own host"
            + _or_off(costs, cost.lost),
        )
        return
    for key, row in rows.items():
        cost = costs.of((key,), "gpu_reading", "gpu_count")
        yield from _count(key, row, cost, costs)
        yield from _notes(key, row)
    yield from _unread(gpus)


def _or_off(costs: Costs, lost: tuple[str, ...]) -> str:
    """The other way out: rules that nobody can feed are switched off, where they stand."""
    rules = [rule for rule in costs.rules if rule.id in lost]
    if not rules:
        return ""
    where = ", ".join(f"{rule.id} ({rule.path}:{rule.line})" for rule in rules)
    return (
        f"; or without GPU readings, enabled: false and a reason at {where}, in a copy of that "
        "folder named by rules: [FOLDER]"
    )


def _count(key: TargetKey, row: Mapping[str, Any], cost: Cost, costs: Costs) -> Iterator[Seen]:
    declared, found, source = row["gpus_declared"], row["gpus_found"], row["gpu_count_source"]
    if row["contradicted"] and declared > found:
        yield Seen(
            key,
            "WARNING",
            f"fewer {found}",
            f"gpus_per_replica is {declared:g}, {row['gpus_found_origin']} shows {found:g}: over "
            "several nodes, of which one is read? then the declared number is right",
            ("tokens/s/GPU is of the declared number",),
            setting=("gpus_per_replica",),
        )
    elif row["contradicted"]:
        yield Seen(
            key,
            "WRONG",
            f"count {found}",
            f"gpus_per_replica is {declared:g}, {row['gpus_found_origin']} shows {found:g}",
            ("tokens/s/GPU is of the declared number",),
            f"gpus_per_replica: {found:g}",
            setting=("gpus_per_replica",),
        )
    elif source is not None:
        yield Seen(key, "ok", f"gpus {source}", f"GPUs: {source}")
    if found is None:
        reasons = reasons_of(_text(row["gpu_reasons"]))
        why = reasons.get("gpu_count") or reasons.get("gpus_lost") or "no reading joins it"
        yield Seen(
            key,
            "MISSING" if cost.lost else "WARNING",
            f"no count {declared}",
            f"no GPU readings: {why}",
            (*cost.told, *(("tokens/s/GPU",) if declared is None else ())),
            "gpu_uuids on bare metal; on Kubernetes, namespace and pod labels on both sides"
            + _or_off(costs, cost.lost),
            setting=("gpus_per_replica",),
        )
    elif cost.told:
        reasons = reasons_of(_text(row["gpu_reasons"]))
        why = "; ".join(sorted({f"{c}: {reasons[c]}" for c in reasons if row.get(c) is None}))
        yield Seen(
            key,
            "MISSING" if cost.lost else "WARNING",
            "blind",
            f"GPU inputs of rules are not read: {why}",
            cost.told,
        )


def _notes(key: TargetKey, row: Mapping[str, Any]) -> Iterator[Seen]:
    source = _text(row["gpu_count_source"]) or ""
    if "; shared by" in source:
        shared = next(part for part in source.split("; ") if part.startswith("shared by"))
        yield Seen(
            key,
            "WARNING",
            "time-slicing",
            f"its GPUs are {shared} (time-slicing): readings are of the whole device",
            ("GPU readings are not of this target alone; the count is by shares",),
        )
    if row["gpus_lost"]:
        yield Seen(
            key,
            "WRONG",
            "lost",
            f"{row['gpus_lost']:g} of its GPUs fell off the bus (GPU_IS_LOST or XID 79)",
            ("every number of this target",),
            "drain it and reset or replace the GPU",
        )
    if row["gpus_found"]:
        for column, why in sorted(reasons_of(_text(row["gpu_reasons"])).items()):
            # what is not exported is told of the exporter, with the line that mends it
            told = "s before the window" in why or " not exported" in why
            if column not in _COUNTED and not told:
                yield Seen(key, "off", f"{column} {why}", f"{column}: {why}")


def _unread(gpus: pl.DataFrame) -> Iterator[Check]:
    """Fields that no reading has, with the origin's reason and what turns them on."""
    newest = gpus.filter(pl.col("time") == pl.col("time").max().over("exporter"))
    for (origin,), rows in sorted(newest.group_by("origin"), key=lambda group: str(group[0])):
        told: dict[str, list[tuple[GpuField, int]]] = {}
        for field in GPU_FIELDS:
            if origin == "NVML" and not field.nvml_call:
                continue
            missing = rows.filter(pl.col(field.column).is_null())
            if missing.is_empty():
                continue
            why = missing["reasons"].str.json_path_match(f"$.{field.column}").drop_nulls()
            first = str(why.sort()[0]) if len(why) else "not read"
            reason = first.replace(field.dcgm_names[0], "").strip(" :")
            told.setdefault(reason, []).append((field, missing.height))
        for reason, fields in sorted(told.items()):
            names = [field.dcgm_names[0] for field, _ in fields]
            count = max(number for _, number in fields)
            lines = "; ".join(
                f"{f.dcgm_names[0]}, {'counter' if 'total' in f.column else 'gauge'}, {f.meaning}"
                for f, _ in fields
            )
            exported = "not exported" in reason
            # one odd number is a glitch, the same on every GPU a unit
            unit = count == rows.height and any(f.why_most in reason for f, _ in fields)
            fix = f"dcgm-exporter's counters file (-f): {lines}" if exported else None
            yield Check(
                "WRONG" if unit else "WARNING",
                str(origin),
                f"{', '.join(names)}: {reason} ({count} of {rows.height} GPUs)",
                (", ".join(field.column for field, _ in fields) + " of GPUs",),
                _UNIT if unit else fix,
            )
        yield from _ratio_for_percent(str(origin), rows)
        if not told:
            yield Check("ok", str(origin), f"every field is read on {rows.height} GPUs")
        mig = rows["mig_profile"].drop_nulls().unique().sort()
        if len(mig):
            yield Check(
                "ok",
                str(origin),
                f"MIG ({', '.join(mig)}): GPU_UTIL is not supported there, the engine's active "
                "share stands in",
            )


def _ratio_for_percent(origin: str, rows: pl.DataFrame) -> Iterator[Check]:
    """GPU_UTIL of 1 % at most on every GPU, though their engines are busy."""
    read = rows.filter(pl.col("mig_profile").is_null()).select(
        "utilization_ratio", "engine_active_ratio"
    )
    read = read.drop_nulls().filter(pl.col("utilization_ratio") > 0)
    if read.is_empty() or (read["utilization_ratio"] > 0.01).any():
        return
    busy = read.filter(pl.col("engine_active_ratio") >= _BUSY)
    if busy.is_empty():
        return
    percent = busy["utilization_ratio"].max()
    active = busy["engine_active_ratio"].max()
    assert isinstance(percent, float) and isinstance(active, float)  # noqa: S101
    yield Check(
        "WRONG",
        origin,
        f"DCGM_FI_DEV_GPU_UTIL is {percent * 100:g} at most on every GPU, and an engine is active "
        f"{active:.0%} of the time: a ratio instead of percent?",
        ("gpu_utilization_ratio",),
        _UNIT,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
