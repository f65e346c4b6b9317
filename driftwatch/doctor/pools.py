"""Does each pool say what no metric shows, and does anything contradict it?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from driftwatch.collect.startup import contradictions, from_cache_config
from driftwatch.doctor.checks import Check, Status
from driftwatch.doctor.rules import Cost, Costs
from driftwatch.evidence import BY_NAME
from driftwatch.model import Serving, Target, TargetKey
from driftwatch.pipeline.plan import Pool

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
    def answers(self) -> bool:
        """Whether any target has a page."""
        return any(self.rows.get(key, {}).get("ok") for key in self.targets)

    def edges(self, key: TargetKey, name: str) -> list[float]:
        """Finite bucket edges of a latency on a page; none where the page has not got them."""
        row = self.rows.get(key, {})
        edges = row.get(f"{name}_seconds_edges") if row.get("ok") else None
        return [e for e in edges if math.isfinite(e)] if isinstance(edges, list) else []


def pool_settings(of: PoolScrapes, costs: Costs) -> list[Check]:
    """Every setting of a pool that a rule or an answer needs."""
    checks = [*_limits(of, costs), *_reference(of, costs)]
    for cause, what, fix in _NO_SETTING:
        cost = costs.of(of.targets, cause)
        if cost.disables:
            checks.append(Check(cost.severity, of.pool.name, what, cost.disables, fix))
    checks += [*_slo(of, costs.of(of.targets, *_SLOS)), *_contradicted(of)]
    return [replace(check, pool=of.pool.name) for check in checks]


def _limits(of: PoolScrapes, costs: Costs) -> Iterator[Check]:
    """The two settings that make a batch full."""
    pool, serving = of.pool.name, of.pool.serving
    inferred = [
        f"{rule.id} until inferred"
        for rule in costs.rules
        if any("max_num_seqs" in BY_NAME[column].needs for column in rule.columns)
    ]
    cost = costs.of(of.targets, "max_num_batched_tokens")
    lacking: Mapping[str, tuple[Status, str, Sequence[str]]] = {
        "max_num_seqs": (
            "WARNING",
            "",
            (*inferred, "limit margins until inferred", "recommend until inferred"),
        ),
        "max_num_batched_tokens": (
            cost.severity,
            ", cannot be inferred",
            (*cost.disables, "the cause 'token budget full'", "advice on max_num_batched_tokens"),
        ),
    }
    for name, (status, more, disables) in lacking.items():
        known = getattr(serving, name)
        if known is not None:
            yield Check("ok", pool, f"{name} {known.value:.0f} ({known.provenance})")
            continue
        yield Check(
            status,
            pool,
            f"{name}: not configured, not in /metrics{more}",
            tuple(disables),
            f"serving.{name}, or serving.startup_log",
            flags=f"--{name.replace('_', '-')} N, or --startup-log FILE",
            setting=("serving", name),
        )


def _reference(of: PoolScrapes, costs: Costs) -> Iterator[Check]:
    """What lengths are compared with, where a rule asks for it."""
    cost = costs.of(of.targets, *_LENGTHS)
    needs = {need for rule in costs.rules for c in rule.columns for need in BY_NAME[c].needs}
    if cost.disables:
        yield Check(
            cost.severity,
            of.pool.name,
            "no reference for the lengths",
            cost.disables,
            "tuned_for: {prompt_tokens: N, generation_tokens: N}",
            flags="--baseline FROM..TO, or driftwatch baseline accept",
            setting=("tuned_for",),
        )
    elif needs & {*_LENGTHS}:
        yield Check("ok", of.pool.name, "lengths have a reference")


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
        severity = cost.severity
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
