"""Lints of rules beside each other: one that says what another says, or its opposite.

Every rule is evaluated on a witness of every other, a row in which that one is true. What the
witnesses do not rule out is then proved on boxes, or not reported.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from driftwatch.errors import Problem
from driftwatch.evidence import BY_NAME
from driftwatch.rulebook.lint_inhibition import RANKS
from driftwatch.rulebook.lint_places import alert_place, problem
from driftwatch.rulebook.lint_ranges import Box, Domain, Interval, domain_of
from driftwatch.rulebook.lint_truth import (
    boxes_of,
    boxes_where,
    boxes_where_all,
    can_be_unknown,
    rows_of,
)
from driftwatch.rulebook.rules import ReadRule, Rule

_DTYPES = {"float": pl.Float64, "bool": pl.Boolean, "string": pl.String}
Matrix = NDArray[np.bool_]
Placed = tuple[ReadRule, Rule]


def pair_problems(rules: Sequence[Placed]) -> Iterator[Problem]:
    """Rules that another one makes needless, silences for good, or is the opposite of.

    Rules that are off, or something else in some pool, are compared with none, and of the others
    only those that speak to the same people: with the same labels, tree, receivers and mute
    windows.
    """
    alone = [(one, rule) for one, rule in rules if rule.enabled and not rule.overrides]
    silenced = list(_silenced(alone))
    yield from (one_problem for _, one_problem in silenced)
    ids = {id(rule) for rule, _ in silenced}
    groups: dict[object, list[Placed]] = {}
    for one, rule in alone:
        labels, muted = tuple(sorted(rule.labels.items())), rule.mute_time_intervals
        kind = rule.per, rule.tree, labels, rule.receivers, muted
        groups.setdefault(kind, []).append((one, rule))
    for group in groups.values():
        if len(group) > 1:
            yield from _needless([(one, rule) for one, rule in group if id(rule) not in ids])
            yield from _opposites(group)


def _needless(alone: Sequence[Placed]) -> Iterator[Problem]:
    """Rules that are true only while another one is, which is at least as severe."""
    rules = [rule for _, rule in alone]
    possible = _on_witnesses(rules) & _as_severe(rules)
    for number, (one, rule) in enumerate(alone):
        for at in np.flatnonzero(possible[number]).tolist():
            other = alone[at][1]
            if not _implies(rule, other):
                continue
            is_mutual = bool(possible[at, number]) and _implies(other, rule)
            if is_mutual and at > number:
                continue  # the later of two is one too many
            place, where = alert_place(one), f"{other.alert} in {other.path}:{other.line}"
            if is_mutual:
                message = f"{rule.alert} is true in the same minutes as {where}"
                yield problem(one.file, place, "duplicate-rule", message, "remove one of them")
            else:
                message = f"{rule.alert} adds nothing: {where} fires whenever it does"
                help_text = "give it a higher severity than the other, or remove it"
                yield problem(one.file, place, "shadowed", message, help_text)
            break


def _silenced(alone: Sequence[Placed]) -> Iterator[tuple[Rule, Problem]]:
    """Rules that hold only while an alert holds that inhibits them."""
    by_alert: dict[str, list[Rule]] = {}
    for _, rule in alone:
        by_alert.setdefault(rule.alert, []).append(rule)
    for one, rule in alone:
        for name in one.names("inhibited_by"):
            for other in by_alert.get(str(name.value), ()):
                if _fires_first(other, rule) and _implies(rule, other):
                    message = (
                        f"{rule.alert} never fires: {other.alert} inhibits it whenever it is true"
                    )
                    place, help_text = name.place, f"take {other.alert} out of inhibited_by"
                    yield rule, problem(one.file, place, "never-fires", message, help_text)


def _fires_first(other: Rule, rule: Rule) -> bool:
    """Whether a rule's inhibitor fires no later than the rule would, and nothing stops it."""
    return (
        rule.alert not in other.inhibited_by
        and other.for_seconds <= rule.for_seconds
        and set(other.inhibited_by) <= set(rule.inhibited_by)
        and other.per == rule.per
    )


