"""What cannot fire yet and will with time: rules that need a pin, a past, or a pool of three."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from driftwatch.doctor.checks import Check
from driftwatch.doctor.reach import can_be_true
from driftwatch.evidence import BY_NAME, Need
from driftwatch.model import Target, TargetKey
from driftwatch.rulebook.rules import Rule

NEEDED_TARGETS = 3
_NO_PIN = "no pin seen: a configuration with a database knows what is armed"
# column → how much of its own past it needs (detection.md; LatencyCreep's 7 days, a pin's 24 h)
_PAST: Mapping[str, str] = {
    "latency_creeps": "7 days",
    "traffic_shifted": "a day (the same hour of another day)",
    "pin_lengths_moved": "a pin and 24 h",
}


def arming(
    rules: Sequence[Rule],
    targets: Mapping[TargetKey, Target],
    waits: Mapping[TargetKey, str] | None,
) -> tuple[list[Check], frozenset[str]]:
    """Checks of the rules that wait, per pool, and the rules that wait in any.

    Args:
        rules: the enabled ones.
        targets: those that answer, with their pools.
        waits: target → what its pin lacks, "" where one is in force; None = nobody looked.
    """
    members: dict[str, list[TargetKey]] = {}
    for key, target in sorted(targets.items()):
        members.setdefault(target.pool or "", []).append(key)
    checks: list[Check] = []
    waiting: set[str] = set()
    for pool, keys in sorted(members.items()):
        for check in _of_pool(rules, pool, keys, waits):
            checks.append(check)
            waiting |= set(check.disables)
    return checks, frozenset(waiting)


def _of_pool(
    rules: Sequence[Rule],
    pool: str,
    keys: Sequence[TargetKey],
    waits: Mapping[TargetKey, str] | None,
) -> Iterator[Check]:
    of_pins = _without(rules, "speed_pin")
    lacking = [(key, waits.get(key, "") if waits is not None else _NO_PIN) for key in keys]
    lacking = [(key, why) for key, why in lacking if why]
    if of_pins and lacking:
        key, why = lacking[0]
        many = f"{len(lacking)} of {len(keys)} ({key.text}): " if len(keys) > 1 else ""
        yield Check(
            "ARMING",
            pool,
            f"{many}{why}",
            of_pins,
            "driftwatch baseline propose; a pin under 24 h pages 3-10x too often",
        )
    of_three = _without(rules, "pool_of_three")
    if of_three and len(keys) < NEEDED_TARGETS:
        what = f"a pool of {len(keys)}: twins are compared from {NEEDED_TARGETS} on"
        yield Check("ARMING", pool, what, of_three)
    of_past: dict[str, list[str]] = {}
    for rule in rules:
        if rule.id in _without([rule], "own_past"):
            told = [needed for column, needed in _PAST.items() if column in rule.columns]
            of_past.setdefault(told[0] if told else "hours to days", []).append(rule.id)
    for needed, named in of_past.items():
        yield Check("ARMING", pool, f"speaks after {needed} of minutes", tuple(named))


def _without(rules: Sequence[Rule], need: Need) -> tuple[str, ...]:
    """Ids of the rules that cannot be true without the columns that have a need."""
    found = []
    for rule in rules:
        dark = {column for column in rule.columns if need in BY_NAME[column].needs}
        if dark and not can_be_true(rule.when, dark):
            found.append(rule.id)
    return tuple(found)
