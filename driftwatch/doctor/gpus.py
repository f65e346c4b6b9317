"""Are the GPUs read, and are they as many as declared?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from driftwatch.collect.gpus import GPU_FIELDS, NVML_COLUMNS, GpuField
from driftwatch.doctor.checks import Check, TargetCheck
from driftwatch.doctor.rules import Cost, Costs
from driftwatch.model import TargetKey
from driftwatch.signals.gpus import reasons_of

_UNIT = "serve it in DCGM's unit: take away what multiplies it (a recording or relabelling rule)"


def gpu_inputs(
    gpus: pl.DataFrame, rows: Mapping[TargetKey, Mapping[str, Any]], costs: Costs
) -> Iterator[TargetCheck | Check]:
    """Counts, and the readings of each target.

    ``gpus``: GPU table of the last minutes; ``rows``: target → its row of
    :func:`driftwatch.signals.gpus.gpu_counts`; ``costs``: what is never known.
    """
    if not gpus.is_empty():
        for key, row in rows.items():
            cost = costs.of((key,), "gpu_reading", "gpu_count")
            yield from _count(key, row, cost, costs)
            yield from _lost(key, row)
        yield from _unread(gpus)
        return
    cost = costs.of(rows, "gpu_reading", "gpu_count")
    undeclared = any(row["gpus_declared"] is None for row in rows.values())
    yield Check(
        status=cost.severity,
        where="gpus",
        what="no DCGM or NVML reading",
        disables=(
            *cost.disables,
            "the GPU line of a page",
            *(("tokens/s/GPU where gpus_per_replica is not declared",) if undeclared else ()),
        ),
        fix="scrape dcgm-exporter with the Prometheus of a source; or add sources: [{dcgm: "
        "[http://host:9400/metrics]}]; or on the GPUs' own host, sources: [{nvml: true}]"
        + _or_off(costs, cost.lost),
    )


def _or_off(costs: Costs, lost: tuple[str, ...]) -> str:
    """The other way out: rules that nobody can feed are switched off, where they stand."""
    rules = [rule for rule in costs.rules if rule.id in lost]
    if not rules:
        return ""
    off = "alert: {}, enabled: false, reason: no GPU readings"
    names = dict.fromkeys(rule.alert for rule in rules)
    overrides = ", ".join(f"{{{off.format(name)}}}" for name in names)
    return f"; or without GPU readings, in driftwatch.yaml: rules: {{overrides: [{overrides}]}}"


def _count(
    key: TargetKey, row: Mapping[str, Any], cost: Cost, costs: Costs
) -> Iterator[TargetCheck]:
    declared, counted, source = row["gpus_declared"], row["gpus_found"], row["gpu_count_source"]
    setting = ("gpus_per_replica",)
    reasons = reasons_of(row["gpu_reasons"])
    if row["contradicted"]:
        what = f"gpus_per_replica is {declared:g}, {row['gpus_found_origin']} shows {counted:g}"
        disables = ("tokens/s/GPU is of the declared number",)
        if declared > counted:
            what += ": over several nodes, of which one is read? then the declared number is right"
            yield TargetCheck(
                key, "WARNING", what, disables, setting=setting, kind=f"fewer {counted}"
            )
        else:
            fix = f"gpus_per_replica: {counted:g}"
            yield TargetCheck(key, "WRONG", what, disables, fix, setting, f"count {counted}")
    elif source is not None:
        yield TargetCheck(key, "ok", f"GPUs: {source}")
    if counted is None:
        why = reasons.get("gpu_count") or reasons.get("gpus_lost") or "no reading joins it"
        yield TargetCheck(
            key,
            cost.severity,
            f"no GPU readings: {why}",
            (*cost.disables, *(("tokens/s/GPU",) if declared is None else ())),
            "gpu_uuids on bare metal; on Kubernetes, namespace and pod labels on both sides"
            + _or_off(costs, cost.lost),
            setting,
            f"no count {declared}",
        )
    elif cost.disables:
        why = "; ".join(sorted({f"{c}: {reasons[c]}" for c in reasons if row.get(c) is None}))
        yield TargetCheck(
            key,
            cost.severity,
            f"GPU inputs of rules are not read: {why}",
            cost.disables,
            kind="blind",
        )


def _lost(key: TargetKey, row: Mapping[str, Any]) -> Iterator[TargetCheck]:
    if row["gpus_lost"]:
        yield TargetCheck(
            key,
            "WRONG",
            f"{row['gpus_lost']:g} of its GPUs fell off the bus (GPU_IS_LOST or XID 79)",
            ("every number of this target",),
            "drain it and reset or replace the GPU",
            kind="lost",
        )


def _unread(gpus: pl.DataFrame) -> Iterator[Check]:
    """Fields that no reading has, with the origin's reason and what turns them on."""
    newest = gpus.filter(pl.col("time") == pl.col("time").max().over("exporter"))
    for (origin,), rows in sorted(newest.group_by("origin"), key=lambda group: str(group[0])):
        unread: dict[str, list[tuple[GpuField, int]]] = {}
        for field in GPU_FIELDS:
            if origin == "NVML" and field.column not in NVML_COLUMNS:
                continue
            missing = rows.filter(pl.col(field.column).is_null())
            if missing.is_empty():
                continue
            why = missing["reasons"].str.json_path_match(f"$.{field.column}").drop_nulls()
            first = str(why.sort()[0]) if len(why) else "not read"
            for name in field.dcgm_names:
                first = first.removeprefix(name).removeprefix(" or ")
            reason = first.strip(" :")
            unread.setdefault(reason, []).append((field, missing.height))
        for reason, fields in sorted(unread.items()):
            names = [field.dcgm_names[0] for field, _ in fields]
            count = max(number for _, number in fields)
            lines = "; ".join(f"{f.dcgm_names[0]}, gauge, {f.meaning}" for f, _ in fields)
            exported = "not exported" in reason
            # one odd number is a glitch, the same on every GPU a unit
            unit = count == rows.height and any(f.why_most in reason for f, _ in fields)
            fix = f"dcgm-exporter's counters file (-f): {lines}" if exported else None
            yield Check(
                status="WRONG" if unit else "WARNING",
                where=str(origin),
                what=f"{', '.join(names)}: {reason} ({count} of {rows.height} GPUs)",
                disables=(", ".join(field.column for field, _ in fields) + " of GPUs",),
                fix=_UNIT if unit else fix,
            )
        if not unread:
            what = f"every field is read on {rows.height} GPUs"
            yield Check(status="ok", where=str(origin), what=what)
