"""Lints of trees: conditions, knobs, and leaves that no minute can end in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from driftwatch.diagnose.tree import Tree
from driftwatch.errors import Problem
from driftwatch.knobs import KNOBS
from driftwatch.rulebook.book import ReadTree
from driftwatch.rulebook.lint_conditions import clause_problems
from driftwatch.rulebook.lint_places import Clause, problem
from driftwatch.rulebook.lint_ranges import Box
from driftwatch.rulebook.lint_truth import boxes_where, rows_of
from driftwatch.yaml_models import near, node_at, place_of
from driftwatch.yaml_positions import Entries

Way = Literal["yes", "no"]


def tree_problems(one: ReadTree) -> Iterator[Problem]:
    """Every lint of a tree that could be read."""
    if one.tree is None:
        return
    is_clean = True
    for name, node in one.tree.nodes.items():
        entries = node_at(one.entries, ("nodes", name))
        if isinstance(entries, Entries) and "when" in entries.entries:
            for one_problem in clause_problems(Clause(one.file, entries, "when", node.when)):
                is_clean = is_clean and one_problem.severity != "error"
                yield one_problem
    yield from _knobs(one)
    if is_clean:
        yield from _dead_ends(one, one.tree)


def _knobs(one: ReadTree) -> Iterator[Problem]:
    """Leaves name settings that vLLM has and driftwatch may advise."""
    leaves = node_at(one.entries, ("leaves",))
    for name, (_, leaf) in leaves.entries.items() if isinstance(leaves, Entries) else ():
        knob = None if one.tree is None else one.tree.leaves[name].knob
        if knob is not None and knob not in KNOBS and isinstance(leaf, Entries):
            place = place_of(leaf, ("knob",))
            hint = near(knob, KNOBS) or f"knobs: {', '.join(sorted(KNOBS))}"
            yield problem(one.file, place, "unknown-knob", f"there is no knob {knob}", hint)


def _dead_ends(one: ReadTree, tree: Tree) -> Iterator[Problem]:
    """Leaves that no row reaches, because the questions before exclude each other."""
    reached = {getattr(tree.nodes[node], way) for node, way in possible_edges(tree)}
    for name, leaf in tree.leaves.items():
        entries = node_at(one.entries, ("leaves", leaf.name))
        if name not in reached and entries is not None:
            place = one.entries.entries["leaves"][1].entries[name][0]  # type: ignore[union-attr]
            message = f"no minute ends in {name}: the questions before it exclude each other"
            yield problem(one.file, place, "unreachable-leaf", message)


def possible_edges(tree: Tree) -> frozenset[tuple[str, Way]]:
    """Node and answer of every edge that some row may take; an upper bound."""
    columns = frozenset().union(*(node.when.columns for node in tree.nodes.values()))
    rows: dict[str, Box] = {tree.start: rows_of(columns)}
    edges: set[tuple[str, Way]] = set()
    for name in _downwards(tree):
        if (before := rows.get(name)) is None:
            continue
        node = tree.nodes[name]
        ways: tuple[tuple[bool, Way], ...] = ((True, "yes"), (False, "no"))
        for truth, way in ways:
            following = getattr(node, way)
            for box in boxes_where(node.lenient, truth, [before]):
                edges.add((name, way))
                earlier = rows.get(following)
                rows[following] = box if earlier is None else _hull(earlier, box)
    return frozenset(edges)


def _downwards(tree: Tree) -> list[str]:
    """The nodes, each after those that lead to it."""
    order: list[str] = []
    done: set[str] = set()
    stack = [(tree.start, False)]
    while stack:
        name, is_left = stack.pop()
        if is_left:
            order.append(name)
        elif name not in done:
            done.add(name)
            stack.append((name, True))
            node = tree.nodes[name]
            stack += [(n, False) for n in (node.yes, node.no) if n in tree.nodes]
    return order[::-1]


def _hull(first: Box, second: Box) -> Box:
    """The smallest box around two."""
    return {name: first[name].around(second[name]) for name in first}
