"""What can fire, what cannot, and the line that fixes it. Pure: it reads what was collected."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from driftwatch.baselines.in_force import fingerprint
from driftwatch.collect.fingerprint import release_text
from driftwatch.collect.startup import contradictions, from_cache_config
from driftwatch.detect.baselines import Baselines
from driftwatch.doctor import targets as target_checks
from driftwatch.doctor.rules import (
    Check,
    Checkup,
    Costs,
    TargetCheck,
    TargetFacts,
    by_pool,
    unused,
    waiting,
)
from driftwatch.doctor.sources import SourceAnswer, departed, in_time, source_checks
from driftwatch.evidence import BY_NAME, Need
from driftwatch.knobs import flag_of
from driftwatch.model import Serving, Setting, Target, TargetKey
from driftwatch.pipeline.plan import Plan, Pool
from driftwatch.settings import ServingSettings
from driftwatch.signals.gpus import gpu_counts
from driftwatch.vllm_arguments.flags import FIELDS

_LENGTHS: tuple[Need, ...] = (
    "prompt_tokens_reference", "generation_tokens_reference", "lengths_reference",
)  # fmt: skip
_NONE_NAMED = "no baseline is named (--baseline FROM..TO)"
_NO_SLO = (
    "no slo: a limit pages only when requests wait more than 1 s and that is half of their TTFT"
)
_NO_SETTING: Mapping[Need, tuple[str, str]] = {
    "release": (
        "no release: vLLM's metrics do not name it",
        "scrape it directly (pages: it answers /version), or relabel a label vllm_version or "
        "image to it",
    ),
    "pool_of_several": (
        "its only target has no others to be compared with",
        "a condition without the pool's other targets, or enabled: false and a reason",
    ),
}


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of a checkup beside the scrapes."""

    has_baseline: bool = False  # a baseline was named
    now: datetime | None = None  # aware; None for a recording, whose scrapes need not be fresh
    sources: Sequence[SourceAnswer] = ()  # how they answered
    gpus: pl.DataFrame | None = None  # GPU table; None = GPUs were not looked for
    # pool → what each place of the configuration says of its serving settings
    places: Mapping[str, Sequence[Serving]] = field(default_factory=dict)
    # target → what its speed waits for, "" where it is judged; None = nobody looked
    waits: Mapping[TargetKey, str] | None = None
    past: timedelta = timedelta(0)  # how far the stored minutes reach back
    baselines: Baselines = field(default_factory=Baselines)  # in force in the database


@dataclass(frozen=True, slots=True)
class PoolScrapes:
    """A pool and what its targets show."""

    pool: Pool
    keys: list[TargetKey]  # its targets, sorted
    rows: dict[TargetKey, Mapping[str, object]]  # those that have a page → its newest scrape
    # what each place of the configuration says of its settings, in order of trust
    places: Sequence[Serving] = ()


