"""Lints of trees: conditions, knobs, and leaves that no minute can end in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from graphlib import TopologicalSorter
from typing import Literal

from driftwatch.condition import Condition, parse_condition
from driftwatch.diagnose.tree import Tree
from driftwatch.errors import ConditionError, Problem
from driftwatch.knobs import KNOBS
from driftwatch.rulebook.book import ReadTree
from driftwatch.rulebook.lint_conditions import clause_problems
from driftwatch.rulebook.lint_places import Clause, problem
from driftwatch.rulebook.truths import possible
from driftwatch.yaml_models import near, node_at, place_of
from driftwatch.yaml_positions import Entries, Scalar

Way = Literal["yes", "no"]
Answer = tuple[Condition, bool]


def tree_problems(one: ReadTree) -> Iterator[Problem]:
    """Every lint of a tree, of one with problems those of the conditions that could be read."""
    of_conditions = [found for clause in _clauses(one) for found in clause_problems(clause)]
    yield from of_conditions
    if one.tree is not None:
        yield from _knobs(one)
        if all(found.severity != "error" for found in of_conditions):
            yield from _dead_ends(one, one.tree)


def _clauses(one: ReadTree) -> Iterator[Clause]:
    nodes = node_at(one.entries, ("nodes",))
    for _, entries in nodes.entries.values() if isinstance(nodes, Entries) else ():
        when = node_at(entries, ("when",))
        text = when.value if isinstance(when, Scalar) else None
        if isinstance(entries, Entries) and isinstance(text, str):
            with suppress(ConditionError):
                yield Clause(one.file, entries, "when", parse_condition(text.rstrip()))


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
    """Leaves that no minute reaches, because the questions before say otherwise."""
    reached = {getattr(tree.nodes[node], way) for node, way in possible_edges(tree)}
    for name, leaf in tree.leaves.items():
        entries = node_at(one.entries, ("leaves", leaf.name))
        if name not in reached and entries is not None:
            place = one.entries.entries["leaves"][1].entries[name][0]  # type: ignore[union-attr]
            message = f"no minute ends in {name}: the questions before it exclude each other"
            yield problem(one.file, place, "unreachable-leaf", message)


def possible_edges(tree: Tree) -> frozenset[tuple[str, Way]]:
    """Node and answer of every edge that questions above, of the same columns, do not rule out."""
    answers: dict[str, set[Answer]] = {tree.start: set()}  # node → what every way to it established
    edges: set[tuple[str, Way]] = set()
    graph = {n: [t for t in (one.yes, one.no) if t in tree.nodes] for n, one in tree.nodes.items()}
    # each node after those that lead to it
    for name in reversed([*TopologicalSorter(graph).static_order()]):
        if (known := answers.get(name)) is None:
            continue
        node = tree.nodes[name]
        related = [
            (condition.predicate, truth)
            for condition, truth in known
            if condition.columns & node.when.columns
        ]
        ways: tuple[tuple[bool, Way], ...] = ((True, "yes"), (False, "no"))
        for truth, way in ways:
            if not possible(*related, (node.when.predicate, truth)):
                continue
            edges.add((name, way))
            told = known | {(node.when, truth)}
            following = getattr(node, way)
            answers[following] = answers.get(following, told) & told
    return frozenset(edges)
