"""Expectations against what driftwatch did: what differs, and what they confirm of the rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal, get_args

from driftwatch.diagnose.tree import Tree
from driftwatch.rulebook.book import Rulebook, is_shipped, shipped_trees
from driftwatch.rulebook.lint_conditions import possible_edges
from driftwatch.ruletests.cases import Expectation
from driftwatch.ruletests.reader import rules_named, tree_of
from driftwatch.ruletests.timeline import Subject, Timeline

Kind = Literal["rules that fire", "rules that do not fire", "leaves", "edges"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(slots=True)
class Coverage:
    """What expectations that hold confirmed, of one test or of all tests of one rule set."""

    # kind → rule ids, or texts as "tree: leaf" and "tree: node, yes"; a rule whose condition was
    # false counts of all tests in a test in which it fires too
    reached: dict[Kind, set[str]] = field(default_factory=lambda: {kind: set() for kind in KINDS})

    def add(self, test: Coverage) -> None:
        """Add what one test confirmed; what was false where the test shows that it would notice."""
        for kind, names in test.reached.items():
            is_quiet = kind == "rules that do not fire"
            self.reached[kind] |= names & test.reached["rules that fire"] if is_quiet else names

    def add_walk(self, book: Rulebook, tree: str, leaf: str, answers: Mapping[str, str]) -> None:
        """Add a walk that was confirmed by its leaf; ``answers``: node → answer."""
        self.reached["leaves"].add(_leaf(book, book.trees[tree], leaf))
        for node, answer in answers.items():
            if answer != "unknown":
                way = "yes" if answer == "yes" else "no"
                self.reached["edges"].add(_edge(book, book.trees[tree], node, way))


@dataclass(frozen=True, slots=True)
class Table:
    """One kind of thing that tests reach."""

    kind: Kind
    shipped: bool  # it is of the shipped rules and trees
    total: int
    missing: tuple[str, ...]  # that no test reaches

    @property
    def tested(self) -> int:
        """How many are reached."""
        return self.total - len(self.missing)

    @property
    def percent(self) -> float:
        """How many of hundred are reached."""
        return 100.0 * self.tested / self.total if self.total else 100.0

    def document(self) -> dict[str, Any]:
        """The same for JSON."""
        return {**asdict(self), "tested": self.tested}


def tables_of(tested: Iterable[tuple[Rulebook, bool, Coverage]]) -> Iterator[Table]:
    """Four tables of your rules and trees, then four of the shipped ones, where these were tested.

    ``tested``: rule sets, whether the shipped tests test them, and what tests confirmed. A shipped
    rule counts in the set that the shipped tests test, and in no other.
    """
    for of_shipped in (False, True):
        sets = [(book, done) for book, shipped, done in tested if shipped == of_shipped]
        for kind in KINDS if sets else ():
            # each once, in order
            names = dict.fromkeys(n for book, _ in sets for n in _names(book, kind, of_shipped))
            reached = {name for _, done in sets for name in done.reached[kind]}
            missing = tuple(name for name in names if name not in reached)
            yield Table(kind, of_shipped, len(names), missing)


def _names(book: Rulebook, kind: Kind, of_shipped: bool) -> Iterator[str]:
    """What tests of one rule set can reach."""
    if kind in KINDS[:2]:
        yield from (r.id for r in book.rules if r.enabled and is_shipped(r.path) == of_shipped)
        return
    for name, tree in sorted(book.trees.items()):
        if is_shipped(tree.path) != of_shipped:
            continue
        if kind == "leaves":
            every = [_leaf(book, tree, leaf) for leaf in tree.leaves]
        else:
            possible = possible_edges(tree)
            ways = ((n, way) for n in tree.nodes for way in ("yes", "no") if (n, way) in possible)
            every = [_edge(book, tree, *way) for way in ways]
        yield from (one for one in every if one.startswith(f"{name}: "))


def _leaf(book: Rulebook, tree: Tree, leaf: str) -> str:
    """Tree and leaf; of one that the continued tree has, that tree."""
    base = _base(book, tree)
    if base is not None and base.leaves.get(leaf) == tree.leaves.get(leaf) is not None:
        return _leaf(book, base, leaf)
    return f"{tree.name}: {leaf}"


def _edge(book: Rulebook, tree: Tree, node: str, way: str) -> str:
    base, here = _base(book, tree), tree.nodes[node]
    there = None if base is None else base.nodes.get(node)
    if base is None or there is None or there.when.text != here.when.text:
        return f"{tree.name}: {node}, {way}"
    if getattr(there, way) == getattr(here, way):
        return _edge(book, base, node, way)
    return f"{tree.name}: {node}, {way}"


def _base(book: Rulebook, tree: Tree) -> Tree | None:
    if tree.continues is None:
        return None
    return book.trees.get(tree.continues) or shipped_trees().get(tree.continues)


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as expected; a text or a list of them on each side."""

    field: str
    expected: tuple[str, ...]
    actual: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """An expectation that does not hold."""

    line: int  # of the file
    subject: str
    at_seconds: float
    differences: tuple[Difference, ...]


