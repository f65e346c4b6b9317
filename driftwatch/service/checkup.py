"""What can fire, what cannot, and the line that fixes it. Pure: it reads collected scrapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import polars as pl

from driftwatch.collect.registry import BY_COLUMN
from driftwatch.evidence import BY_NAME
from driftwatch.model import Target, TargetKey
from driftwatch.rulebook.rules import Rule
from driftwatch.service.plan import Plan, Pool

Status = Literal["MISSING", "WARNING", "off", "ok"]

# Evidence columns that need more than a page: column → (what it needs, how to give it).
_NEEDS_REFERENCE = frozenset(
    name for name in BY_NAME if name.endswith(("_mean_ratio", "_mean_2m_ratio"))
)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        status: MISSING (a rule cannot fire), WARNING (it can, but less well), off (a rule that is
            switched off), ok.
        where: target or pool.
        what: what was found.
        disables: rules or answers that this costs.
        fix: the setting that mends it, below its pool where ``where`` names one.
        pool: name of the pool that the setting belongs to, None where it is no pool's.
    """

    status: Status
    where: str
    what: str
    disables: tuple[str, ...] = ()
    fix: str | None = None
    pool: str | None = None


@dataclass(frozen=True, slots=True)
class Checkup:
    """Every check, and which rules can fire on every target.

    Attributes:
        checks: in the order they were made.
        rules: enabled rule id → it can fire on every target.
    """

    checks: tuple[Check, ...]
    rules: Mapping[str, bool] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        """Every enabled rule can fire on every target."""
        return bool(self.rules) and all(self.rules.values())


def checkup(
    scrapes: pl.DataFrame, targets: Mapping[TargetKey, Target], plan: Plan, has_reference: bool
) -> Checkup:
    """Look at every input of every enabled rule, for every target.

    Args:
        scrapes: what the sources brought; the newest scrape of a target counts.
        targets: with their pools.
        plan: rules and pools.
        has_reference: a baseline was named.
    """
    checks: list[Check] = []
    can = {rule.id: bool(targets) for rule in plan.enabled}
    if not targets:
        checks.append(Check("MISSING", "sources", "no target answered", ("every rule",)))
    newest = scrapes.sort("time").group_by(["instance", "engine"], maintain_order=True).last()
    rows = {TargetKey(row["instance"], row["engine"]): row for row in newest.iter_rows(named=True)}
    for key in sorted(targets):
        row = rows.get(key)
        found = _page(key, row)
        checks.append(found)
        if found.status == "MISSING" or row is None:
            can = dict.fromkeys(can, False)
            continue
        checks += _inputs(key, row, plan.enabled, can)
        checks += _counting(key, row)
    pools: dict[str, Pool] = {}
    for target in targets.values():
        pool = plan.pool_of(target)
        pools[pool.name] = pool
    for name in sorted(pools):
        said = _settings(pools[name], plan, can, has_reference, rows, targets)
        checks += [replace(check, pool=name) for check in said]
    checks += [
        Check("off", rule.id, rule.reason or "switched off")
        for rule in plan.rules
        if not rule.enabled
    ]
    return Checkup(tuple(checks), can)


def _page(key: TargetKey, row: Mapping[str, object] | None) -> Check:
    if row is None:
        return Check("MISSING", key.text, "no scrape", ("every rule",))
    if not row["ok"]:
        fix = (
            "start vLLM without --disable-log-stats"
            if "stats disabled" in str(row["reason"])
            else None
        )
        return Check("MISSING", key.text, str(row["reason"]), ("every rule",), fix)
    return Check("ok", key.text, "page read")


def _inputs(
    key: TargetKey, row: Mapping[str, object], rules: Sequence[Rule], can: dict[str, bool]
) -> list[Check]:
    """Every scrape column that an enabled rule reads."""
    disabled: dict[str, list[str]] = {}
    looked: set[str] = set()
    for rule in rules:
        for source in {s for c in rule.when.columns for s in BY_NAME[c].sources}:
            metric = BY_COLUMN.get(source)
            if metric is None:
                continue
            looked.add(source)
            probe = f"{source}_count" if metric.type == "histogram" else source
            if row[probe] is None and not _replaceable(source, row):
                disabled.setdefault(source, []).append(rule.id)
                can[rule.id] = False
    checks = [
        Check(
            "MISSING",
            key.text,
            f"{BY_COLUMN[source].wire_name}: not on the page",
            tuple(sorted(set(ids))),
        )
        for source, ids in sorted(disabled.items())
    ]
    present = len(looked) - len(disabled)
    checks += [Check("ok", key.text, f"{present} inputs of the rules are on the page")] * bool(
        present
    )
    return checks


