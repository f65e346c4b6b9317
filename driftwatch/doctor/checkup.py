"""What can fire, what cannot, and the line that fixes it. Pure: it reads what was collected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import polars as pl

from driftwatch.baselines.in_force import fingerprint
from driftwatch.collect.fingerprint import release_text
from driftwatch.detect.baselines import Baselines
from driftwatch.doctor import targets as target_checks
from driftwatch.doctor.checks import Check, Checkup, TargetCheck, by_pool
from driftwatch.doctor.gpus import gpu_inputs
from driftwatch.doctor.pools import PoolScrapes, pool_settings
from driftwatch.doctor.rules import Costs, TargetFacts, unused, waiting
from driftwatch.doctor.sources import SourceAnswer, departed, in_time, source_checks
from driftwatch.model import Serving, Target, TargetKey
from driftwatch.pipeline.plan import Plan
from driftwatch.signals.gpus import gpu_counts


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a checkup reads beside the scrapes."""

    has_baseline: bool = False  # a baseline was named
    now: datetime | None = None  # aware; None for a recording, whose scrapes need not be fresh
    sources: Sequence[SourceAnswer] = ()  # how they answered
    gpus: pl.DataFrame | None = None  # GPU table; None = GPUs were not looked for
    # pool → what each place of the configuration says of its serving settings
    places: Mapping[str, Sequence[Serving]] = field(default_factory=dict)
    # target → what its speed waits for, "" where it is judged; None = nobody looked
    waits: Mapping[TargetKey, str] | None = None
    baselines: Baselines = field(default_factory=Baselines)  # in force in the database


def checkup(
    scrapes: pl.DataFrame, targets: Mapping[TargetKey, Target], plan: Plan, inputs: Inputs
) -> Checkup:
    """Look at every input of every enabled rule, for every target.

    ``scrapes``: what the sources brought; the newest scrape of a target counts; ``targets``: with
    their pools; ``plan``: rules and pools; ``inputs``: what else is known.
    """
    now, gpus = inputs.now, inputs.gpus
    newest = scrapes.sort("time").group_by(["instance", "engine"], maintain_order=True).last()
    rows = {TargetKey(row["instance"], row["engine"]): row for row in newest.iter_rows(named=True)}
    last = {key: row["time"] for key, row in rows.items()}
    absent = {} if now is None else departed(last, inputs.sources, now)
    here = {key: target for key, target in targets.items() if key not in absent}
    has_page = any(rows[key]["ok"] for key in here if key in rows)

    counts: Mapping[TargetKey, Mapping[str, Any]] | None = None
    end = now or scrapes["time"].max()
    if gpus is not None and here and isinstance(end, datetime):
        frame = gpu_counts(gpus, plan.gpu_targets(here.values()), end)
        counts = {TargetKey(r["instance"], r["engine"]): r for r in frame.iter_rows(named=True)}
    costs = Costs(plan.enabled, _target_facts(here, plan, rows, inputs, counts))
    of_gpus: list[Check | TargetCheck] = []
    if gpus is not None and counts is not None and has_page:
        of_gpus = list(gpu_inputs(gpus, counts, costs))

    of_targets = [one for key, one in absent.items() if key in targets]
    of_targets += _pages(scrapes, here, plan, rows, costs)
    if now is not None:
        of_targets += in_time({key: last[key] for key in here if key in last}, inputs.sources, now)
    of_targets += [one for one in of_gpus if isinstance(one, TargetCheck)]

    checks = list(source_checks(inputs.sources))
    if not targets:
        checks.append(
            Check("MISSING", "sources", "no target answered", ("every rule",), _NO_TARGET)
        )
    checks += [one for one in of_gpus if isinstance(one, Check)]
    checks += by_pool(of_targets, targets)
    checks += _pools(targets, plan, costs, rows, inputs)
    checks += [
        Check("OFF", rule.id, rule.reason or "switched off")
        for rule in plan.rules
        if not rule.is_evaluated
    ]
    # without a page there is nothing to wait for
    later = waiting(plan.enabled, here, inputs.waits) if has_page else []
    later += unused(plan.enabled, costs.facts)
    able = _able(plan, targets, costs, of_targets)
    learning, off = (
        frozenset(r for check in later if check.status == status for r in check.disables if able[r])
        for status in ("LEARNING", "OFF")
    )
    able |= dict.fromkeys(learning | off, False)
    return Checkup((*checks, *later), able, len(targets), learning, off - learning)


