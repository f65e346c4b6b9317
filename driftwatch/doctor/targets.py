"""Does each target show a page, the inputs of the rules, numbers that can be true, and its GPUs?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import polars as pl

from driftwatch.collect.foreign import fix_of
from driftwatch.collect.gpus import GPU_FIELDS, NVML_FIELDS, GpuField
from driftwatch.collect.registry import BY_COLUMN, HISTOGRAMS
from driftwatch.doctor.rules import Check, Cost, Costs, Status, TargetCheck
from driftwatch.evidence import BY_NAME, COLUMNS
from driftwatch.minutes.continuity import NEVER_ZERO
from driftwatch.minutes.engine import KIND_COLUMNS, kind_of_scrape
from driftwatch.model import TargetKey
from driftwatch.notify.engine_words import ASLEEP, ENGINE_WORDS, NEVER_FILLED, NOT_APPLICABLE
from driftwatch.rulebook.rules import Rule
from driftwatch.rulebook.truths import can_be_true
from driftwatch.signals.gpus import reasons_of

Row = Mapping[str, object]
_NO_READING = (
    "scrape dcgm-exporter with Prometheus, or by sources: [{dcgm: [http://host:9400/metrics]}]"
)
_NO_JOIN = "gpu_uuids on bare metal; on Kubernetes, namespace and pod labels on both sides"
_UNIT = "serve it in DCGM's unit: take away what multiplies it (a recording or relabelling rule)"

# vLLM's largest edge is 7,680 s and its longest pauses between two tokens are seconds; what is
# beyond these is counted in milliseconds
_EDGE_SECONDS = 50_000.0
_ITL_SECONDS = 10.0
_COUNTERS = ("prompt_tokens_total", "generation_tokens_total", "finished_requests_total")


def page(key: TargetKey, row: Row | None) -> TargetCheck:
    """Whether there is a page of vLLM."""
    if row is not None and row["ok"]:
        return TargetCheck(key, "ok", "page read")
    reason = "no scrape" if row is None else str(row["reason"])
    fix = fix_of(reason) or "is vLLM running there, and is the address right?"
    return TargetCheck(key, "MISSING", reason, ("every rule",), fix)


def engine(key: TargetKey, row: Row, rules: Iterable[Rule]) -> Iterator[TargetCheck]:
    """What kind of engine it is where that is not the usual one, and the rules it is not for."""
    if row["engine_awake"] == 0:
        yield TargetCheck(key, "ok", f"{ASLEEP}: its rules wait until it is woken")
    schema = dict.fromkeys(KIND_COLUMNS, pl.Float64)
    counted = pl.DataFrame([{name: row[name] for name in KIND_COLUMNS}], schema=schema)
    kind = counted.select(kind_of_scrape()).item()
    if kind not in ENGINE_WORDS:
        return
    never = NEVER_FILLED.get(kind, frozenset())
    dark = frozenset(c.name for c in COLUMNS if (set(c.sources) - set(c.optional)) & never)
    lost = tuple(rule.id for rule in rules if rule.enabled and not can_be_true(rule.when, dark))
    what = f"not applicable: {ENGINE_WORDS[kind]}: {NOT_APPLICABLE[kind]}"
    yield TargetCheck(key, "OFF", what, lost)


def inputs(key: TargetKey, costs: Costs) -> Iterator[TargetCheck]:
    """Every metric that a rule reads."""
    facts, rules = costs.facts[key], costs.rules
    columns = {column for rule in rules for column in rule.columns}
    sources = sorted({s for c in columns for s in BY_NAME[c].sources if s in BY_COLUMN})
    missing = 0
    for source in sources:
        cost = costs.of((key,), source)
        poorer = [
            rule.id
            for rule in rules
            if rule.id not in (*cost.lost, *cost.partly)
            and any(source in facts.poorer(BY_NAME[column]) for column in rule.columns)
        ]
        disables = (*cost.disables, *(f"a part of {rule}" for rule in poorer))
        if disables:
            missing += 1
            what = f"{BY_COLUMN[source].wire_name}: not on the page"
            yield TargetCheck(key, "MISSING" if cost.lost else "WARNING", what, disables)
    if missing < len(sources):
        what = f"{len(sources) - missing} inputs of the rules are on the page"
        yield TargetCheck(key, "ok", what)


def counting(key: TargetKey, row: Row, configured: float | None) -> Iterator[TargetCheck]:
    """Whether engine steps are counted once, or by how many API servers."""
    if row["several_api_servers"] and configured is not None:
        what = f"steps are counted by {configured:g} API servers, as configured"
        yield TargetCheck(key, "ok", what)
    elif row["several_api_servers"]:
        what = (
            "no process_start_time_seconds and no _created: several API servers, each of which "
            "counts every engine step, or a relabelling rule that drops them"
        )
        costs = ("requests_per_forward_pass and tokens_per_forward_pass may be too low",)
        fix = "serving.arguments: --api-server-count 1 if there is one; else their number"
        yield TargetCheck(key, "WARNING", what, costs, fix, ("serving", "arguments"))


def units(key: TargetKey, row: Row) -> Iterator[TargetCheck]:
    """Whether the newest numbers can be what their names say."""
    wrong = [*_percentages(key, row), *_milliseconds(key, row)]
    yield from wrong or [TargetCheck(key, "ok", "ratios and seconds are plausible")]


def _percentages(key: TargetKey, row: Row) -> Iterator[TargetCheck]:
    usage = row["kv_cache_usage_ratio"]
    if isinstance(usage, float) and usage > 1:
        name = BY_COLUMN["kv_cache_usage_ratio"].wire_name
        what = f"{name} is {usage:g}: not a ratio of 0 to 1, a percentage?"
        costs = ("the KV cache's limit and margin",)
        fix = "take away what multiplies it (a recording or relabelling rule)"
        yield TargetCheck(key, "WRONG", what, costs, fix, kind="kv percent", weight=usage)


def _milliseconds(key: TargetKey, row: Row) -> Iterator[TargetCheck]:
    for name in (h for h in HISTOGRAMS if h.endswith("_seconds")):
        edges, count, total = row.get(f"{name}_edges"), row[f"{name}_count"], row[f"{name}_sum"]
        finite = [e for e in edges if math.isfinite(e)] if isinstance(edges, list) else []
        last, mean = max(finite, default=0.0), 0.0
        if isinstance(total, float) and isinstance(count, float) and count:
            mean = total / count
        if last > _EDGE_SECONDS:
            what = f"has buckets up to {last:,.0f} s"
        elif name == "itl_seconds" and mean > _ITL_SECONDS:
            what = f"has a mean of {mean:,.0f} s between two tokens"
        elif total == 0 and count and name in NEVER_ZERO:
            what = f"adds up to 0 s in {count:,.0f} requests"
        else:
            continue
        unit, fix = "milliseconds?", "serve it in seconds"
        if total == 0:
            unit, fix = "not measured", "another release of vLLM; until then it is unknown"
        columns = [c.name for c in BY_NAME.values() if name in c.sources and c.unit == "seconds"]
        what = f"{BY_COLUMN[name].wire_name} {what}: {unit}"
        kind, costs = f"{name} milliseconds", tuple(columns[:3])
        yield TargetCheck(key, "WRONG", what, costs, fix, kind=kind, weight=max(last, mean))


def counters(scrapes: pl.DataFrame) -> Iterator[TargetCheck]:
    """Counters that fall though the server did not start again: two servers at one address."""
    by = ["instance", "engine"]
    start = pl.col("process_start_time_seconds")
    same = start.is_not_null() & (start == start.shift(1).over(by))
    back = start < start.shift(1).over(by) - 1
    falls = {c: (pl.col(c).diff().over(by) < 0) & same for c in _COUNTERS}
    engines = (
        scrapes.filter("ok")
        .sort(*by, "time")
        .select(
            *by, back=back.fill_null(False), **{c: f.fill_null(False) for c, f in falls.items()}
        )
        .group_by(by, maintain_order=True)
        .agg(pl.col("back").sum(), pl.col(*_COUNTERS).any())
    )
    for row in engines.iter_rows(named=True):
        fallen = [BY_COLUMN[c].wire_name for c in _COUNTERS if row[c]]
        key = TargetKey(*(row[c] for c in by))
        if row["back"] == 1:
            what = "its start time went back once: another server answers now, or a clock was set"
            fix = "is it the right server? Then nothing to do"
            yield TargetCheck(key, "WARNING", what, fix=fix)
            continue
        if row["back"]:
            what = "its start time goes back and forth: several servers answer at this address"
        elif fallen:
            what = f"{fallen[0]} falls though the server did not start again: are two summed up?"
        else:
            continue
        costs = ("every rule: rates are of two servers",)
        fix = "scrape each server at its own address, not through a load balancer"
        yield TargetCheck(key, "WRONG", what, costs, fix)


def gpu_inputs(
    gpus: pl.DataFrame, rows: Mapping[TargetKey, Mapping[str, Any]], costs: Costs
) -> Iterator[TargetCheck | Check]:
    """Counts, and the readings of each target.

    ``gpus``: GPU table of the last minutes; ``rows``: target → its row of
    :func:`driftwatch.signals.gpus.gpu_counts`; ``costs``: columns that are always unknown.
    """
    if not gpus.is_empty():
        for key, row in rows.items():
            cost = costs.of((key,), "gpu_reading", "gpu_count")
            yield from _count(key, row, cost, costs)
        yield from _unread(gpus)
        return
    cost = costs.of(rows, "gpu_reading", "gpu_count")
    lost = [*cost.disables, "the GPU line of a page"]
    if any(row["gpus_declared"] is None for row in rows.values()):
        lost.append("tokens/s/GPU where gpus_per_replica is not declared")
    fix, what = _NO_READING + _or_off(costs, cost.lost), "no DCGM or NVML reading"
    # a page without a line of GPUs is no trouble by itself
    status = cost.severity if len(lost) > 1 else "ok"
    what += "" if cost.lost else f", so no {' and no '.join(lost)}"
    yield Check(status, "gpus", what, tuple(lost), fix)


def _or_off(costs: Costs, lost: tuple[str, ...]) -> str:
    """The other way out: rules that nobody can feed are switched off, where they stand."""
    rules = [rule for rule in costs.rules if rule.id in lost]
    if not rules:
        return ""
    off = "alert: {}, enabled: false, reason: no GPU readings"
    names = dict.fromkeys(rule.alert for rule in rules)
    overrides = ", ".join(f"{{{off.format(name)}}}" for name in names)
    return f"; or without: rules: {{overrides: [{overrides}]}}"


def _count(
    key: TargetKey, row: Mapping[str, Any], cost: Cost, costs: Costs
) -> Iterator[TargetCheck]:
    declared, counted, source = row["gpus_declared"], row["gpus_found"], row["gpu_count_source"]
    setting = ("gpus_per_replica",)
    status: Status
    fix: str | None
    reasons = reasons_of(row["gpu_reasons"])
    if row["contradicted"]:
        what = f"gpus_per_replica is {declared:g}, {row['gpus_found_origin']} shows {counted:g}"
        disables = ("tokens/s/GPU is of the declared number",)
        status, fix = "WRONG", f"gpus_per_replica: {counted:g}"
        if declared > counted:
            what += ": over several nodes, of which one is read? then the declared number is right"
            status, fix = "WARNING", None
        yield TargetCheck(key, status, what, disables, fix, setting, f"count {counted}")
    elif source is not None:
        yield TargetCheck(key, "ok", f"GPUs: {source}")
    if counted is None:
        why = reasons.get("gpu_count") or reasons.get("gpus_lost") or "no reading joins it"
        what = why if why.startswith("no GPU reading") else f"no GPU readings: {why}"
        disables = (*cost.disables, *(("tokens/s/GPU",) if declared is None else ()))
        fix = _NO_JOIN + _or_off(costs, cost.lost)
        yield TargetCheck(key, cost.severity, what, disables, fix, setting, f"no count {declared}")
    elif cost.disables:
        why = "; ".join(sorted({f"{c}: {reasons[c]}" for c in reasons if row.get(c) is None}))
        what = f"GPU inputs of rules are not read: {why}"
        yield TargetCheck(key, cost.severity, what, cost.disables, kind="blind")
    if row["gpus_lost"]:
        what = f"{row['gpus_lost']:g} of its GPUs fell off the bus (GPU_IS_LOST or XID 79)"
        fix, disables = "drain it and reset or replace the GPU", ("every number of this target",)
        yield TargetCheck(key, "WRONG", what, disables, fix, kind="lost")


def _unread(gpus: pl.DataFrame) -> Iterator[Check]:
    """Fields that no reading has, with the origin's reason and what turns them on."""
    newest = gpus.filter(pl.col("time") == pl.col("time").max().over("exporter"))
    for (origin,), rows in sorted(newest.group_by("origin"), key=lambda group: str(group[0])):
        unread: dict[str, list[tuple[GpuField, int]]] = {}
        for field in NVML_FIELDS if origin == "NVML" else GPU_FIELDS:
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
            what = f"{', '.join(names)}: {reason} ({count} of {rows.height} GPUs)"
            disables = (", ".join(field.column for field, _ in fields) + " of GPUs",)
            status: Status = "WRONG" if unit else "WARNING"
            yield Check(status, str(origin), what, disables, _UNIT if unit else fix)
        if not unread:
            yield Check("ok", str(origin), f"every field is read on {rows.height} GPUs")
