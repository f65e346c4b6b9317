"""Two rule sets over one history: which pages are gone, new, or the same at another time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from driftwatch.backtest.pages import PastPage
from driftwatch.rulebook.rules import Rule


@dataclass(frozen=True, slots=True)
class Pair:
    """A page of both rule sets."""

    before: PastPage
    now: PastPage

    @property
    def later(self) -> timedelta:
        """How much later it fires now."""
        return self.now.fired_at - self.before.fired_at

    @property
    def changes(self) -> tuple[str, ...]:
        """What is not as before, in words."""
        words = []
        minutes = round(self.later.total_seconds() / 60)
        if minutes:
            words.append(f"{abs(minutes)} min {'later' if minutes > 0 else 'earlier'}")
        for noun, old, new in (
            ("severity", self.before.severity, self.now.severity),
            ("rule", self.before.rule, self.now.rule),
            ("leaf", self.before.leaf, self.now.leaf),
        ):
            if old != new:
                words.append(f"{noun} was {old or 'none'}")
        return tuple(words)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every page of both rule sets."""

    dropped: tuple[PastPage, ...]  # sent before only
    new: tuple[PastPage, ...]  # sent now only
    pairs: tuple[Pair, ...]  # sent by both

    @property
    def moved(self) -> tuple[Pair, ...]:
        """Those that fire at another minute."""
        return tuple(pair for pair in self.pairs if pair.later)


def compare(
    before: Sequence[PastPage], now: Sequence[PastPage], rules: Sequence[Rule], until: datetime
) -> Comparison:
    """Match the pages of two rule sets.

    Two pages are the same where they are about the same pool, come of the same rule or of rules
    of one group, and overlap in time; the same rule and the longest overlap first, each page once.

    Args:
        rules: those of both sets.
        until: end of the history, at which what fires still is cut.
    """
    group_of = {rule.id: rule.group for rule in rules}
    candidates = []
    for i, one in enumerate(before):
        for k, other in enumerate(now):
            overlap = _overlap(one, other, until)
            if overlap >= timedelta(0) and _alike(one, other, group_of):
                near = abs(one.fired_at - other.fired_at)
                candidates.append((one.rule != other.rule, -overlap, near, i, k))
    pairs: dict[int, int] = {}
    for *_, i, k in sorted(candidates):
        if i not in pairs and k not in pairs.values():
            pairs[i] = k
    matched = set(pairs.values())
    return Comparison(
        dropped=tuple(one for i, one in enumerate(before) if i not in pairs),
        new=tuple(one for k, one in enumerate(now) if k not in matched),
        pairs=tuple(Pair(before[i], now[k]) for i, k in sorted(pairs.items())),
    )


def _alike(one: PastPage, other: PastPage, group_of: Mapping[str, str]) -> bool:
    groups = group_of.get(one.rule), group_of.get(other.rule)
    return (one.rule == other.rule or (None not in groups and groups[0] == groups[1])) and (
        concern_the_same(one, other)
    )


def concern_the_same(one: PastPage, other: PastPage) -> bool:
    """The same pool."""
    return one.pool == other.pool


def _overlap(one: PastPage, other: PastPage, until: datetime) -> timedelta:
    """How long both are open; below zero where they do not touch."""
    end = min(one.resolved_at or until, other.resolved_at or until)
    return end - max(one.started_at, other.started_at)