def checkup(
    scrapes: pl.DataFrame, targets: Mapping[TargetKey, Target], plan: Plan, inputs: Inputs
) -> Checkup:
    """Look at every input of every enabled rule, for every target.

    ``scrapes``: what the sources brought; the newest scrape of a target counts; ``targets``: with
    their pools; ``plan``: rules and pools; ``inputs``: the other inputs.
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
        of_gpus = list(target_checks.gpu_inputs(gpus, counts, costs))

    of_targets = [one for key, one in absent.items() if key in targets]
    of_targets += _pages(scrapes, here, plan, rows, costs)
    if now is not None:
        of_targets += in_time({key: last[key] for key in here if key in last}, inputs.sources, now)
    of_targets += [one for one in of_gpus if isinstance(one, TargetCheck)]

    checks = list(source_checks(inputs.sources))
    if not targets and all(check.status != "MISSING" for check in checks):
        what, lost = "no target answered", ("every rule",)
        checks.append(Check("MISSING", "sources", what, lost, _NO_TARGET))
    checks += [one for one in of_gpus if isinstance(one, Check)]
    checks += by_pool(of_targets, targets)
    checks += _pools(targets, plan, costs, rows, inputs)
    checks += [
        Check("OFF", rule.id, rule.reason or "switched off")
        for rule in plan.rules
        if not rule.is_evaluated
    ]
    # without a page there is nothing to wait for
    has_baseline = all(one.has_baseline for one in costs.facts.values())
    of_speed = inputs.waits
    if now is None:  # a recording: its speed waits for nothing but a baseline's name
        of_speed = dict.fromkeys(here, "" if inputs.has_baseline else _NONE_NAMED)
    waits = waiting(plan.enabled, here, of_speed, inputs.past, has_baseline)
    later = [*waits] if has_page else []
    later += unused(plan.enabled, costs.facts)
    of_off = {(one.where, rule) for one in later if one.status == "OFF" for rule in one.disables}
    later = [
        one
        if one.status == "OFF"  # what is off in a pool waits for nothing there
        else replace(one, disables=tuple(r for r in one.disables if (one.where, r) not in of_off))
        for one in later
    ]
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
    """The facts of each target that answers."""
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
        of = pools.setdefault(
            pool.name, PoolScrapes(pool, [], {}, inputs.places.get(pool.name, ()))
        )
        of.keys.append(key)
        if (row := rows.get(key)) is not None and row["ok"]:
            of.rows[key] = row
    for name, of in sorted(pools.items()):
        # the pool of a server that never answered is unknown
        if not of.rows and name not in configured:
            continue
        yield from pool_settings(of, costs)
        if configured and name not in configured:
            first = ", ".join(key.text for key in of.keys[:3]) + (", …" if len(of.keys) > 3 else "")
            what = f"no configured pool matches {len(of.keys)} of {len(targets)} targets ({first})"
            fix, lost = "pools: match of one of them, or one more", "what is configured for pools"
            yield Check("WARNING", name, what, (lost,), fix, setting=("pools",))
    for pool in plan.pools if targets else ():
        if pool.name not in pools:
            lost, fix = "what is configured for it", "match: the labels of its targets"
            what = "no target belongs to it"
            yield Check("WARNING", pool.name, what, (lost,), fix, pool.name, setting=("match",))


def pool_settings(of: PoolScrapes, costs: Costs) -> list[Check]:
    """Every setting of a pool that a rule or an answer needs."""
    checks = [*_limits(of, costs), *_lengths(of, costs)]
    for cause, (what, fix) in _NO_SETTING.items():
        cost = costs.of(of.keys, cause)
        if cost.disables:
            checks.append(Check(cost.severity, of.pool.name, what, cost.disables, fix))
    checks += [*_slo(of, costs), *_edges(of), *_contradicted(of)]
    return [replace(check, pool=of.pool.name) for check in checks]


def _limits(of: PoolScrapes, costs: Costs) -> Iterator[Check]:
    """The two settings that make a batch full."""
    cost = costs.of(of.keys, "max_num_batched_tokens")
    reads = {rule.id for rule in costs.rules for c in rule.columns if _needs(c, "max_num_seqs")}
    inferred = [f"{rule.id} until inferred" for rule in costs.rules if rule.id in reads]
    seqs = (*inferred, "limit margins until inferred", "recommend until inferred")
    tokens = (*cost.disables, "the cause 'token budget full'", "advice on max_num_batched_tokens")
    lost = {"max_num_seqs": seqs, "max_num_batched_tokens": tokens}
    for name in lost:
        if (known := getattr(of.pool.serving, name)) is not None:
            yield Check("ok", of.pool.name, f"{name} {known.value:.0f} ({known.provenance})")
    unknown = [name for name in lost if getattr(of.pool.serving, name) is None]
    # together, unless a rule wants the second
    for names in [unknown] if unknown and not cost.lost else [[one] for one in unknown]:
        flags = " ".join(f"{flag_of(name)} N" for name in names)
        yield Check(
            cost.severity if names[-1] == "max_num_batched_tokens" else "WARNING",
            of.pool.name,
            f"{' and '.join(names)}: not configured, not in /metrics",
            tuple(one for name in names for one in lost[name]),
            f"{' and '.join(f'serving.{name}' for name in names)}, or serving.startup_log",
            flags=f"{flags}, or --startup-log FILE",
            setting=("serving", names[0]),
        )


def _needs(column: str, *needs: Need) -> bool:
    return any(need in BY_NAME[column].needs for need in needs)


def _lengths(of: PoolScrapes, costs: Costs) -> Iterator[Check]:
    """What lengths are compared with, where a rule asks for it."""
    cost = costs.of(of.keys, *_LENGTHS)
    if cost.disables:
        fix = "tuned_for: {prompt_tokens: N, generation_tokens: N}, or accept a baseline"
        flags = "--baseline FROM..TO, or driftwatch baseline accept"
        check = Check(
            cost.severity, of.pool.name, "no baseline for the lengths", cost.disables, fix
        )
        yield replace(check, flags=flags, setting=("tuned_for",))
    elif any(_needs(column, *_LENGTHS) for rule in costs.rules for column in rule.columns):
        yield Check("ok", of.pool.name, "lengths have a baseline or tuned_for")


def _slo(of: PoolScrapes, costs: Costs) -> Iterator[Check]:
    """Latency targets: without one a page does not know what users feel."""
    cost, slo = costs.of(of.keys, "slo", "slo_ttft", "slo_tpot"), of.pool.slo
    lacking = [n for n in ("ttft_seconds", "tpot_seconds") if getattr(slo, n) is None]
    what, disables = f"no {', '.join(f'slo.{name}' for name in lacking)}", cost.disables
    if len(lacking) == 2:
        what, disables = _NO_SLO, cost.lost
    if len(lacking) == 2 or cost.disables:
        fix = "slo: {ttft_seconds: 1.0, tpot_seconds: 0.05, share: 0.95}"
        yield Check(cost.severity, of.pool.name, what, disables, fix, setting=("slo",))


def _edges(of: PoolScrapes) -> Iterator[Check]:
    """A share in target is exact where the target is an edge of vLLM's buckets."""
    for name in ("ttft_seconds", "tpot_seconds"):
        target, setting = getattr(of.pool.slo, name), f"slo.{name}"
        pages = ((key, row.get(f"{name}_edges")) for key, row in of.rows.items())
        edges = {key: list(filter(math.isfinite, e)) for key, e in pages if isinstance(e, list)}
        if target is None or not any(edges.values()):
            continue
        between = [key for key, bounds in edges.items() if bounds and target not in bounds]
        if not between:
            yield Check("ok", of.pool.name, f"{setting} {target:g} is a bucket edge")
            continue
        bounds = edges[between[0]]
        nearest = (
            max((e for e in bounds if e < target), default=None),
            min((e for e in bounds if e > target), default=None),
        )
        fix = f"{setting}: {' or '.join(f'{edge:g}' for edge in nearest if edge is not None)}"
        what = (
            f"{setting} {target:g} is no bucket edge on {between[0].text}: the share in target is"
        )
        yield Check("WARNING", of.pool.name, f"{what} a range", fix=fix, setting=("slo", name))


