"""The plan of a tick: rules, trees, pools, settings. It does not change during a tick."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from driftwatch.collect.dcgm import pod_of
from driftwatch.collect.registry import BY_COLUMN
from driftwatch.detect.reference import declared, no_reference
from driftwatch.diagnose.tree import Tree
from driftwatch.evidence import BY_NAME
from driftwatch.incidents.planner import Routes, Subscription
from driftwatch.model import Fingerprint, Serving, Setting, Slo, Target, TargetKey
from driftwatch.rulebook.rules import Rule
from driftwatch.signals.gpu_links import GPU_TARGET_SCHEMA
from driftwatch.signals.rows import SERVING_SCHEMA


@dataclass(frozen=True, slots=True)
class TunedFor:
    """The mean lengths that a pool was tuned for; None = not declared."""

    prompt_tokens: float | None = None
    generation_tokens: float | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    """Targets with one configuration."""

    name: str
    # label values that a target must have; empty matches every target
    match: Mapping[str, str] = field(default_factory=dict)
    serving: Serving = field(default_factory=Serving)  # settings with provenance
    slo: Slo = field(default_factory=Slo)  # latency targets
    tuned_for: TunedFor = field(default_factory=TunedFor)  # declared lengths
    # GPUs per instance (a replica: all its engines), None = not declared
    gpus_per_replica: float | None = None
    gpu_uuids: tuple[str, ...] = ()  # declared GPUs of the pool's servers on bare metal
    # arguments and start-up log of the configuration
    reported: Fingerprint = field(default_factory=Fingerprint)
    model: str | None = None  # if the served name does not name it; None = as reported
    gpu: str | None = None  # if no source reads it; None = as read
    receivers: tuple[str, ...] = ()  # of its messages; empty = by severity

    def holds(self, target: Target) -> bool:
        """Whether the target has every label of ``match``."""
        return all(target.labels.get(name) == value for name, value in self.match.items())


@dataclass(frozen=True, slots=True, eq=False)
class TargetFrames:
    """Frames that a tick joins to its targets, one row per target."""

    # made from these targets and this plan
    targets: Mapping[TargetKey, Target]
    plan: Plan
    serving: pl.DataFrame  # :data:`SERVING_SCHEMA`, as configured
    gpu_targets: pl.DataFrame  # :data:`GPU_TARGET_SCHEMA`
    declared: pl.DataFrame  # reference rows of ``tuned_for``


@dataclass(frozen=True, slots=True)
class Plan:
    """Rules, trees, pools and settings of a tick."""

    rules: tuple[Rule, ...]  # every rule, disabled ones included
    trees: Mapping[str, Tree]  # by name
    pools: tuple[Pool, ...] = ()  # configured; the first match wins
    # labels that name the pool of a target without a configured pool
    pool_by: tuple[str, ...] = ("namespace", "model_name")
    # server → its pool in the database, for commands without a configuration
    stored_pools: Mapping[TargetKey, Pool] = field(default_factory=dict)
    # settings of targets without a configured pool
    default_serving: Serving = field(default_factory=Serving)
    # their arguments and log, from the command line
    default_reported: Fingerprint = field(default_factory=Fingerprint)
    # names and addresses of driftwatch's own machine if it reads NVML there; else empty
    own_hosts: frozenset[str] = frozenset()
    external_url: str | None = None  # base of links in pages; None = commands only
    # use a proposed baseline without asking, as ``watch``, ``demo`` and ``replay`` do; a service
    # never does
    accepts_proposals: bool = False
    # instance → report of the server or its start-up log
    reported: Mapping[str, Fingerprint] = field(default_factory=dict)
    simulations: int = 3  # pages of one minute whose advice is simulated; 0 = none
    # registry columns that must not go missing; None = those that the enabled rules need
    expected: tuple[str, ...] | None = None

    @property
    def enabled(self) -> tuple[Rule, ...]:
        """Rules that are evaluated in at least one pool."""
        return tuple(rule for rule in self.rules if rule.is_evaluated)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Registry columns that the enabled rules need, directly or through evidence columns."""
        if self.expected is not None:
            return self.expected
        needed = {
            source
            for rule in self.enabled
            for column in rule.columns
            for source in BY_NAME[column].sources
        }
        return tuple(column for column in BY_COLUMN if column in needed)

    def without_rules(self) -> Plan:
        """The same plan with evidence but no rules."""
        return replace(self, rules=(), trees={}, simulations=0, expected=self.inputs)

    def routes_to(self, subscriptions: Iterable[Subscription]) -> Routes:
        """The routing of pages to these receivers."""
        return Routes(
            tuple(subscriptions),
            {rule.id: rule.receivers for rule in self.rules},
            {pool.name: pool.receivers for pool in self.pools},
        )

    @property
    def every_pool(self) -> tuple[Pool, ...]:
        """The configured pools, and those that only the database has."""
        stored = {pool.name: pool for pool in self.stored_pools.values()}
        return tuple((stored | {pool.name: pool for pool in self.pools}).values())

    def pool_of(self, target: Target) -> Pool:
        """The configured pool, else the stored one, else one named by the ``pool_by`` labels."""
        for pool in self.pools:
            if pool.holds(target):
                return pool
        if (stored := self.stored_pools.get(target.key)) is not None:
            return stored
        named = [target.labels[label] for label in self.pool_by if target.labels.get(label)]
        return Pool(
            "/".join(named) or "default",
            serving=self.default_serving,
            reported=self.default_reported,
        )

    def has_pools_of(self, other: Plan) -> bool:
        """Whether both plans assign every target the same pool."""
        matches = [[(pool.name, pool.match) for pool in plan.pools] for plan in (self, other)]
        return matches[0] == matches[1] and self.pool_by == other.pool_by

    def serving_of(self, target: Target) -> Serving:
        """Settings of one target."""
        return self.pool_of(target).serving

    def assign(
        self, targets: Mapping[TargetKey, Target], before: Mapping[TargetKey, Target] | None = None
    ) -> Mapping[TargetKey, Target]:
        """Targets with their pools, in key order.

        A target whose labels did not change since ``before`` keeps its pool. If nothing changed,
        ``before`` itself is returned.
        """
        previous = before or {}
        same = len(previous) == len(targets)
        assigned: dict[TargetKey, Target] = {}
        for key, target in targets.items():
            old = previous.get(key)
            if old is not None and old.pool is not None and old.labels == target.labels:
                assigned[key] = old
            else:
                assigned[key] = replace(target, pool=self.pool_of(target).name)
                same = False
        return previous if same else {key: assigned[key] for key in sorted(assigned)}

    def slo_of(self, target: Target) -> Slo | None:
        """The latency targets of a target's pool; None where none are configured."""
        slo = self.pool_of(target).slo
        return slo if slo.ttft_seconds is not None or slo.tpot_seconds is not None else None

    def frames(
        self, targets: Mapping[TargetKey, Target], before: TargetFrames | None = None
    ) -> TargetFrames:
        """The frames of these targets; ``before`` if it was made from the same objects."""
        if before is not None and before.targets is targets and before.plan is self:
            return before
        return TargetFrames(
            targets,
            self,
            self.serving_frame(targets.values()),
            self.gpu_targets(targets.values()),
            self.declared_reference(targets.values()),
        )

    def serving_frame(self, targets: Iterable[Target]) -> pl.DataFrame:
        """One row of configured settings per target (:data:`SERVING_SCHEMA`)."""
        rows: list[dict[str, Any]] = []
        for target in targets:
            pool, serving = self.pool_of(target), self.serving_of(target)
            rows.append(
                {
                    "instance": target.key.instance,
                    "engine": target.key.engine,
                    "pool": pool.name,
                    "max_num_seqs": _value(_running_cap(serving)),
                    "max_num_seqs_inferred": False,
                    "max_num_batched_tokens": _value(serving.max_num_batched_tokens),
                    "kv_cache_tokens": _value(serving.kv_cache_tokens),
                    "kv_block_tokens": _value(serving.kv_block_tokens),
                    "api_server_count": _value(serving.api_server_count),
                    "gpus_per_replica": pool.gpus_per_replica,
                    "slo_ttft_seconds": pool.slo.ttft_seconds,
                    "slo_tpot_seconds": pool.slo.tpot_seconds,
                    "slo_share": pool.slo.share,
                }
            )
        return pl.DataFrame(rows, schema=SERVING_SCHEMA, orient="row")

    def gpu_targets(self, targets: Iterable[Target]) -> pl.DataFrame:
        """One row per target to join GPUs by (:data:`GPU_TARGET_SCHEMA`)."""
        rows: list[dict[str, Any]] = []
        for target in targets:
            pool, labels = self.pool_of(target), target.labels
            host = target.key.instance.rpartition(":")[0]
            namespace, pod_name = pod_of(labels)
            rows.append(
                {
                    "instance": target.key.instance,
                    "engine": target.key.engine,
                    "cluster": labels.get("cluster") or None,
                    "namespace": namespace,
                    "pod": pod_name,
                    "host": labels.get("hostname") or labels.get("node") or host or None,
                    "own_host": host.strip("[]") in self.own_hosts,
                    "gpu_uuids": list(pool.gpu_uuids),
                    "gpus_declared": pool.gpus_per_replica,
                }
            )
        return pl.DataFrame(rows, schema=dict(GPU_TARGET_SCHEMA), orient="row")

    def declared_reference(self, targets: Iterable[Target]) -> pl.DataFrame:
        """A reference row for each target whose pool declares ``tuned_for``."""
        rows = []
        for target in targets:
            tuned = self.pool_of(target).tuned_for
            if tuned.prompt_tokens is None and tuned.generation_tokens is None:
                continue
            rows.append(
                {
                    "instance": target.key.instance,
                    "engine": target.key.engine,
                    "reference_prompt_tokens_mean": tuned.prompt_tokens,
                    "reference_generation_tokens_mean": tuned.generation_tokens,
                }
            )
        return declared(rows) if rows else no_reference()


def _value(setting: Setting | None) -> float | None:
    return None if setting is None else setting.value


def _running_cap(serving: Serving) -> Setting | None:
    """The cap on running requests: the lower of max_num_seqs and max_num_active_seqs."""
    active, seqs = serving.max_num_active_seqs, serving.max_num_seqs
    if active is not None and (seqs is None or active.value < seqs.value):
        return active
    return seqs
