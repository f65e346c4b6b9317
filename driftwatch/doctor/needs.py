"""Which evidence columns are never known on a target, why, and what that costs the rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from driftwatch.collect.registry import BY_COLUMN
from driftwatch.doctor.reach import can_be_true
from driftwatch.evidence import BY_NAME, Column, Need
from driftwatch.model import Serving, TargetKey
from driftwatch.pipeline.plan import Pool
from driftwatch.rulebook.rules import Rule

# Registry column → what the evidence takes where it is not on the page: vLLM before
# waiting_by_reason (all waiting counts as waiting for capacity), and before computed tokens.
_STAND_INS: Mapping[str, str] = {
    "waiting_capacity_requests": "waiting_requests",
    "prompt_tokens_computed_total": "prompt_tokens_total",
}
# A ratio is unknown where the reading is that it compares.
_READING = {"gpu_sm_clock_ratio": "gpu_sm_clock_hertz"}


@dataclass(frozen=True, slots=True)
class Known:
    """What decides which columns of one target can be known.

    Attributes:
        row: its newest scrape.
        pool: its pool.
        serving: its settings.
        has_baseline: a baseline was named.
        members: targets of its pool.
        gpus: its row of :func:`driftwatch.signals.gpus.gpu_counts`; None = GPUs were not looked
            for, and count as known.
        has_release: a label, the server or its start-up log says which release runs.
    """

    row: Mapping[str, object]
    pool: Pool
    serving: Serving
    has_baseline: bool = False
    members: int = 1
    gpus: Mapping[str, Any] | None = None
    has_release: bool = False

    def shows(self, source: str) -> bool:
        """The page has it, or it is no metric."""
        metric = BY_COLUMN.get(source)
        if metric is None:
            return True
        probe = f"{source}_count" if metric.type == "histogram" else source
        return self.row[probe] is not None

    def has(self, source: str) -> bool:
        """The page has it, or what stands in for it."""
        return self.shows(source) or (source in _STAND_INS and self.shows(_STAND_INS[source]))

    def causes(self, column: Column) -> frozenset[str]:
        """Why the column is never known: registry columns and needs; empty where it can be."""
        gone = {s for s in column.sources if s not in column.optional and not self.has(s)}
        if column.name == "kv_cache_tokens" and self.serving.kv_cache_tokens is not None:
            gone = set()
        if column.name == "slo_missed":
            slo = self.pool.slo
            targets = {"ttft_seconds": slo.ttft_seconds, "tpot_seconds": slo.tpot_seconds}
            wanted = {name for name, target in targets.items() if target is not None}
            if not any(self.has(name) for name in wanted):
                gone = wanted
        return frozenset((*gone, *(n for n in column.needs if not self._met(n, column.name))))

    def poorer(self, column: Column) -> frozenset[str]:
        """Sources that are not on the page and that the column does without."""
        return frozenset(s for s in column.optional if not self.has(s))

    def _met(self, need: Need, column: str) -> bool:
        slo, tuned = self.pool.slo, self.pool.tuned_for
        match need:
            case "prompt_tokens_reference":
                return self.has_baseline or tuned.prompt_tokens is not None
            case "generation_tokens_reference":
                return self.has_baseline or tuned.generation_tokens is not None
            case "lengths_reference":
                declared = (tuned.prompt_tokens, tuned.generation_tokens)
                return self.has_baseline or declared != (None, None)
            case "baseline":  # what also needs a past comes with a pin
                return self.has_baseline or "own_past" in BY_NAME[column].needs
            case "gpu_count":
                return self.gpus is None or self.gpus["gpu_count"] is not None
            case "gpu_reading":
                return self.gpus is None or self.gpus[_READING.get(column, column)] is not None
            case "slo":
                return slo.ttft_seconds is not None or slo.tpot_seconds is not None
            case "slo_ttft":
                return slo.ttft_seconds is not None
            case "slo_tpot":
                return slo.tpot_seconds is not None
            case "max_num_batched_tokens":
                return self.serving.max_num_batched_tokens is not None
            case "pool_of_several":
                return self.members > 1
            case "release":
                return self.has_release
            case "speed_pin" | "own_past" | "pool_of_three":  # comes with time: checkup_arming
                return True
            case "max_num_seqs":  # inferred from a plateau sooner or later
                return True


@dataclass(frozen=True, slots=True)
class Cost:
    """What something unknown costs.

    Attributes:
        lost: ids of rules that cannot fire.
        partly: ids of rules that can fire on what is left of their condition.
    """

    lost: tuple[str, ...] = ()
    partly: tuple[str, ...] = ()

    @property
    def told(self) -> tuple[str, ...]:
        """For ``disables`` of a check."""
        return (*self.lost, *(f"a part of {rule}" for rule in self.partly))


@dataclass(frozen=True, slots=True)
class Costs:
    """What is never known of each target, and what that costs.

    Attributes:
        rules: the enabled ones.
        known: per target that answers.
    """

    rules: Sequence[Rule]
    known: Mapping[TargetKey, Known]
    _causes: dict[TargetKey, Mapping[str, frozenset[str]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def dark(self, key: TargetKey) -> Mapping[str, frozenset[str]]:
        """Columns of the rules that are never known → why."""
        if key not in self._causes:
            names = {name for rule in self.rules for name in rule.columns}
            found = {name: self.known[key].causes(BY_NAME[name]) for name in sorted(names)}
            self._causes[key] = {name: causes for name, causes in found.items() if causes}
        return self._causes[key]

    def lost(self, key: TargetKey) -> list[str]:
        """Ids of rules that cannot fire on a target."""
        dark = frozenset(self.dark(key))
        return [r.id for r in self.rules if dark & r.columns and not _fires(r, dark & r.columns)]

    def of(self, keys: Iterable[TargetKey], *causes: str) -> Cost:
        """What these causes cost on any of the targets."""
        lost: set[str] = set()
        touched: set[str] = set()
        for key in keys:
            if key not in self.known:
                continue
            dark = {name for name, why in self.dark(key).items() if why & set(causes)}
            here = {rule.id for rule in self.rules if rule.columns & dark}
            touched |= here
            lost |= here & set(self.lost(key)) if here else set()
        order = [rule.id for rule in self.rules]
        return Cost(
            tuple(r for r in order if r in lost), tuple(r for r in order if r in touched - lost)
        )


def _fires(rule: Rule, dark: frozenset[str]) -> bool:
    """The rule can be true on what is left."""
    return _true(rule.when, dark) and (rule.given is None or _true(rule.given, dark))


# many targets lack the same
_true = lru_cache(maxsize=4096)(can_be_true)
