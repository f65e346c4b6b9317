"""A rule in words: what it fires on, where it is another, when it ends. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from driftwatch.condition import Condition
from driftwatch.numbers import duration
from driftwatch.rulebook.comparisons import Comparison, Joined, Part, parts_of
from driftwatch.rulebook.rules import Override, Rule

Line = tuple[str, str]  # a text, and the indent of its further lines


def rule_lines(rule: Rule) -> Iterator[Line]:
    """The condition in words, when it fires and ends, and its file."""
    yield from condition_lines(rule)
    yield f"File: {rule.path}:{rule.line}", "  "


def condition_lines(rule: Rule) -> Iterator[Line]:
    """The condition in words, when it fires and ends."""
    yield from _condition(f"It fires {_fires(rule)}", rule.when)
    for one in rule.overrides:
        yield from _override(_where(one), one.rule, rule)
    if rule.precondition is not None:
        yield from _condition("It has no verdict unless", rule.precondition)
    yield from _ends("It", rule)
    if rule.inhibited_by:
        yield f"It does not fire while {' or '.join(rule.inhibited_by)} fires on that target", "  "


def _where(one: Override) -> str:
    pools = "every pool" if "*" in one.pools else ", ".join(one.pools)
    return f"In {pools} ({one.place})"


def _fires(rule: Rule) -> str:
    after = duration(rule.for_seconds) if rule.for_seconds else "one minute"
    return f"a {rule.severity} after {after} in which"


def _override(where: str, one: Rule, rule: Rule) -> Iterator[Line]:
    """What the rule is in some pools."""
    if not one.is_evaluated:
        yield f"{where} it is off ({one.reason})", "  "
        return
    yield from _condition(f"{where} it fires {_fires(one)}", one.when)
    if one.precondition is not None and one.precondition != rule.precondition:
        yield from _condition(f"{where} it has no verdict unless", one.precondition)
    if (one.until, one.keep_firing_for_seconds) != (rule.until, rule.keep_firing_for_seconds):
        yield from _ends(f"{where} it", one)


def _ends(begin: str, rule: Rule) -> Iterator[Line]:
    held = rule.keep_firing_for_seconds
    ends = f"{begin} ends after {duration(held)} in which" if held else f"{begin} ends when"
    if rule.until is not None:
        yield from _condition(ends, rule.until)
    elif held:
        yield f"{ends} that is false", "  "


def _condition(begin: str, condition: Condition) -> Iterator[Line]:
    """A comparison a line; those that belong together are indented."""
    part = parts_of(condition)
    if isinstance(part, Comparison):
        yield f"{begin} {part.subject} is {part.wanted}", "  "
        return
    yield f"{begin} {_holds(part)}", "  "
    for inner in part.parts:
        yield from _part_lines(inner, "  ")


def _holds(part: Joined) -> str:
    return "all of these hold" if part.how == "all" else "any of these holds"


def _part_lines(part: Part, before: str) -> Iterator[Line]:
    if isinstance(part, Comparison):
        yield f"{before}{part.subject} is {part.wanted}", f"{before}    "
        return
    yield f"{before}{part.how} of", before
    for inner in part.parts:
        yield from _part_lines(inner, f"{before}  ")