def _target_facts(
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    rows: Mapping[TargetKey, Mapping[str, object]],
    inputs: Inputs,
    gpus: Mapping[TargetKey, Mapping[str, Any]] | None,
) -> dict[TargetKey, TargetFacts]:
    """What decides on the columns of each target that answers."""
    pools = {key: plan.pool_of(target) for key, target in targets.items()}
    sizes = Counter(pool.name for pool in pools.values())
    return {
        key: TargetFacts(
            row,
            pools[key],
            plan.serving_of(targets[key]),
            inputs.has_baseline or inputs.baselines.of_target(*key, pools[key].name) is not None,
            sizes[pools[key].name],
            None if gpus is None else gpus[key],
            release_text(fingerprint(targets[key], plan)) is not None,
        )
        for key in sorted(targets)
        if (row := rows.get(key)) is not None and row["ok"]
    }


def _pages(
    scrapes: pl.DataFrame,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    rows: Mapping[TargetKey, Mapping[str, object]],
    costs: Costs,
) -> Iterator[TargetCheck]:
    """Whether each target has a page, and what is on it."""
    for key in sorted(targets):
        row = rows.get(key)
        yield target_checks.page(key, row)
        if row is None or not row["ok"]:
            continue
        here = [rule.in_pool(plan.pool_of(targets[key]).name) for rule in plan.enabled]
        yield from target_checks.engine(key, row, here)
        yield from target_checks.inputs(key, costs)
        count = plan.serving_of(targets[key]).api_server_count
        yield from target_checks.counting(key, row, None if count is None else count.value)
        yield from target_checks.units(key, row)
    yield from (one for one in target_checks.counters(scrapes) if one.key in targets)


def _able(
    plan: Plan, targets: Mapping[TargetKey, Target], costs: Costs, checks: Iterable[TargetCheck]
) -> dict[str, bool]:
    """Enabled rule id → it can fire on every target."""
    blind = any(one.status == "MISSING" and one.disables == ("every rule",) for one in checks)
    lost = {rule for key in costs.facts for rule in costs.lost(key)}
    return {rule.id: bool(targets) and not blind and rule.id not in lost for rule in plan.enabled}


_NO_TARGET = "does the source hold vllm: series, of servers that `match` lets through?"


def _pools(
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    costs: Costs,
    rows: Mapping[TargetKey, Mapping[str, object]],
    inputs: Inputs,
) -> Iterator[Check]:
    """Every pool's settings, pools without targets, and targets without a pool."""
    configured = {pool.name for pool in plan.pools}
    pools: dict[str, PoolScrapes] = {}
    for key, target in sorted(targets.items()):
        pool = plan.pool_of(target)
        if pool.name not in pools:
            pools[pool.name] = PoolScrapes(pool, {}, rows, inputs.places.get(pool.name, ()))
        pools[pool.name].targets[key] = target
    for name, of in sorted(pools.items()):
        # what a server that never answered belongs to, nobody knows
        if not of.answers and name not in configured:
            continue
        yield from pool_settings(of, costs)
        if configured and name not in configured:
            members = sorted(of.targets)
            first = ", ".join(key.text for key in members[:3]) + (", …" if len(members) > 3 else "")
            yield Check(
                "WARNING",
                name,
                f"no configured pool matches {len(members)} of {len(targets)} targets ({first})",
                ("what is configured for pools",),
                "pools: match of one of them, or one more",
                setting=("pools",),
            )
    for pool in plan.pools if targets else ():
        if pool.name not in pools:
            yield Check(
                "WARNING",
                pool.name,
                "no target belongs to it",
                ("what is configured for it",),
                "match: the labels of its targets",
                pool.name,
                setting=("match",),
            )
