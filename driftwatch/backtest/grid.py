"""A rule with other values of `for` and of a threshold, each over the same history."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from driftwatch.backtest.outcome import Backtest, backtests
from driftwatch.backtest.stored import StoredHistory
from driftwatch.condition import parse_condition
from driftwatch.durations import parse_duration
from driftwatch.errors import ConditionError, UsageError
from driftwatch.model import Severity
from driftwatch.pipeline.plan import Plan
from driftwatch.rulebook.rules import Rule

MOST_AXES, MOST_CELLS = 2, 100
_DURATIONS = ("for", "keep_firing_for")
_NUMBER = r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_HELP = "RULE.for=0s,5m,10m, or RULE.COLUMN=0.8,0.85,0.9: the number that its `when` compares"


@dataclass(frozen=True, slots=True)
class Axis:
    """One thing of one rule that is varied."""

    rule: str  # rule id
    part: str  # for, keep_firing_for, or the column whose threshold is varied
    values: tuple[str, ...]  # as written
    severity: Severity = "page"  # of the rule

    @property
    def name(self) -> str:
        """As it is typed."""
        return f"{self.rule}.{self.part}"

    def applied(self, rule: Rule, value: str) -> Rule:
        """The rule with a value; so are its overrides where they say nothing else."""
        overrides = tuple(
            replace(one, rule=self._varied(one.rule, value))
            if self._follows(one.rule, rule)
            else one
            for one in rule.overrides
        )
        return replace(self._varied(rule, value), overrides=overrides)

    def _varied(self, rule: Rule, value: str) -> Rule:
        if self.part == "for":
            return replace(rule, for_seconds=parse_duration(value))
        if self.part == "keep_firing_for":
            return replace(rule, keep_firing_for_seconds=parse_duration(value))
        text = _thresholds(rule, self.part).sub(lambda m: _with_number(m, value), rule.when.text)
        return replace(rule, when=parse_condition(text))

    def _follows(self, override: Rule, rule: Rule) -> bool:
        if self.part == "for":
            return override.for_seconds == rule.for_seconds
        if self.part == "keep_firing_for":
            return override.keep_firing_for_seconds == rule.keep_firing_for_seconds
        return override.when.text == rule.when.text


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of values and what comes of it."""

    values: tuple[str, ...]  # of each axis
    result: Backtest
    is_now: bool  # these are the values that the rules have

    def pages_of(self, axes: Sequence[Axis]) -> int:
        """Pages, tickets and notices of the rules that the axes vary."""
        rules = {axis.rule for axis in axes}
        return sum(page.rule in rules for page in self.result.pages)


def axis_of(text: str, rules: Sequence[Rule]) -> Axis:
    """``SlowerAtEqualLoad.for=0s,5m``, or ``EngineStuck.seconds_since_last_token=60,120``.

    Raises UsageError: there is no such rule, part or value.
    """
    form = re.fullmatch(r"(?P<rule>.+)\.(?P<part>\w+)=(?P<values>[^=]*)", text)
    listed = form["values"].split(",") if form else []
    values = tuple(value.strip() for value in listed if value.strip())
    if form is None or not values:
        raise UsageError(f"--grid {text!r} is no axis", help_text=_HELP)
    rule, part = _rule_named(form["rule"], rules), form["part"]
    if part in _DURATIONS:
        for value in values:
            try:
                parse_duration(value)
            except ValueError as error:
                raise UsageError(f"--grid {text!r}: {error}", help_text=_HELP) from error
        return Axis(rule.id, part, values, rule.severity)
    numbers = {match["number"] for match in _matches(rule, part)}
    if not numbers:
        raise UsageError(
            f"--grid {text!r}: `when` of {rule.id} compares no number with {part}",
            help_text=f"it reads {', '.join(sorted(rule.when.columns))}; {_HELP}",
        )
    if len(numbers) > 1:
        several = ", ".join(sorted(numbers))
        raise UsageError(
            f"--grid {text!r}: `when` of {rule.id} compares {part} with {several}",
            help_text="a grid varies one threshold; --against compares two versions of a file",
        )
    axis = Axis(rule.id, part, values, rule.severity)
    for value in values:
        _check(axis, rule, value, text)
    return axis


def _check(axis: Axis, rule: Rule, value: str, text: str) -> None:
    if not re.fullmatch(_NUMBER, value):
        raise UsageError(f"--grid {text!r}: {value!r} is not a number", help_text=_HELP)
    try:
        axis.applied(rule, value)
    except ConditionError as error:
        raise UsageError(f"--grid {text!r}: {error.message}", help_text=_HELP) from error


def _rule_named(name: str, rules: Sequence[Rule]) -> Rule:
    named = [rule for rule in rules if name in (rule.id, rule.alert)]
    exact = [rule for rule in named if rule.id == name] or named
    if len(exact) == 1 and exact[0].enabled:
        return exact[0]
    if exact:
        why = "is off" if len(exact) == 1 else f"is {len(exact)} rules"
        ids = ", ".join(rule.id for rule in exact)
        raise UsageError(f"--grid: {name} {why}", help_text=f"name one of {ids}")
    enabled = ", ".join(sorted({rule.alert for rule in rules if rule.enabled}))
    raise UsageError(f"--grid: there is no rule {name}", help_text=f"the rules: {enabled}")


def _thresholds(rule: Rule, column: str) -> re.Pattern[str]:
    """Where the condition compares the bare column with a number."""
    if column not in rule.when.columns:
        return re.compile(r"(?!)(?P<number>)")
    operator = r"\s*(?:<=|>=|<>|<|>|=)\s*"
    name = rf"(?<![\w.*/+-]){re.escape(column)}(?!\w)"
    after = rf"(?P<before>{name}{operator})(?P<number>{_NUMBER})(?![\w.]|\s*[*/+-])"
    return re.compile(after)


def _matches(rule: Rule, column: str) -> Iterator[re.Match[str]]:
    return _thresholds(rule, column).finditer(rule.when.text)


def _with_number(match: re.Match[str], value: str) -> str:
    return f"{match['before']}{value}"


def grid(
    history: StoredHistory,
    plan: Plan,
    axes: Sequence[Axis],
    *,
    progress: Callable[[float, float], None] | None = None,
) -> list[Cell]:
    """Counts of every combination, the last axis fastest.

    Raises UsageError: more than :data:`MOST_AXES` axes or :data:`MOST_CELLS` combinations.
    """
    combinations = list(product(*(axis.values for axis in axes)))
    if len(axes) > MOST_AXES or len(combinations) > MOST_CELLS:
        raise UsageError(
            f"--grid: {len(axes)} axes, {len(combinations)} combinations",
            help_text=f"at most {MOST_AXES} axes and {MOST_CELLS} combinations",
        )
    varied = []
    for values in combinations:
        one = plan
        for axis, value in zip(axes, values, strict=True):
            one = _with_value(one, axis, value)
        varied.append(one)
    results = backtests(history, varied, with_pages=False, progress=progress)
    return [
        Cell(values, result, one.rules == plan.rules)
        for values, one, result in zip(combinations, varied, results, strict=True)
    ]


def _with_value(plan: Plan, axis: Axis, value: str) -> Plan:
    rules = tuple(
        axis.applied(rule, value) if rule.id == axis.rule else rule for rule in plan.rules
    )
    return replace(plan, rules=rules)