def _contradicted(of: PoolScrapes) -> Iterator[Check]:
    """Two places that give different values for one setting."""
    of_pages: dict[str, list[str]] = {}
    for key, row in of.rows.items():
        if isinstance(text := row.get("cache_config"), str):
            for sentence in contradictions(of.pool.serving, from_cache_config(text)):
                name = sentence.partition(" ")[0]
                of_pages.setdefault(name, []).append(f"{sentence} of {key.text}")
    sentences = [(s.partition(" ")[0], s) for s in contradictions(*of.places)]
    sentences += [(n, f"{len(s)} of {len(of.keys)}: {s[0]}") for n, s in of_pages.items()]
    lost = ("what is concluded from this setting",)
    for name, sentence in sentences:
        setting, fix = _fix_of(name, of.pool.serving.setting(name))
        yield Check("WRONG", of.pool.name, sentence, lost, fix, setting=setting)


def _fix_of(name: str, known: Setting | None) -> tuple[tuple[str, str], str]:
    """The key of a pool in which a setting of vLLM is mended, and what to write there."""
    if name in ServingSettings.model_fields:
        return ("serving", name), f"serving.{name}: keep the one that holds, or leave it out"
    flag = next((flag for flag, of_flag in FIELDS.items() if of_flag == name), None)
    if flag is None or (known is not None and known.provenance == "startup log"):
        text = "serving.startup_log: the log of the server's newest start"
        return ("serving", "startup_log"), text
    return ("serving", "arguments"), f"serving.arguments: {flag} N, as the server runs with it"
