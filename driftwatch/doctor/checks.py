"""What doctor found: a check each, the like troubles of many targets as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from driftwatch.model import Target, TargetKey

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