def _replaceable(source: str, row: Mapping[str, object]) -> bool:
    """Something else on the page stands in for it."""
    if source in ("waiting_capacity_requests", "waiting_deferred_requests"):
        # vLLM before waiting_by_reason: all waiting counts as waiting for capacity
        return source == "waiting_capacity_requests" and row["waiting_requests"] is not None
    # restarts are seen in the counters as well
    return source == "process_start_time_seconds"


def _counting(key: TargetKey, row: Mapping[str, object]) -> list[Check]:
    if not row["several_api_servers"]:
        return []
    return [
        Check(
            "WARNING",
            key.text,
            "several API servers: each engine step is counted once per server",
            ("requests_per_forward_pass and tokens_per_forward_pass are lower bounds",),
            "serving.api_server_count, or vLLM's --api-server-count 1",
        )
    ]


def _settings(
    pool: Pool,
    plan: Plan,
    can: dict[str, bool],
    has_reference: bool,
    rows: Mapping[TargetKey, Mapping[str, object]],
    targets: Mapping[TargetKey, Target],
) -> list[Check]:
    """What no metric shows and only a person can say."""
    checks = []
    said = pool.serving
    if said.max_num_seqs is None:
        checks.append(
            Check(
                "WARNING",
                pool.name,
                "max_num_seqs: not configured, not in /metrics",
                ("the sequence cap's margin until it is inferred from a plateau",),
                "serving.max_num_seqs, or serving.startup_log",
            )
        )
    else:
        checks.append(
            Check(
                "ok",
                pool.name,
                f"max_num_seqs {said.max_num_seqs.value:.0f} ({said.max_num_seqs.provenance})",
            )
        )
    if said.max_num_batched_tokens is None:
        checks.append(
            Check(
                "WARNING",
                pool.name,
                "max_num_batched_tokens: not configured, not in /metrics, cannot be inferred",
                ("leaf token_budget_binding",),
                "serving.max_num_batched_tokens, or serving.startup_log",
            )
        )
    else:
        budget = said.max_num_batched_tokens
        checks.append(
            Check(
                "ok", pool.name, f"max_num_batched_tokens {budget.value:.0f} ({budget.provenance})"
            )
        )
    lengths = [r.id for r in plan.enabled if r.when.columns & _NEEDS_REFERENCE]
    tuned = pool.tuned_for.prompt_tokens, pool.tuned_for.generation_tokens
    missing = [
        rule
        for rule in lengths
        if not has_reference
        and (("prompt" in rule and tuned[0] is None) or ("generation" in rule and tuned[1] is None))
    ]
    if missing:
        for rule in missing:
            can[rule] = False
        checks.append(
            Check(
                "MISSING",
                pool.name,
                "no reference for the lengths",
                tuple(missing),
                "tuned_for: {prompt_tokens: N, generation_tokens: N}",
            )
        )
    elif lengths:
        checks.append(Check("ok", pool.name, "lengths have a reference"))
    checks += _slo(pool, rows, targets)
    return checks


def _slo(
    pool: Pool,
    rows: Mapping[TargetKey, Mapping[str, object]],
    targets: Mapping[TargetKey, Target],
) -> list[Check]:
    wanted = {"ttft": pool.slo.ttft_seconds, "tpot": pool.slo.tpot_seconds}
    if all(value is None for value in wanted.values()):
        return [
            Check(
                "WARNING",
                pool.name,
                "no slo: a limit pages only when requests wait more than "
                "1 s and that is half of their TTFT",
                (),
                "slo: {ttft_seconds: 1.0, tpot_seconds: 0.05, share: 0.95}",
            )
        ]
    checks = []
    for name, target in wanted.items():
        if target is None:
            continue
        off = [
            key.text
            for key, t in sorted(targets.items())
            if t.pool == pool.name and not _is_edge(target, rows.get(key), name)
        ]
        if off:
            checks.append(
                Check(
                    "WARNING",
                    pool.name,
                    f"slo.{name}_seconds {target:g} is no bucket edge on "
                    f"{off[0]}: the share in target is a range",
                    fix=f"an edge of vllm's {name} histogram, e.g. 0.75, 1, 2.5",
                )
            )
        else:
            checks.append(Check("ok", pool.name, f"slo.{name}_seconds {target:g} is a bucket edge"))
    return checks


def _is_edge(target: float, row: Mapping[str, object] | None, name: str) -> bool:
    edges = None if row is None else row[f"{name}_seconds_edges"]
    return isinstance(edges, list) and target in edges