def _opposites(alone: Sequence[Placed]) -> Iterator[Problem]:
    """Two rules of which one is true in every minute."""
    by_columns: dict[frozenset[str], list[Placed]] = {}
    for one, rule in alone:
        if rule.precondition is None:
            by_columns.setdefault(rule.when.columns, []).append((one, rule))
    for columns, some in by_columns.items():
        if len(some) < 2:
            continue
        reported: set[int] = set()
        rules = [rule for _, rule in some]
        false = ~_verdicts(_corners(columns), rules)
        both_false = (false.astype(np.float32).T @ false.astype(np.float32)) > 0
        for first, second in np.argwhere(~both_false).tolist():
            if first >= second or second in reported:
                continue
            rest = boxes_of(rules[first].when, False)
            if not boxes_where(rules[second].when, False, rest):
                reported.add(second)
                one, other = some[second][0], rules[first]
                message = (
                    f"{rules[second].alert} is true whenever {other.alert} in "
                    f"{other.path}:{other.line} is false: one of them fires in every minute"
                )
                place = alert_place(one)
                yield problem(one.file, place, "contradictory", message, "narrow one of them")


def _implies(rule: Rule, other: Rule) -> bool:
    """Whether the other is surely true in every minute in which the rule may be."""
    columns = {*rule.when.columns, *other.when.columns}
    for one in (rule, other):
        columns |= one.precondition.columns if one.precondition is not None else set()
    boxes = boxes_where_all((rule.precondition, rule.when), [rows_of(columns)])
    for condition in (other.precondition, other.when):
        if condition is not None and (
            boxes_where(condition, False, boxes) or can_be_unknown(condition, boxes)
        ):
            return False
    return True


def _as_severe(rules: Sequence[Rule]) -> Matrix:
    """[rule, other]: whether the other fires wherever the rule does, as severe and as early."""
    rank = np.array([RANKS[rule.severity] for rule in rules])
    wait = np.array([rule.for_seconds for rule in rules])
    fits: Matrix = (rank[:, None] <= rank[None, :]) & (wait[:, None] >= wait[None, :])
    np.fill_diagonal(fits, False)
    for at, other in enumerate(rules):
        if other.inhibited_by:
            more = set(other.inhibited_by)
            fits[:, at] &= [more <= set(rule.inhibited_by) for rule in rules]
    return fits


def _on_witnesses(rules: Sequence[Rule]) -> Matrix:
    """[rule, other]: whether the other is true on the rule's witness; False without one."""
    columns = frozenset().union(*(rule.columns for rule in rules))
    rows = [_witness(rule) for rule in rules]
    true = _verdicts(_frame(rows, columns), rules)
    true &= np.diagonal(true)[:, None].copy()
    np.fill_diagonal(true, False)
    return true


def _witness(rule: Rule) -> dict[str, Any]:
    """A row of the rule's first box, each number as low as it may be."""
    if rule.precondition is None:
        boxes: Sequence[Box] = boxes_of(rule.when, True)
    else:
        boxes = boxes_where_all((rule.precondition, rule.when), [rows_of(rule.columns)])
    return {name: _point(domain) for name, domain in boxes[0].items()} if boxes else {}


def _point(domain: Domain) -> float | bool | str | None:
    values = domain.values
    if values.is_empty:
        return None
    if isinstance(values, Interval):
        return next((end for end in (values.low, values.high) if math.isfinite(end)), 0.0)
    if values.only is None:
        return "\0"  # a text that no condition names
    return min(values.only - values.without)


def _corners(columns: frozenset[str]) -> pl.DataFrame:
    """Rows of low, middle and high values, to rule most pairs out."""
    rows: list[Mapping[str, Any]] = []
    for number in (0.0, 0.5, 1.0, 10.0, 1e3, 1e9):
        row: dict[str, Any] = {}
        for name in columns:
            column = BY_NAME[name]
            values = domain_of(column).values
            if isinstance(values, Interval):
                row[name] = min(max(number, values.low), values.high)
            else:
                row[name] = (number > 1) if column.dtype == "bool" else "\0"
        rows.append(row)
    return _frame(rows, columns)


def _frame(rows: Sequence[Mapping[str, Any]], columns: frozenset[str]) -> pl.DataFrame:
    schema = {name: _DTYPES[BY_NAME[name].dtype] for name in sorted(columns)}
    return pl.DataFrame(rows, schema=schema)


def _verdicts(frame: pl.DataFrame, rules: Sequence[Rule]) -> Matrix:
    """[rows, rules]: where each is true."""
    by_text: dict[tuple[str, str], pl.Expr] = {}
    keys = []
    for rule in rules:
        precondition = "" if rule.precondition is None else rule.precondition.text
        keys.append((rule.when.text, precondition))
        by_text.setdefault(keys[-1], rule.verdict)
    names = {key: str(number) for number, key in enumerate(by_text)}
    true = frame.select(v.fill_null(False).alias(names[key]) for key, v in by_text.items())
    every = true.to_numpy()
    return np.asarray(every[:, [int(names[key]) for key in keys]], dtype=bool)
