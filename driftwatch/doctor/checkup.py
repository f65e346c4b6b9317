"""What can fire, what cannot, and the line that fixes it. Pure: it reads what was collected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import polars as pl

from driftwatch.baselines.pinned import fingerprint
from driftwatch.detect.fingerprints import release_text
from driftwatch.doctor import targets as shown
from driftwatch.doctor import times
from driftwatch.doctor.arming import arming
from driftwatch.doctor.checks import Check, Checkup, Seen, by_pool
from driftwatch.doctor.gpus import counted, gpu_inputs
from driftwatch.doctor.needs import Costs, Known
from driftwatch.doctor.recommend import can_recommend
from driftwatch.doctor.settings import pool_settings
from driftwatch.doctor.sources import answers
from driftwatch.model import Serving, Target, TargetKey
from driftwatch.pipeline.plan import Plan, Pool

__all__ = ["Check", "Checkup", "checkup", "receivers_told"]


def checkup(
    scrapes: pl.DataFrame,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    has_reference: bool,
    *,
    now: datetime | None = None,
    sources: Sequence[times.SourceSeen] = (),
    gpus: pl.DataFrame | None = None,
    interval_seconds: float = 15.0,
    said: Mapping[str, Sequence[Serving]] | None = None,
    waits: Mapping[TargetKey, str] | None = None,
) -> Checkup:
    """Look at every input of every enabled rule, for every target.

    Args:
        scrapes: what the sources brought; the newest scrape of a target counts.
        targets: with their pools.
        plan: rules and pools.
        has_reference: a baseline was named.
        now: aware; None for a recording, whose scrapes need not be fresh.
        sources: as they were met.
        gpus: GPU table; None = GPUs were not looked for.
        interval_seconds: between two ticks.
        said: pool → what each place of the configuration says of its serving settings.
        waits: target → what its pin lacks, "" where one is in force; None = nobody looked.
    """
    newest = scrapes.sort("time").group_by(["instance", "engine"], maintain_order=True).last()
    rows = {TargetKey(row["instance"], row["engine"]): row for row in newest.iter_rows(named=True)}
    last = times.newest_times(scrapes)
    left = {} if now is None else times.departed(last, sources, now)
    here = {key: target for key, target in targets.items() if key not in left}
    end = now or scrapes["time"].max()
    on_gpus: Mapping[TargetKey, Mapping[str, Any]] | None = None
    if gpus is not None and here and isinstance(end, datetime):
        on_gpus = counted(gpus, here, plan, end)
    costs = Costs(plan.enabled, _known(here, plan, rows, has_reference, on_gpus))
    found = [] if gpus is None or on_gpus is None else list(gpu_inputs(gpus, on_gpus, costs))

    seen = [one for key, one in left.items() if key in targets]
    seen += _pages(scrapes, here, plan, rows, costs)
    if now is not None:
        seen += _in_time({key: last[key] for key in here if key in last}, sources, now)
    seen += [one for one in found if isinstance(one, Seen)]

    checks = list(answers(sources, interval_seconds))
    if not targets:
        checks.append(
            Check("MISSING", "sources", "no target answered", ("every rule",), _NO_TARGET)
        )
    checks += times.clocks(sources)
    checks += [] if now is None else times.alike(sources, targets)
    checks += [one for one in found if isinstance(one, Check)]
    checks += by_pool(seen, targets)
    checks += _pools(targets, plan, costs, rows, said or {}, gpus)
    checks += [
        Check("off", rule.id, rule.reason or "switched off")
        for rule in plan.rules
        if not rule.enabled
    ]
    slowly, later = arming(plan.enabled, here, waits)
    can = _able(plan, targets, costs, seen)
    later &= {rule for rule, able in can.items() if able}
    can |= dict.fromkeys(later, False)
    return Checkup((*checks, *slowly), can, len(targets), later)


def _pages(
    scrapes: pl.DataFrame,
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    rows: Mapping[TargetKey, Mapping[str, Any]],
    costs: Costs,
) -> Iterator[Seen]:
    """Whether each target has a page, and what is on it."""
    for key in sorted(targets):
        row = rows.get(key)
        found = shown.page(key, row)
        yield found
        if found.status == "MISSING" or row is None:
            continue
        yield from shown.engine(key, row, plan.enabled)
        yield from shown.inputs(key, costs)
        count = plan.serving_of(targets[key]).api_server_count
        yield from shown.counting(key, row, None if count is None else count.value)
        yield from shown.units(key, row)
    yield from (one for one in shown.counters(scrapes) if one.key in targets)


def _in_time(
    last: Mapping[TargetKey, datetime], sources: Sequence[times.SourceSeen], now: datetime
) -> Iterator[Seen]:
    """Whether each target is scraped still, and often enough."""
    of = {instance: source for source in sources for instance in source.instances}
    for key, at in sorted(last.items()):
        if (source := of.get(key.instance)) is not None:
            yield from times.fresh(key, at, source, now)
            yield from times.often(key, source)


def _able(
    plan: Plan, targets: Mapping[TargetKey, Target], costs: Costs, seen: Iterable[Seen]
) -> dict[str, bool]:
    """Enabled rule id → it can fire on every target."""
    blind = any(one.status == "MISSING" and one.disables == ("every rule",) for one in seen)
    lost = {rule for key in costs.known for rule in costs.lost(key)}
    able = bool(targets) and not blind
    return {rule.id: able and rule.id not in lost for rule in plan.enabled}


def _known(
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    rows: Mapping[TargetKey, Mapping[str, object]],
    has_reference: bool,
    on_gpus: Mapping[TargetKey, Mapping[str, Any]] | None,
) -> dict[TargetKey, Known]:
    """What decides on the columns of each target that answers."""
    pools = {key: plan.pool_of(target) for key, target in targets.items()}
    sizes = Counter(pool.name for pool in pools.values())
    return {
        key: Known(
            row,
            pools[key],
            plan.serving_of(targets[key]),
            has_reference,
            sizes[pools[key].name],
            None if on_gpus is None else on_gpus[key],
            release_text(fingerprint(targets[key], plan)) is not None,
        )
        for key in sorted(targets)
        if (row := rows.get(key)) is not None and row["ok"]
    }


_NO_TARGET = "does the source hold vllm: series, of servers that `match` lets through?"


def _pools(
    targets: Mapping[TargetKey, Target],
    plan: Plan,
    costs: Costs,
    rows: Mapping[TargetKey, Mapping[str, object]],
    said: Mapping[str, Sequence[Serving]],
    gpus: pl.DataFrame | None,
) -> list[Check]:
    """Every pool's settings, pools without targets, and targets without a pool."""
    configured = {pool.name for pool in plan.pools}
    pools: dict[str, Pool] = {}
    members: dict[str, list[TargetKey]] = {}
    for key, target in sorted(targets.items()):
        pool = plan.pool_of(target)
        pools[pool.name] = pool
        members.setdefault(pool.name, []).append(key)
    checks: list[Check] = []
    for name in sorted(pools):
        live = any((rows.get(key) or {}).get("ok") for key in members[name])
        # what a server that never answered belongs to, nobody knows
        if not live and name not in configured:
            continue
        places = said.get(name, ())
        checks += pool_settings(pools[name], costs, members[name], rows, targets, places)
        checks += can_recommend(pools[name], members[name], rows, targets, plan, gpus)
        if configured and name not in configured:
            first = ", ".join(key.text for key in members[name][:3])
            checks.append(
                Check(
                    "WARNING",
                    name,
                    f"no configured pool matches {len(members[name])} of {len(targets)} targets "
                    f"({first}{', …' if len(members[name]) > 3 else ''})",
                    ("what is configured for pools",),
                    "pools: match of one of them, or one more",
                    setting=("pools",),
                )
            )
    checks += [
        Check(
            "WARNING",
            pool.name,
            "no target belongs to it",
            ("what is configured for it",),
            "match: the labels of its targets",
            pool.name,
            setting=("match",),
        )
        for pool in plan.pools
        if targets and pool.name not in pools
    ]
    return checks


def receivers_told(receivers: Iterable[tuple[str, str | None]]) -> list[Check]:
    """Whether somebody is told: receiver name and why a secret of it cannot be read, or None."""
    checks = [
        Check("ok", name, "receiver: its secrets can be read")
        if reason is None
        else Check("MISSING", name, f"receiver: {reason}", ("pages to this receiver",))
        for name, reason in receivers
    ]
    none = Check(
        "WARNING",
        "receivers",
        "none configured: nobody is told",
        (),
        "receivers: [{name: oncall, slack: {webhook_url_file: slack.url}}]",
    )
    return checks or [none]