def compared(
    one: Expectation, line: int, timeline: Timeline, confirmed: Coverage
) -> Failure | None:
    """What differs, None = nothing; adds what the expectation confirmed to ``confirmed``."""
    target = None if one.pool is not None else one.target or next(iter(timeline.targets), "")
    subject, at = Subject(target, one.pool), timeline.time(one.at)
    firing = timeline.firing(subject, at)
    named = {name: rules_named(name, timeline.rules) for name in one.every_alert}
    differences = [*_alerts(one, named, firing, timeline.pending(subject, at))]
    if not differences:
        confirmed.reached["rules that fire"] |= firing & set().union(*named.values())
        if one.alerts is not None:
            quiet = timeline.false_rules(subject, at) - firing
            confirmed.reached["rules that do not fire"] |= quiet
    if one.leaf is not None or one.path or one.missing is not None:
        differences += _walked(one, subject, at, timeline, confirmed)
    if one.line_1 is not None:
        newest = next(timeline.pages(subject, at), None)
        line_1 = None if newest is None else newest.summary
        differences += _differing("line_1", one.line_1, line_1)
    seconds = (at - timeline.start).total_seconds()
    return Failure(line, subject.text, seconds, tuple(differences)) if differences else None


def _alerts(
    one: Expectation,
    named: Mapping[str, Set[str]],
    firing: Set[str],
    pending: Mapping[str, float],
) -> Iterator[Difference]:
    """Alerts that should fire and do not, and those that should not.

    ``named``: each expected alert → ids of its rules; ``firing``: rule ids; ``pending``: rule id →
    minute of the test in which it became true.
    """
    absent = tuple(name for name, rules in named.items() if not rules & firing)
    others = set() if one.alerts is None else firing - frozenset().union(*named.values())
    more = tuple(sorted(others))
    late = sorted(pending.keys() & set().union(*(named[name] for name in absent)))
    waiting = tuple(f"{rule} pending since {pending[rule]:g}m" for rule in late)
    if absent or more:
        yield Difference("alerts", absent, (*more, *waiting))


def _walked(
    one: Expectation, subject: Subject, at: datetime, timeline: Timeline, confirmed: Coverage
) -> Iterator[Difference]:
    """Differences of the walk: of the minute, or of the newest page that has one."""
    if timeline.has_windows:
        pages = timeline.pages(subject, at)
        walk = next((page.diagnosis for page in pages if page.diagnosis is not None), None)
    else:
        tree = tree_of(one, timeline.book)
        walk = None if tree is None else timeline.diagnosis(subject.text, at, tree)
    if walk is None:
        yield Difference("leaf", (one.leaf,) if one.leaf else ("a diagnosis",), ("no page",))
        return
    answers = {step.node: step.answer for step in walk.path}
    differences = [*_differing("leaf", one.leaf, walk.leaf)] if one.leaf is not None else []
    if one.missing is not None and set(one.missing) != set(walk.missing):
        expected = tuple(name for name in one.missing if name not in walk.missing)
        actual = tuple(name for name in walk.missing if name not in one.missing)
        differences.append(Difference("missing", expected, actual))
    elif one.missing is None and one.leaf not in (None, walk.leaf) and walk.missing:
        differences.append(Difference("missing", (), walk.missing))
    for node, answer in one.path.items():
        differences += _differing(f"path {node}", answer, answers.get(node, "not on the path"))
    if not differences and one.leaf is not None:
        confirmed.add_walk(timeline.book, walk.tree, walk.leaf, answers)
    yield from differences


def _differing(field: str, expected: str, actual: str | None) -> Iterator[Difference]:
    if expected != actual:
        yield Difference(field, (expected,), () if actual is None else (actual,))
