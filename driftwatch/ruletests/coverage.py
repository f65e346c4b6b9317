"""What tests confirm of rules and trees: rules that fire and do not, leaves, edges of trees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from driftwatch.diagnose.tree import Tree
from driftwatch.rulebook.book import Rulebook, is_shipped, shipped_trees
from driftwatch.rulebook.lint_conditions import possible_edges

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
