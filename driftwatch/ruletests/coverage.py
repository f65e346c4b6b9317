"""What tests confirm of a rule set: rules that fire and do not, leaves, edges of trees."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from driftwatch.diagnose.tree import Tree
from driftwatch.rulebook.book import Rulebook, shipped_trees
from driftwatch.rulebook.lint_trees import Way, possible_edges

Edge = tuple[str, str, str]  # tree, node, yes or no
Kind = str


@dataclass(slots=True)
class Coverage:
    """What expectations that hold confirmed, over one rule set."""

    fired: set[str] = field(default_factory=set)  # rule ids
    # rule ids whose condition was false in a test in which the rule fires too
    quiet: set[str] = field(default_factory=set)
    leaves: set[tuple[str, str]] = field(default_factory=set)  # tree, leaf
    edges: set[Edge] = field(default_factory=set)

    def add_test(self, fired: AbstractSet[str], false: AbstractSet[str]) -> None:
        """Add the rules that one test confirmed, by id.

        What was false counts where the test shows that it would notice.
        """
        self.fired |= fired
        self.quiet |= false & fired

    def add_walk(
        self, book: Rulebook, tree_name: str, leaf: str, answers: Mapping[str, str]
    ) -> None:
        """Add the walk that a test confirmed by its leaf."""
        tree = book.trees[tree_name]
        self.leaves.add((_owner_of_leaf(book, tree, leaf), leaf))
        for node, answer in answers.items():
            if answer != "unknown":
                way = "yes" if answer == "yes" else "no"
                self.edges.add((_owner_of_edge(book, tree, node, way), node, way))

    def tables(self, book: Rulebook) -> tuple[Table, ...]:
        """Rules, leaves and edges of the rule set, with what no test reaches."""
        rules = [rule.id for rule in book.rules if rule.enabled]
        trees = [tree for name, tree in sorted(book.trees.items()) if _is_own(name, tree)]
        leaves = [
            (t.name, leaf)
            for t in trees
            for leaf in t.leaves
            if _owner_of_leaf(book, t, leaf) == t.name
        ]
        edges = [
            (tree.name, node, way)
            for tree in trees
            for node, way in _in_file_order(tree)
            if _owner_of_edge(book, tree, node, way) == tree.name
        ]
        untested_leaves = [": ".join(one) for one in leaves if one not in self.leaves]
        untested = [f"{one[0]}: {one[1]}, {one[2]}" for one in edges if one not in self.edges]
        return (
            Table("rules that fire", len(rules), tuple(r for r in rules if r not in self.fired)),
            Table(
                "rules that do not fire", len(rules), tuple(r for r in rules if r not in self.quiet)
            ),
            Table("leaves", len(leaves), tuple(untested_leaves)),
            Table("edges", len(edges), tuple(untested)),
        )


@dataclass(frozen=True, slots=True)
class Table:
    """One kind of thing that tests reach."""

    kind: Kind
    total: int
    missing: tuple[str, ...]  # that no test reaches

    @property
    def percent(self) -> float:
        """How many of hundred are reached."""
        return 100.0 if not self.total else 100.0 * (self.total - len(self.missing)) / self.total


def _is_own(name: str, tree: Tree) -> bool:
    """Not a shipped tree that was only named."""
    return shipped_trees().get(name) is not tree


def _in_file_order(tree: Tree) -> list[tuple[str, str]]:
    """Node and answer of each edge that the questions before it do not rule out."""
    possible = possible_edges(tree)
    ways: tuple[Way, ...] = ("yes", "no")
    return [(node, way) for node in tree.nodes for way in ways if (node, way) in possible]


def _owner_of_leaf(book: Rulebook, tree: Tree, leaf: str) -> str:
    """The tree that a leaf is of: the one that this tree continues, where that has it."""
    base = _base(book, tree)
    if base is not None and base.leaves.get(leaf) == tree.leaves.get(leaf) is not None:
        return _owner_of_leaf(book, base, leaf)
    return tree.name


def _owner_of_edge(book: Rulebook, tree: Tree, node: str, way: str) -> str:
    base, here = _base(book, tree), tree.nodes[node]
    there = None if base is None else base.nodes.get(node)
    if base is not None and there is not None:
        is_same = there.when.text == here.when.text and getattr(there, way) == getattr(here, way)
        if is_same:
            return _owner_of_edge(book, base, node, way)
    return tree.name


def _base(book: Rulebook, tree: Tree) -> Tree | None:
    if tree.continues is None:
        return None
    return book.trees.get(tree.continues) or shipped_trees().get(tree.continues)
