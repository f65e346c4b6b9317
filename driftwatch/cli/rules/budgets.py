"""What rules may page a server-month, as it is typed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from driftwatch.errors import UsageError

if TYPE_CHECKING:
    from driftwatch.rulebook.rules import Rule


def budgets_of(
    texts: Sequence[str], rules: Sequence[Rule]
) -> tuple[float | None, dict[str, float]]:
    """``0.25`` and ``BatchDrift=0.5``: what every rule may, and what one may.

    Raises UsageError: one is neither, or there is no such rule.
    """
    from driftwatch.cli.rules.explain import no_such_rule

    most: float | None = None
    of_rule: dict[str, float] = {}
    for text in texts:
        rule, equals, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if not 0 <= value < float("inf") or (equals and not rule):
            raise UsageError(
                f"--max-pages-per-server-month {text!r} is no number from 0 on",
                help_text="0.25, or BatchDrift=0.5 for one rule",
            )
        if rule and not any(rule in (one.id, one.alert) for one in rules):
            raise no_such_rule(rule, rules, "--max-pages-per-server-month: ")
        if rule:
            of_rule[rule] = value
        else:
            most = value
    return most, of_rule


def unjudged(
    names: Iterable[str], rules: Sequence[Rule], undetermined_ratio: Mapping[str, float]
) -> Iterator[str]:
    """Rules with a budget of their own that had no verdict in any minute: they kept no budget."""
    for name in names:
        ids = [rule.id for rule in rules if name in (rule.id, rule.alert)]
        if all(undetermined_ratio.get(one) == 1.0 for one in ids):
            yield name
