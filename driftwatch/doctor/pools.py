"""A pool's settings: what no metric shows, what contradicts it, what ``recommend`` lacks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from driftwatch.collect.server_settings import contradictions, from_cache_config
from driftwatch.doctor.checks import Check, Status
from driftwatch.doctor.needs import Cost, Costs
from driftwatch.evidence import BY_NAME
from driftwatch.model import Serving, Target, TargetKey
from driftwatch.pipeline.engine import server_of
from driftwatch.pipeline.plan import Plan, Pool
from driftwatch.signals.minutes import no_minutes
from driftwatch.simulate.hardware import shipped_hardware

_LENGTHS = ("prompt_tokens_reference", "generation_tokens_reference", "lengths_reference")
_SLOS = ("slo", "slo_ttft", "slo_tpot")
_SLO_FIX = "slo: {ttft_seconds: 1.0, tpot_seconds: 0.05, share: 0.95}"
_NO_SETTING = (
    (
        "release",
        "no release: vLLM's metrics do not name it",
        "scrape it directly (pages: it answers /version), or relabel a label vllm_version or "
        "image to it",
    ),
    (
        "pool_of_several",
        "its only target has no others to be compared with",
        "a condition without the pool's other targets, or enabled: false and a reason",
    ),
)


@dataclass(frozen=True, slots=True)
class PoolScrapes:
    """A pool and what its targets show."""

    pool: Pool  # the pool
    targets: dict[TargetKey, Target]  # its targets
    # target → its newest scrape
    rows: Mapping[TargetKey, Mapping[str, object]] = field(default_factory=dict)
    # what each place of the configuration says of its settings, in order of trust
    places: Sequence[Serving] = ()

    @property
    def answering(self) -> list[TargetKey]:
        """Targets with a page, in order."""
        return [key for key in sorted(self.targets) if self.rows.get(key, {}).get("ok")]

    def edges(self, key: TargetKey, name: str) -> list[float]:
        """Finite bucket edges of a latency on a page; none where the page has not got them."""
        row = self.rows.get(key, {})
        edges = row.get(f"{name}_seconds_edges") if row.get("ok") else None
        return [e for e in edges if math.isfinite(e)] if isinstance(edges, list) else []


def pool_settings(of: PoolScrapes, costs: Costs) -> list[Check]:
    """Every setting of a pool that a rule or an answer needs."""
    checks = [_max_num_seqs(of.pool, costs), _max_num_batched_tokens(of, costs)]
    checks += _reference(of, costs)
    for cause, what, fix in _NO_SETTING:
        cost = costs.of(of.targets, cause)
        if cost.disables:
            checks.append(Check(_severity(cost), of.pool.name, what, cost.disables, fix))
    checks += [*_slo(of, costs.of(of.targets, *_SLOS)), *_contradicted(of)]
    return [replace(check, pool=of.pool.name) for check in checks]


def _severity(cost: Cost) -> Status:
    """Of something that is missing, by whether a rule cannot fire at all."""
    return "MISSING" if cost.lost else "WARNING"


def _max_num_seqs(pool: Pool, costs: Costs) -> Check:
    setting = pool.serving.max_num_seqs
    if setting is not None:
        return Check("ok", pool.name, f"max_num_seqs {setting.value:.0f} ({setting.provenance})")
    waiting = [
        rule.id
        for rule in costs.rules
        if any("max_num_seqs" in BY_NAME[column].needs for column in rule.columns)
    ]
    return Check(
        "WARNING",
        pool.name,
        "max_num_seqs: not configured, not in /metrics",
        (
            *(f"{rule} until inferred" for rule in waiting),
            "limit margins until inferred",
            "recommend until inferred",
        ),
        "serving.max_num_seqs, or serving.startup_log",
        flags="--max-num-seqs N, or --startup-log FILE",
        setting=("serving", "max_num_seqs"),
    )


def _max_num_batched_tokens(of: PoolScrapes, costs: Costs) -> Check:
    setting = of.pool.serving.max_num_batched_tokens
    if setting is not None:
        what = f"max_num_batched_tokens {setting.value:.0f} ({setting.provenance})"
        return Check("ok", of.pool.name, what)
    cost = costs.of(of.targets, "max_num_batched_tokens")
    return Check(
        _severity(cost),
        of.pool.name,
        "max_num_batched_tokens: not configured, not in /metrics, cannot be inferred",
        (*cost.disables, "the cause 'token budget full'", "advice on max_num_batched_tokens"),
        "serving.max_num_batched_tokens, or serving.startup_log",
        flags="--max-num-batched-tokens N, or --startup-log FILE",
        setting=("serving", "max_num_batched_tokens"),
    )


def _reference(of: PoolScrapes, costs: Costs) -> list[Check]:
    """What lengths are compared with, where a rule asks for it."""
    cost = costs.of(of.targets, *_LENGTHS)
    if cost.disables:
        return [
            Check(
                _severity(cost),
                of.pool.name,
                "no reference for the lengths",
                cost.disables,
                "tuned_for: {prompt_tokens: N, generation_tokens: N}",
                flags="--baseline FROM..TO, or driftwatch baseline accept",
                setting=("tuned_for",),
            )
        ]
    needs = {need for rule in costs.rules for c in rule.columns for need in BY_NAME[c].needs}
    return [Check("ok", of.pool.name, "lengths have a reference")] if needs & {*_LENGTHS} else []


def _slo(of: PoolScrapes, cost: Cost) -> list[Check]:
    wanted = {"ttft": of.pool.slo.ttft_seconds, "tpot": of.pool.slo.tpot_seconds}
    what, disables = "", cost.disables
    if all(value is None for value in wanted.values()):
        what = (
            "no slo: a limit pages only when requests wait more than 1 s and that is half of "
            "their TTFT"
        )
        disables = cost.lost
    elif cost.disables:
        lacking = ", ".join(f"slo.{name}_seconds" for name in wanted if wanted[name] is None)
        what = f"no {lacking}"
    checks = []
    if what:
        severity = _severity(cost)
        checks = [Check(severity, of.pool.name, what, disables, _SLO_FIX, setting=("slo",))]
    for name, target in wanted.items():
        edges = {key: of.edges(key, name) for key in sorted(of.targets)}
        measured = {key: bounds for key, bounds in edges.items() if bounds}
        if target is None or not measured:
            continue
        between = [key for key, bounds in measured.items() if target not in bounds]
        setting = f"slo.{name}_seconds"
        if not between:
            checks.append(Check("ok", of.pool.name, f"{setting} {target:g} is a bucket edge"))
            continue
        key = between[0]
        checks.append(
            Check(
                "WARNING",
                of.pool.name,
                f"{setting} {target:g} is no bucket edge on {key.text}: the share in target is a "
                "range",
                fix=f"{setting}: {_nearest(target, measured[key])}",
                setting=("slo", f"{name}_seconds"),
            )
        )
    return checks


def _nearest(target: float, edges: Sequence[float]) -> str:
    """``0.75 or 1``: the edges on both sides."""
    below, above = (e for e in edges if e < target), (e for e in edges if e > target)
    near = (max(below, default=None), min(above, default=None))
    return " or ".join(f"{edge:g}" for edge in near if edge is not None)


def _contradicted(of: PoolScrapes) -> list[Check]:
    """Two places that give different values for one setting."""
    of_pages: dict[str, list[str]] = {}
    for key in sorted(of.targets):
        text = of.rows.get(key, {}).get("cache_config")
        if isinstance(text, str):
            for sentence in contradictions(of.pool.serving, from_cache_config(text)):
                of_pages.setdefault(sentence.partition(" ")[0], []).append(
                    f"{sentence} of {key.text}"
                )
    sentences = [(s.partition(" ")[0], s) for s in contradictions(*of.places)]
    sentences += [(n, f"{len(s)} of {len(of.targets)}: {s[0]}") for n, s in of_pages.items()]
    return [
        Check(
            "WRONG",
            of.pool.name,
            sentence,
            ("what is concluded from this setting",),
            f"serving.{name}: keep the one that holds, or leave it out",
            setting=("serving", name),
        )
        for name, sentence in sentences
    ]


def can_recommend(of: PoolScrapes, plan: Plan, gpus: pl.DataFrame | None) -> list[Check]:
    """Whether ``driftwatch recommend`` can answer on a pool, by its first target that answers.

    That max_num_seqs and max_num_batched_tokens are unknown is said by their own checks.

    ``of``: the pool; ``plan``: pools, and what the servers say of themselves; ``gpus``: GPU
    readings, for their names; None = GPUs were not looked for.
    """
    if not of.answering:
        return []
    key, name = of.answering[0], of.pool.name
    server = server_of(of.targets[key], plan, no_minutes(), row=of.rows[key], gpus=gpus)
    checks = [
        Check(
            "WARNING",
            name,
            f"runs {what}, which is not simulated",
            ("recommend",),
            pool=name,
        )
        for what in server.unsupported
    ]
    tables = shipped_hardware()
    model, no_model = tables.find_model(server.model)
    gpu, no_gpu = tables.find_gpu(server.gpu)
    if model is None:
        checks.append(_no_datasheet(name, "model", server.model, no_model))
    if gpu is None and (gpus is not None or server.gpu is not None):
        checks.append(_no_datasheet(name, "gpu", server.gpu, no_gpu))
    if model is not None and gpu is not None:
        known = f"recommend knows the datasheets: {model.name} on {gpu.name}"
        what = "; ".join((known, *model.notes))
        checks.append(Check("ok", name, what))
    return checks


def _no_datasheet(pool: str, setting: str, name: str | None, why: str) -> Check:
    """A model or GPU that is not known, or not in the tables."""
    what = f"{setting} unknown" if name is None else why.split("; ")[0]
    return Check(
        "OFF",  # it answers without: wider, and not on KV blocks
        pool,
        f"recommend says nothing of KV blocks under other settings: no datasheet, {what}",
        (),
        f"serving.{setting}: its name in driftwatch's tables",
        pool,
        f"driftwatch recommend --{setting} NAME or FILE",
        ("serving", setting),
    )
