"""What no metric shows and only a person can say, and what contradicts what was said."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from driftwatch.collect.serving import contradictions, from_cache_config
from driftwatch.doctor.checks import Check, Status
from driftwatch.doctor.needs import Cost, Costs
from driftwatch.evidence import BY_NAME
from driftwatch.model import Serving, Target, TargetKey
from driftwatch.pipeline.plan import Pool

_REFERENCES = ("prompt_tokens_reference", "generation_tokens_reference", "lengths_reference")


def pool_settings(
    pool: Pool,
    costs: Costs,
    members: Sequence[TargetKey],
    rows: Mapping[TargetKey, Mapping[str, object]],
    targets: Mapping[TargetKey, Target],
    said: Sequence[Serving] = (),
) -> list[Check]:
    """Every setting of a pool that a rule or an answer needs.

    Args:
        pool: the pool.
        costs: what is never known, and what that costs.
        members: its targets.
        rows: newest scrape of each target.
        targets: with their pools.
        said: what each place of the configuration says of it, in order of trust.
    """
    checks = _settings(pool, costs, members, rows, targets)
    checks += _contradicted(pool, rows, targets, said)
    return [replace(check, pool=pool.name) for check in checks]


def _contradicted(
    pool: Pool,
    rows: Mapping[TargetKey, Mapping[str, object]],
    targets: Mapping[TargetKey, Target],
    said: Sequence[Serving],
) -> list[Check]:
    """Two places that give different values for one setting."""
    first: dict[str, str] = {}
    others: dict[str, int] = {}
    members = [key for key, target in sorted(targets.items()) if target.pool == pool.name]
    for key in members:
        text = (rows.get(key) or {}).get("cache_config")
        if isinstance(text, str):
            for sentence in contradictions(pool.serving, from_cache_config(text)):
                name = sentence.partition(" ")[0]
                first.setdefault(name, f"{sentence} of {key.text}")
                others[name] = others.get(name, 0) + 1
    found = [(s.partition(" ")[0], s) for s in contradictions(*said)]
    found += [
        (name, f"{others[name]} of {len(members)}: {sentence}") for name, sentence in first.items()
    ]
    return [
        Check(
            "WRONG",
            pool.name,
            sentence,
            ("what is concluded from this setting",),
            f"serving.{name}: say the one that holds, or leave it out",
            setting=("serving", name),
        )
        for name, sentence in found
    ]


def _settings(
    pool: Pool,
    costs: Costs,
    members: Sequence[TargetKey],
    rows: Mapping[TargetKey, Mapping[str, object]],
    targets: Mapping[TargetKey, Target],
) -> list[Check]:
    """What no metric shows and only a person can say."""
    checks = [_max_num_seqs(pool, costs), _max_num_batched_tokens(pool, costs, members)]
    checks += _reference(pool, costs, members)
    for cause, what, fix in _NO_WAY:
        cost = costs.of(members, cause)
        if cost.told:
            checks.append(Check(_severity(cost), pool.name, what, cost.told, fix))
    checks += _slo(pool, costs.of(members, *_SLOS), rows, targets)
    return checks


def _severity(cost: Cost) -> Status:
    """Of something that is missing, by whether a rule cannot fire at all."""
    return "MISSING" if cost.lost else "WARNING"


def _max_num_seqs(pool: Pool, costs: Costs) -> Check:
    said = pool.serving.max_num_seqs
    if said is not None:
        return Check("ok", pool.name, f"max_num_seqs {said.value:.0f} ({said.provenance})")
    return Check(
        "WARNING",
        pool.name,
        "max_num_seqs: not configured, not in /metrics",
        (
            *(f"until it is inferred from a plateau, {r}" for r in _reading(costs)),
            "the sequence cap's margin until it is inferred from a plateau",
            "recommend until then",
        ),
        "serving.max_num_seqs, or serving.startup_log",
        flags="--max-num-seqs N, or --startup-log FILE",
        setting=("serving", "max_num_seqs"),
    )


def _max_num_batched_tokens(pool: Pool, costs: Costs, members: Sequence[TargetKey]) -> Check:
    said = pool.serving.max_num_batched_tokens
    if said is not None:
        known = f"max_num_batched_tokens {said.value:.0f} ({said.provenance})"
        return Check("ok", pool.name, known)
    cost = costs.of(members, "max_num_batched_tokens")
    return Check(
        _severity(cost),
        pool.name,
        "max_num_batched_tokens: not configured, not in /metrics, cannot be inferred",
        (*cost.told, "leaf token_budget_binding", "recommend: its answer for this knob"),
        "serving.max_num_batched_tokens, or serving.startup_log",
        flags="--max-num-batched-tokens N, or --startup-log FILE",
        setting=("serving", "max_num_batched_tokens"),
    )


def _reference(pool: Pool, costs: Costs, members: Sequence[TargetKey]) -> list[Check]:
    """What lengths are compared with, where a rule asks for it."""
    cost = costs.of(members, *_REFERENCES)
    if cost.told:
        return [
            Check(
                _severity(cost),
                pool.name,
                "no reference for the lengths",
                cost.told,
                "tuned_for: {prompt_tokens: N, generation_tokens: N}",
                flags="--baseline FROM..TO, or driftwatch baseline pin",
                setting=("tuned_for",),
            )
        ]
    if any(set(_REFERENCES) & set(needs) for needs in _needs(costs)):
        return [Check("ok", pool.name, "lengths have a reference")]
    return []


_SLOS = ("slo", "slo_ttft", "slo_tpot")
_NO_WAY = (
    (
        "release",
        "its release is not known: vLLM's metrics do not name it",
        "scrape it directly (pages: it answers /version), or relabel a label vllm_version or "
        "image to it",
    ),
    (
        "baseline",
        "no baseline to compare with",
        "driftwatch baseline pin; of replay --baseline FROM..TO; or a condition without it, or "
        "enabled: false and a reason",
    ),
    (
        "pool_of_several",
        "its only target has no others to be compared with",
        "a condition without the pool's other targets, or enabled: false and a reason",
    ),
)


def _needs(costs: Costs) -> Iterator[tuple[str, ...]]:
    """What each column of a rule needs."""
    return (BY_NAME[column].needs for rule in costs.rules for column in rule.columns)


def _reading(costs: Costs) -> list[str]:
    """Rules that are unknown until max_num_seqs is known."""
    return [
        rule.id
        for rule in costs.rules
        if any("max_num_seqs" in BY_NAME[column].needs for column in rule.columns)
    ]


def _slo(
    pool: Pool,
    cost: Cost,
    rows: Mapping[TargetKey, Mapping[str, object]],
    targets: Mapping[TargetKey, Target],
) -> list[Check]:
    wanted = {"ttft": pool.slo.ttft_seconds, "tpot": pool.slo.tpot_seconds}
    if all(value is None for value in wanted.values()):
        return [
            Check(
                _severity(cost),
                pool.name,
                "no slo: a limit pages only when requests wait more than "
                "1 s and that is half of their TTFT",
                cost.lost,
                "slo: {ttft_seconds: 1.0, tpot_seconds: 0.05, share: 0.95}",
                setting=("slo",),
            )
        ]
    checks = []
    if cost.told:
        lacking = ", ".join(f"slo.{name}_seconds" for name in wanted if wanted[name] is None)
        checks.append(
            Check(
                _severity(cost),
                pool.name,
                f"no {lacking}",
                cost.told,
                "slo: {ttft_seconds: 1.0, tpot_seconds: 0.05, share: 0.95}",
                setting=("slo",),
            )
        )
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
                    setting=("slo", f"{name}_seconds"),
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
