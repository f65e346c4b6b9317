"""Rule sets with one thing changed, and whether the shipped tests notice."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import polars as pl

from driftwatch.condition import Condition, parse_condition
from driftwatch.diagnose.tree import Node, Tree, walk
from driftwatch.model import Incident
from driftwatch.pipeline.incidents import advanced
from driftwatch.rulebook.book import Rulebook
from driftwatch.rulebook.rules import Rule
from driftwatch.ruletests.cases import Expectation
from driftwatch.ruletests.comparison import alert_differences, subject_of
from driftwatch.ruletests.names import tree_of
from driftwatch.ruletests.reader import PlacedTest
from driftwatch.ruletests.series import START
from driftwatch.ruletests.timeline import Timeline

_NUMBER = re.compile(r"(?<![\w.'])(\d+(?:\.\d+)?)(?![\w.'])")
_CONDITIONS = ("when", "precondition", "until")
_TIMES = ("for_seconds", "keep_firing_for_seconds")


@dataclass(frozen=True)
class RuleMutant:
    """A rule in place of another."""

    name: str
    rule: Rule
    mutant: Rule


@dataclass(frozen=True)
class TreeMutant:
    """A tree in place of the one of its name."""

    name: str
    mutant: Tree


def moved_numbers(condition: Condition) -> Iterator[tuple[str, Condition]]:
    """The condition with each of its numbers 7 % smaller and larger; for a 0, 0.05."""
    text = condition.text
    for match in _NUMBER.finditer(text):
        number = float(match[1])
        before = " ".join(text[max(0, match.start() - 40) : match.start()].split())
        for value in (number * 0.93, number * 1.07) if number else (0.05,):
            changed = f"{text[: match.start()]}{value:.6g}{text[match.end() :]}"
            parsed = parse_condition(changed, false_when_unknown=condition.false_when_unknown)
            yield f"…{before} {number:g} → {value:.6g}", parsed


def rule_mutants(rules: Sequence[Rule]) -> Iterator[RuleMutant]:
    """Thresholds, times, groups and inhibitions."""
    for rule in (rule for rule in rules if rule.enabled):
        for part in _CONDITIONS:
            condition = getattr(rule, part)
            for what, changed in moved_numbers(condition) if condition is not None else ():
                name = f"{rule.id} {part}: {what}"
                yield RuleMutant(name, rule, replace(rule, **{part: changed}))
        for part in _TIMES:
            seconds = getattr(rule, part)
            by = max(60.0, round(seconds / 600) * 60.0)
            for value in (seconds - by, seconds + by) if seconds else ():
                name = f"{rule.id} {part}: {seconds:g} to {value:g}"
                yield RuleMutant(name, rule, replace(rule, **{part: value}))
        for alert in rule.inhibited_by:
            left = tuple(one for one in rule.inhibited_by if one != alert)
            yield RuleMutant(
                f"{rule.id} not inhibited by {alert}", rule, replace(rule, inhibited_by=left)
            )
        if (group := rule.together) is not None:
            for change in (
                {"wait_seconds": group.wait_seconds - 60.0},
                {"wait_seconds": group.wait_seconds + 60.0},
                {"within_seconds": group.within_seconds * 0.93},
                {"within_seconds": group.within_seconds * 1.07},
            ):
                mutant = replace(rule, together=replace(group, **change))
                yield RuleMutant(f"{rule.id} group {change}", rule, mutant)


def tree_mutants(tree: Tree, base: Tree | None) -> Iterator[TreeMutant]:
    """Thresholds of its own nodes, nodes left out, unknowns that count as unknown again."""
    for name, node in tree.nodes.items():
        there = None if base is None else base.nodes.get(name)
        if there is None or there.when.text != node.when.text:
            yield from _of_condition(tree, node)
        if there == node:
            continue
        for way in ("yes", "no"):
            yield TreeMutant(
                f"{tree.name} without {name}, as {way}", _without(tree, name, getattr(node, way))
            )


def _of_condition(tree: Tree, node: Node) -> Iterator[TreeMutant]:
    both = zip(moved_numbers(node.when), moved_numbers(node.lenient), strict=True)
    for (what, strict), (_, lenient) in both:
        changed = replace(node, when=strict, lenient=lenient)
        yield TreeMutant(f"{tree.name} {node.name}: {what}", _with_node(tree, changed))
    if node.not_asked:
        changed = replace(node, not_asked={}, lenient=node.when)
        yield TreeMutant(f"{tree.name} {node.name}: no not_asked", _with_node(tree, changed))


def _with_node(tree: Tree, node: Node) -> Tree:
    return replace(tree, nodes={**tree.nodes, node.name: node})


def _without(tree: Tree, name: str, instead: str) -> Tree:
    def there(place: str) -> str:
        return instead if place == name else place

    nodes = {
        one.name: replace(one, yes=there(one.yes), no=there(one.no))
        for one in tree.nodes.values()
        if one.name != name
    }
    return replace(tree, start=there(tree.start), nodes=nodes)


class Judge:
    """The tests with series, and whether one of them fails for a mutant."""

    def __init__(self, tests: Sequence[PlacedTest]) -> None:
        small_first = sorted(tests, key=lambda one: one.evidence.minutes if one.evidence else 0)
        self.tests = [one for one in small_first if one.evidence is not None]
        self.book: Rulebook = self.tests[0].book
        self.rules = tuple(rule for rule in self.book.rules if rule.enabled)
        self._rows = [one.evidence.rows() for one in self.tests if one.evidence is not None]
        self._verdicts = [
            rows.select(r.verdict.alias(r.id) for r in self.rules) for rows in self._rows
        ]
        self._expected = [
            {
                alert
                for one in test.test.expect
                for alert in (*(one.alerts or ()), *one.alerts_include)
            }
            for test in self.tests
        ]
        # rules change each other's incidents by inhibition alone
        pairs = [(r.alert, by) for r in self.rules for v in r.variants for by in v.inhibited_by]
        self._inhibitors = {alert: {by for of, by in pairs if of == alert} for alert, _ in pairs}
        self._inhibited = {by: {of for of, other in pairs if other == by} for _, by in pairs}
        self._fired: dict[int, list[dict[str, Incident]]] = {}
        self._every = pl.concat(self._rows)
        walks = list(self._expected_walks())
        self._walks: Mapping[str, tuple[list[Expectation], pl.DataFrame]] = {
            name: (
                [one for tree, one, _ in walks if tree == name],
                pl.concat([row for tree, _, row in walks if tree == name]),
            )
            for name in {tree for tree, _, _ in walks}
        }

    def kills_rule(self, mutant: RuleMutant) -> bool:
        """Whether a test sees other alerts with the rule in place of its own."""
        rules = tuple(mutant.mutant if r is mutant.rule else r for r in self.rules)
        alert, concerned = mutant.rule.alert, self._concerned(mutant)
        changes = self._with_all_beyond({alert}, self._inhibited)
        behind = self._with_all_beyond(changes, self._inhibitors)
        needed = [rule for rule in rules if rule.alert in behind]
        # a test that expects the alert most often notices
        likely_first = sorted(concerned, key=lambda number: alert not in self._expected[number])
        return any(self._fails(number, needed, changes, mutant) for number in likely_first)

    def _fails(
        self, number: int, rules: Sequence[Rule], changes: Set[str], mutant: RuleMutant
    ) -> bool:
        """With these rules alone; of alerts that the mutant cannot change it is as without it."""
        changed = self._rows[number].select(mutant.mutant.verdict.alias(mutant.rule.id))
        verdicts = self._verdicts[number].with_columns(changed)
        return any(
            any(alert_differences(one, self._others(before, changes) | self._only(now, changes)))
            for one, before, now in zip(
                self.tests[number].test.expect,
                self._unchanged(number),
                self._firing(number, rules, verdicts),
                strict=True,
            )
        )

    def _firing(
        self, number: int, rules: Sequence[Rule], verdicts: pl.DataFrame
    ) -> list[dict[str, Incident]]:
        """Per expectation of a test: rule id → incident that fires."""
        evidence, rows = self.tests[number].evidence, self._rows[number]
        assert evidence is not None
        ever = rows.with_columns(ever_seen=True)
        _, happened = advanced(rules, {}, evidence.targets, ever, verdicts)
        timeline = Timeline(
            START, self.book, rows, verdicts, happened, evidence.minutes, has_windows=False
        )
        return [
            timeline.firing(subject_of(one, timeline), timeline.time(one.at))
            for one in self.tests[number].test.expect
        ]

    def _unchanged(self, number: int) -> list[dict[str, Incident]]:
        if number not in self._fired:
            self._fired[number] = self._firing(number, self.rules, self._verdicts[number])
        return self._fired[number]

    @staticmethod
    def _only(firing: Mapping[str, Incident], alerts: Set[str]) -> dict[str, Incident]:
        return {rule: one for rule, one in firing.items() if one.alert in alerts}

    @staticmethod
    def _others(firing: Mapping[str, Incident], alerts: Set[str]) -> dict[str, Incident]:
        return {rule: one for rule, one in firing.items() if one.alert not in alerts}

    @staticmethod
    def _with_all_beyond(alerts: Set[str], links: Mapping[str, Set[str]]) -> Set[str]:
        """The alerts, and all that one comes to from them."""
        found, beyond = set(alerts), list(alerts)
        while beyond:
            more = links.get(beyond.pop(), frozenset()) - found
            found |= more
            beyond += more
        return found

    def kills_tree(self, mutant: TreeMutant) -> bool:
        """Whether a walk ends elsewhere, or asks another question, than a test expects."""
        expectations, rows = self._walks[mutant.mutant.name]
        for one, diagnosis in zip(expectations, walk(mutant.mutant, rows), strict=True):
            answers = {step.node: step.answer for step in diagnosis.path}
            if (
                diagnosis.leaf != one.leaf
                or (one.missing is not None and set(one.missing) != set(diagnosis.missing))
                or any(answers.get(node) != answer for node, answer in one.path.items())
            ):
                return True
        return False

    def _expected_walks(self) -> Iterator[tuple[str, Expectation, pl.DataFrame]]:
        for test, rows in zip(self.tests, self._rows, strict=True):
            for one in test.test.expect:
                name = tree_of(one, test.book)
                if one.leaf is None or name is None or test.evidence is None:
                    continue
                target = one.target or next(iter(test.evidence.columns))
                minute = test.evidence.minutes - 1 if one.at is None else one.at / 60
                end = START + minute * (rows["end"][0] - rows["start"][0])
                yield name, one, rows.filter(pl.col("instance") == target, pl.col("end") == end)

    def _concerned(self, mutant: RuleMutant) -> Iterator[int]:
        """Tests in which the rule has another verdict or end, or, of times, is true at all."""
        before, after = mutant.rule, mutant.mutant
        verdicts = self._every.select(
            a=before.verdict,
            b=after.verdict,
            c=pl.lit(None) if before.over is None else before.over,
            d=pl.lit(None) if after.over is None else after.over,
        )
        differs = ~pl.col("a").eq_missing("b") | ~pl.col("c").eq_missing("d")
        is_condition = any(getattr(before, p) is not getattr(after, p) for p in _CONDITIONS)
        marked = verdicts.select(m=differs if is_condition else pl.col("a").fill_null(False))["m"]
        start = 0
        for number, rows in enumerate(self._rows):
            if marked[start : start + len(rows)].any():
                yield number
            start += len(rows)
