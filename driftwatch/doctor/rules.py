"""Checks of doctor, those of many targets as one; and which rules can fire: one cannot where its
condition needs a column that is always unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal

from driftwatch.collect.registry import BY_COLUMN
from driftwatch.evidence import BY_NAME, COLUMNS, Column, Need
from driftwatch.model import Serving, Target, TargetKey
from driftwatch.numbers import plural
from driftwatch.pipeline.plan import Pool
from driftwatch.rulebook.rules import Rule
from driftwatch.rulebook.truths import can_be_true

Status = Literal["MISSING", "WRONG", "WARNING", "LEARNING", "OFF", "ok"]
Setting = tuple[str | int, ...]

_NAMED = 3  # targets of a pool that are named; the rest is counted


@dataclass(frozen=True, slots=True)
class Check:
    """One check."""

    # MISSING (a rule cannot fire, or nobody hears of it), WRONG (it fires on a number that is not
    # what it says), WARNING (it can fire, but less well), LEARNING (it cannot fire yet, and will
    # with time), OFF (it cannot fire here, and no setting or time cures that), ok
    status: Status
    where: str  # target, pool or source
    what: str  # its result
    disables: tuple[str, ...] = ()  # rules or answers that this costs
    fix: str | None = None  # the setting that mends it, below its pool where ``pool`` is one
    pool: str | None = None  # whose the setting is; None = no pool's
    flags: str | None = None  # what mends it on the command line, where that can
    # where in the configuration that is: keys and positions from its root, or from the pool
    setting: Setting = ()


@dataclass(frozen=True, slots=True)
class Checkup:
    """Every check, and which rules can fire on every target."""

    checks: tuple[Check, ...]  # in the order they were made
    # enabled rule id → it can fire on every target
    rules: Mapping[str, bool] = field(default_factory=dict)
    targets: int = 0  # how many there are
    # ids of those that cannot fire for want of a baseline or of history only
    learning: frozenset[str] = frozenset()
    off: frozenset[str] = frozenset()  # ids of those switched off or without peers

    def with_checks(self, more: Sequence[Check]) -> Checkup:
        """These checks as well; one that costs every rule leaves none that can fire."""
        checks = (*self.checks, *more)
        if not any("every rule" in check.disables for check in more):
            return replace(self, checks=checks)
        return Checkup(checks, dict.fromkeys(self.rules, False), self.targets)

    @property
    def ready(self) -> bool:
        """Nothing is missing or wrong, and every enabled rule can fire, is learning or off."""
        bad = any(check.status in ("MISSING", "WRONG") for check in self.checks)
        waived = self.learning | self.off
        able = all(can or rule in waived for rule, can in self.rules.items())
        return bool(self.rules) and able and not bad


@dataclass(frozen=True, slots=True)
class TargetCheck:
    """A check of one target: as a :class:`Check`, whose ``setting`` is its pool's unless it begins
    at a source.
    """

    key: TargetKey
    status: Status
    what: str
    disables: tuple[str, ...] = ()
    fix: str | None = None
    setting: Setting = ()
    kind: str = ""  # checks of one kind are printed together, though their numbers differ
    weight: float = 0.0  # of one kind the check with the largest is quoted


def by_pool(checks: Iterable[TargetCheck], targets: Mapping[TargetKey, Target]) -> list[Check]:
    """One check per pool and kind, however many targets it has.

    A pool of one target is called by the target, the first few of several are named.
    """
    sizes = Counter(target.pool or "" for target in targets.values())
    groups: dict[tuple[str, str, str, str | None], list[TargetCheck]] = {}
    for one in checks:
        pool = targets[one.key].pool or ""
        groups.setdefault((pool, one.status, one.kind or one.what, one.fix), []).append(one)
    return [_of_pool(pool, sizes[pool], group) for (pool, *_), group in groups.items()]


def _of_pool(pool: str, size: int, group: Sequence[TargetCheck]) -> Check:
    worst = max(group, key=lambda one: one.weight)
    where, what = pool, worst.what
    if size == 1:
        where = worst.key.text
    elif worst.status in ("ok", "OFF"):
        what = f"{len(group)} of {size}: {what}"
    else:
        named = ", ".join(sorted(one.key.text for one in group)[:_NAMED])
        more = ", …" if len(group) > _NAMED else ""
        differ = len({one.what for one in group}) > 1
        at = f", at worst {worst.key.text}" if differ else ""
        what = f"{len(group)} of {size} ({named}{more}): {what}{at}"
    own = bool(worst.setting) and worst.setting[0] not in ("sources", "interval", "pools")
    return Check(
        status=worst.status,
        where=where,
        what=what,
        disables=tuple(sorted({name for one in group for name in one.disables})),
        fix=worst.fix,
        pool=pool if own else None,
        setting=worst.setting,
    )


# Registry column → what the evidence takes where it is not on the page: vLLM before
# waiting_by_reason (all waiting counts as waiting for capacity), and before computed tokens.
_STAND_INS: Mapping[str, str] = {
    "waiting_capacity_requests": "waiting_requests",
    "prompt_tokens_computed_total": "prompt_tokens_total",
}
# A ratio is unknown where the reading is that it compares.
_READING = {"gpu_sm_clock_ratio": "gpu_sm_clock_hertz"}
NEEDED_TARGETS = 3
_NO_DATABASE = "no baseline: driftwatch run has made no database yet"
_NO_MINUTE = "driftwatch run has stored no minute of it yet"
_PROPOSE = "after 24 h of driftwatch run: driftwatch baseline list"
# column → how much of its own past it needs, and in words
_PAST: Mapping[str, tuple[timedelta, str]] = {
    "latency_creeps": (timedelta(days=7), "7 days of history"),
    "baseline_lengths_moved": (timedelta(days=2), "a baseline and two days of history"),
}
_DAY = timedelta(days=1), "a baseline or a day of history"


# Metrics that only servers with a feature have: without it nothing is missing.
FEATURES: Mapping[str, str] = {
    "spec_decode_accepted_tokens_total": "drafts no tokens (speculative decoding)",
    "spec_decode_draft_tokens_total": "drafts no tokens (speculative decoding)",
    "rejected_requests_total": "its release of vLLM does not count rejected requests",
}


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """The facts of one target that decide which columns it can have."""

    row: Mapping[str, object]  # its newest scrape
    pool: Pool  # its pool
    serving: Serving  # its settings
    has_baseline: bool = False  # a baseline was named
    members: int = 1  # targets of its pool
    # its row of :func:`driftwatch.signals.gpus.gpu_counts`; None = GPUs were not looked for, and
    # count as there
    gpus: Mapping[str, Any] | None = None
    has_release: bool = False  # a label, the server or its start-up log says which release runs

    def shows(self, source: str) -> bool:
        """Whether the page has it, or it is no metric."""
        metric = BY_COLUMN.get(source)
        if metric is None:
            return True
        probe = f"{source}_count" if metric.type == "histogram" else source
        return self.row[probe] is not None

    def has(self, source: str) -> bool:
        """Whether the page has it, or what stands in for it."""
        return self.shows(source) or (source in _STAND_INS and self.shows(_STAND_INS[source]))

    def causes(self, column: Column) -> frozenset[str]:
        """Why the column is always unknown: registry columns and needs; empty where it is not."""
        lacking = {
            s
            for s in column.sources
            if s not in column.optional and s not in FEATURES and not self.has(s)
        }
        if column.name == "slo_missed":
            names = ("ttft_seconds", "tpot_seconds")
            wanted = {name for name in names if getattr(self.pool.slo, name) is not None}
            if not any(self.has(name) for name in wanted):
                lacking = wanted
        return frozenset((*lacking, *(n for n in column.needs if not self._meets(n, column.name))))

    def poorer(self, column: Column) -> frozenset[str]:
        """Sources that are not on the page and that the column does without."""
        return frozenset(s for s in column.optional if not self.has(s))

    def _meets(self, need: Need, column: str) -> bool:
        """Whether a need is met; what comes with time always is (:func:`waiting`)."""
        slo, tuned, gpus = self.pool.slo, self.pool.tuned_for, self.gpus
        prompt = self.has_baseline or tuned.prompt_tokens is not None
        generation = self.has_baseline or tuned.generation_tokens is not None
        ttft, tpot = slo.ttft_seconds is not None, slo.tpot_seconds is not None
        met: Mapping[Need, bool] = {
            "prompt_tokens_reference": prompt,
            "generation_tokens_reference": generation,
            "lengths_reference": prompt or generation,
            "gpu_count": gpus is None or gpus["gpu_count"] is not None,
            "gpu_reading": gpus is None or gpus.get(_READING.get(column, column)) is not None,
            "slo": ttft or tpot,
            "slo_ttft": ttft,
            "slo_tpot": tpot,
            "max_num_batched_tokens": self.serving.max_num_batched_tokens is not None,
            "pool_of_several": self.members > 1,
            "release": self.has_release,
        }
        return met.get(need, True)


@dataclass(frozen=True, slots=True)
class Cost:
    """The rules that an unknown column costs."""

    lost: tuple[str, ...] = ()  # ids of rules that cannot fire
    partly: tuple[str, ...] = ()  # ids of rules that can fire on what is left of their condition

    @property
    def severity(self) -> Status:
        """Of a check of it: whether a rule cannot fire at all."""
        return "MISSING" if self.lost else "WARNING"

    @property
    def disables(self) -> tuple[str, ...]:
        """For ``disables`` of a check."""
        return (*self.lost, *(f"a part of {rule}" for rule in self.partly))


@dataclass(frozen=True, slots=True)
class Costs:
    """The columns that each target never has, and the rules that this costs."""

    rules: Sequence[Rule]  # the enabled ones
    facts: Mapping[TargetKey, TargetFacts]  # per target that answers
    _causes: dict[TargetKey, Mapping[str, frozenset[str]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def dark(self, key: TargetKey) -> Mapping[str, frozenset[str]]:
        """Columns of the rules that are always unknown → why."""
        if key not in self._causes:
            names = {name for rule in self.rules for name in rule.columns}
            causes_of = {name: self.facts[key].causes(BY_NAME[name]) for name in sorted(names)}
            self._causes[key] = {name: causes for name, causes in causes_of.items() if causes}
        return self._causes[key]

    def lost(self, key: TargetKey) -> list[str]:
        """Ids of rules that cannot fire on a target, although they are on in its pool."""
        dark, pool = frozenset(self.dark(key)), self.facts[key].pool.name
        here = [rule.in_pool(pool) for rule in self.rules]
        return [r.id for r in here if r.enabled and not _fires(r, dark & r.columns)]

    def of(self, keys: Iterable[TargetKey], *causes: str) -> Cost:
        """The rules that these causes cost on any of the targets."""
        lost: set[str] = set()
        touched: set[str] = set()
        for key in keys:
            if key not in self.facts:
                continue
            dark = {name for name, why in self.dark(key).items() if why & set(causes)}
            rules = (rule.in_pool(self.facts[key].pool.name) for rule in self.rules)
            here = {rule.id: rule for rule in rules if rule.enabled and rule.columns & dark}
            touched |= here.keys()
            cannot = here.keys() & set(self.lost(key)) if here else set()
            lost |= cannot
        order = [rule.id for rule in self.rules]
        return Cost(
            tuple(r for r in order if r in lost), tuple(r for r in order if r in touched - lost)
        )


def _fires(rule: Rule, dark: frozenset[str]) -> bool:
    """Whether the rule can be true without these columns."""
    return can_be_true(rule.when, dark) and (
        rule.precondition is None or can_be_true(rule.precondition, dark)
    )


def waiting(
    rules: Sequence[Rule],
    targets: Mapping[TargetKey, Target],
    waits: Mapping[TargetKey, str] | None,
    past: timedelta,
    has_baseline: bool,
) -> Iterator[Check]:
    """Per pool the rules that wait for a baseline or history, lack peers, or are overridden.

    ``rules``: the enabled ones; ``targets``: those that answer, with their pools; ``waits``: target
    → what its speed waits for, "" where it is judged; None = nobody looked; ``past``: how far the
    stored minutes reach back; ``has_baseline``: every target has one.
    """
    members: dict[str, list[TargetKey]] = {}
    for key, target in sorted(targets.items()):
        members.setdefault(target.pool or "", []).append(key)
    for pool, keys in sorted(members.items()):
        here = _in_pool(rules, pool)
        of_baselines = _without(here, "speed_baseline", "baseline")
        texts = {key: _NO_DATABASE if waits is None else waits.get(key, _NO_MINUTE) for key in keys}
        lacking = {key: why for key, why in texts.items() if why}
        if of_baselines and lacking:
            key, why = next(iter(lacking.items()))
            if len({*texts.values()}) > 1:
                why = f"{len(lacking)} of {len(keys)} ({key.text}): {why}"
            yield Check("LEARNING", pool, why, of_baselines, _PROPOSE)
        of_three = _without(here, "pool_of_three")
        if of_three and len(keys) < NEEDED_TARGETS:
            count = plural(len(keys), "server")
            what = f"has {count}, a comparison needs {NEEDED_TARGETS}"
            yield Check("OFF", pool, what, of_three)
        overridden: dict[str, list[str]] = {}
        for rule in rules:
            if not (there := rule.in_pool(pool)).enabled:
                overridden.setdefault(there.reason or "switched off", []).append(rule.id)
        for reason, ids in overridden.items():
            yield Check("OFF", pool, reason, tuple(ids))
        of_past: dict[str, list[str]] = {}
        for rule in here:
            length, needed = next((_PAST[c] for c in _PAST if c in rule.columns), _DAY)
            of_baseline = any("baseline" in BY_NAME[column].needs for column in rule.columns)
            waits_for_day = not has_baseline and _without([rule], "day")
            if (_without([rule], "own_past") or waits_for_day) and (
                past < length or (of_baseline and not has_baseline)
            ):
                needed = needed.removeprefix("a baseline and " if has_baseline else "")
                of_past.setdefault(needed, []).append(rule.id)
        for needed, named in of_past.items():
            yield Check("LEARNING", pool, f"needs {needed}", tuple(named))


def unused(rules: Sequence[Rule], facts: Mapping[TargetKey, TargetFacts]) -> Iterator[Check]:
    """Per pool the rules on a feature that none of its servers has.

    ``rules``: the enabled ones; ``facts``: per target that answers.
    """
    members: dict[str, list[TargetFacts]] = {}
    for one in facts.values():
        members.setdefault(one.pool.name, []).append(one)
    for pool, several in sorted(members.items()):
        for what in dict.fromkeys(FEATURES.values()):
            sources = {source for source, feature in FEATURES.items() if feature == what}
            dark = frozenset(c.name for c in COLUMNS if sources & set(c.sources))
            lost = tuple(r.id for r in _in_pool(rules, pool) if not can_be_true(r.when, dark))
            if lost and not any(one.shows(source) for one in several for source in sources):
                yield Check("OFF", pool, what, lost)


def _in_pool(rules: Sequence[Rule], pool: str) -> list[Rule]:
    """The rules that are on in a pool, as they are there."""
    return [here for rule in rules if (here := rule.in_pool(pool)).enabled]


def _without(rules: Sequence[Rule], *needs: Need) -> tuple[str, ...]:
    """Ids of the rules that cannot be true without the columns that have one of the needs; what
    needs a past besides waits for that.
    """
    dark = frozenset(
        column.name
        for column in COLUMNS
        if any(need in column.needs for need in needs)
        and ("own_past" in needs or "own_past" not in column.needs)
    )
    return tuple(rule.id for rule in rules if not can_be_true(rule.when, dark))
