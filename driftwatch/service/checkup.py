"""What can fire, what cannot, and the line that fixes it. Pure: it reads collected scrapes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
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
        status: MISSING (a rule cannot fire, or nobody hears of it), WARNING (it can, but less
            well), off (a rule that is switched off), ok.
        where: target or pool.
        what: what was found.
        disables: rules or answers that this costs.
        fix: the setting that mends it, below its pool where ``where`` names one.
        pool: name of the pool that the setting belongs to, None where it is no pool's.
        flags: what mends it on the command line, where that can.
    """

    status: Status
    where: str
    what: str
    disables: tuple[str, ...] = ()
    fix: str | None = None
    pool: str | None = None
    flags: str | None = None


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
        """Every enabled rule can fire on every target, and nothing else is missing."""
        missing = any(check.status == "MISSING" for check in self.checks)
        return bool(self.rules) and all(self.rules.values()) and not missing


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
        checks.append(
            Check("MISSING", "sources", "no target answered", ("every rule",), _NO_TARGET)
        )
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


_NO_TARGET = "does the source hold vllm: series, of servers that `match` lets through?"
_NO_ANSWER = "is vLLM running there, and is the address right?"
_NO_VLLM = (
    "start vLLM without --disable-log-stats; if it runs with its statistics, this is not vLLM's "
    "page: look at the address"
)


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


def _page(key: TargetKey, row: Mapping[str, object] | None) -> Check:
    if row is None:
        return Check("MISSING", key.text, "no scrape", ("every rule",), _NO_ANSWER)
    if not row["ok"]:
        reason = str(row["reason"])
        fix = _NO_VLLM if "stats disabled" in reason else _NO_ANSWER
        return Check("MISSING", key.text, reason, ("every rule",), fix)
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
                flags="--max-num-seqs N, or --startup-log FILE",
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
                flags="--max-num-batched-tokens N, or --startup-log FILE",
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
                flags="--baseline FROM..TO",
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
            (key, edges)
            for key, t in sorted(targets.items())
            if t.pool == pool.name
            and (edges := _edges(rows.get(key), name))
            and target not in edges
        ]
        known = any(t.pool == pool.name and _edges(rows.get(k), name) for k, t in targets.items())
        if off:
            key, edges = off[0]
            checks.append(
                Check(
                    "WARNING",
                    pool.name,
                    f"slo.{name}_seconds {target:g} is no bucket edge on {key.text}: the share "
                    "in target is a range",
                    fix=f"slo.{name}_seconds: {_nearest(target, edges)}",
                )
            )
        elif known:
            checks.append(Check("ok", pool.name, f"slo.{name}_seconds {target:g} is a bucket edge"))
    return checks


def _edges(row: Mapping[str, object] | None, name: str) -> list[float]:
    """Finite bucket edges of a latency on the page; none where the page has not got them."""
    edges = None if row is None or not row["ok"] else row[f"{name}_seconds_edges"]
    return [e for e in edges if math.isfinite(e)] if isinstance(edges, list) else []


def _nearest(target: float, edges: Sequence[float]) -> str:
    """``0.75 or 1``: the edges on both sides."""
    below, above = (e for e in edges if e < target), (e for e in edges if e > target)
    near = (max(below, default=None), min(above, default=None))
    return " or ".join(f"{edge:g}" for edge in near if edge is not None)
