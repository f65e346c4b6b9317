"""What tests confirm of a rule set: rules that fire and do not, leaves, edges of trees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from driftwatch.diagnose.tree import Tree
from driftwatch.rulebook.book import Rulebook, shipped_trees
from driftwatch.rulebook.lint_conditions import possible_edges


@dataclass(slots=True)
class Coverage:
    """What expectations that hold confirmed, of one test or over one rule set."""

    fired: set[str] = field(default_factory=set)  # rule ids
    # rule ids whose condition was false; over a rule set in a test in which the rule fires too
    quiet: set[str] = field(default_factory=set)
    leaves: set[tuple[str, str]] = field(default_factory=set)  # tree, leaf
    edges: set[tuple[str, str, str]] = field(default_factory=set)  # tree, node, yes or no

    def add(self, test: Coverage) -> None:
        """Add what one test confirmed; what was false where the test shows that it would notice."""
        self.fired |= test.fired
        self.quiet |= test.quiet & test.fired
        self.leaves |= test.leaves
        self.edges |= test.edges

    def add_walk(self, book: Rulebook, tree: str, leaf: str, answers: Mapping[str, str]) -> None:
        """Add a walk that was confirmed by its leaf; ``answers``: node → answer."""
        self.leaves.add((_owner_of_leaf(book, book.trees[tree], leaf), leaf))
        for node, answer in answers.items():
            if answer != "unknown":
                way = "yes" if answer == "yes" else "no"
                self.edges.add((_owner_of_edge(book, book.trees[tree], node, way), node, way))

    def tables(self, book: Rulebook) -> Iterator[Table]:
        """Rules, leaves and edges of the rule set, with what no test reaches."""
        rules = [rule.id for rule in book.rules if rule.enabled]
        yield _table("rules that fire", rules, self.fired)
        yield _table("rules that do not fire", rules, self.quiet)
        # without the shipped trees that rules only name
        own = [tree for n, tree in sorted(book.trees.items()) if shipped_trees().get(n) is not tree]
        leaves = {
            (tree.name, leaf): f"{tree.name}: {leaf}"
            for tree in own
            for leaf in tree.leaves
            if _owner_of_leaf(book, tree, leaf) == tree.name
        }
        yield _table("leaves", list(leaves.values()), (leaves.get(one, "") for one in self.leaves))
        edges = {
            (tree.name, node, way): f"{tree.name}: {node}, {way}"
            for tree in own
            for possible in [possible_edges(tree)]
            for node in tree.nodes
            for way in ("yes", "no")
            if (node, way) in possible and _owner_of_edge(book, tree, node, way) == tree.name
        }
        yield _table("edges", list(edges.values()), (edges.get(one, "") for one in self.edges))


@dataclass(frozen=True, slots=True)
class Table:
    """One kind of thing that tests reach."""

    kind: str
    total: int
    missing: tuple[str, ...]  # that no test reaches

    @property
    def percent(self) -> float:
        """How many of hundred are reached."""
        return 100.0 * (self.total - len(self.missing)) / self.total if self.total else 100.0

    def lines(self) -> Iterator[str]:
        """How much is reached, never 100 % where something is missing, and what is left out."""
        reached = self.total - len(self.missing)
        yield f" {self.kind:22} {reached} of {self.total}, {int(self.percent)} %"
        for name in self.missing:
            yield f"  no test: {name}"

    def document(self) -> dict[str, Any]:
        """The same for JSON."""
        tested = self.total - len(self.missing)
        counts = {"kind": self.kind, "total": self.total, "tested": tested}
        return {**counts, "missing": list(self.missing)}


def _table(kind: str, names: Sequence[str], reached: Iterable[str]) -> Table:
    done = frozenset(reached)
    return Table(kind, len(names), tuple(name for name in names if name not in done))


def _owner_of_leaf(book: Rulebook, tree: Tree, leaf: str) -> str:
    """The tree that a leaf is of: the one that this tree continues, where that has it."""
    base = _base(book, tree)
    if base is not None and base.leaves.get(leaf) == tree.leaves.get(leaf) is not None:
        return _owner_of_leaf(book, base, leaf)
    return tree.name


def _owner_of_edge(book: Rulebook, tree: Tree, node: str, way: str) -> str:
    base, here = _base(book, tree), tree.nodes[node]
    if base is None or node not in base.nodes:
        return tree.name
    there = base.nodes[node]
    is_same = there.when.text == here.when.text and getattr(there, way) == getattr(here, way)
    return _owner_of_edge(book, base, node, way) if is_same else tree.name


def _base(book: Rulebook, tree: Tree) -> Tree | None:
    if tree.continues is None:
        return None
    return book.trees.get(tree.continues) or shipped_trees().get(tree.continues)
