"""Tree files: ``tree``, ``start``, ``nodes`` and ``leaves``, checked as a graph.

Nodes may be reached from several places (a tree file is an acyclic graph), but every way must
end in a leaf, and every node and leaf must be on some way.

A tree may continue another one: its ways lead on through that one's nodes to that one's leaves, and
a node that has the name of one there asks the same thing and says only what is different (its
words, what it shows, where its answers lead).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from driftwatch.condition import parse_condition
from driftwatch.diagnose.tree import UNDETERMINED, Leaf, LeafKind, Node, Tree
from driftwatch.rulebook.values import Column, RulePart, When
from driftwatch.yaml_models import fault, near, node_at, place_of, read_model
from driftwatch.yaml_positions import Entries, Place, Scalar, YamlFile

Cause = Literal["prompts", "generations", "prefix_hits"]


class _NodeChange(RulePart):
    """What a tree changes in a node of the tree that it continues."""

    question: str | None = None
    show: tuple[Column, ...] = ()
    yes: str | None = None
    no: str | None = None


class NodeInFile(RulePart):
    """A node as written."""

    MISSING: ClassVar[Mapping[str, str]] = {
        "yes": "the answer yes leads to no node or leaf",
        "no": "the answer no leads to no node or leaf",
    }

    question: str
    when: When
    yes: str
    no: str
    not_asked: dict[str, str] = Field(default_factory=dict)
    show: tuple[Column, ...] = ()
    cause_on_yes: Cause | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        for column in self.not_asked:
            if column not in self.when.columns:
                message = f"not_asked names {column}, which the condition does not read"
                hint = near(column, self.when.columns)
                raise fault("unknown-column", message, hint, inner=("not_asked", column, "[key]"))
        return self


class LeafInFile(RulePart):
    """A leaf as written."""

    kind: LeafKind
    meaning: str
    knob: str | None = None
    advice: str | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kind == "change" and self.knob is None:
            raise fault("missing-key", "a leaf of kind change needs a knob")
        if self.kind == "none" and self.advice is None:
            raise fault("missing-key", "a leaf of kind none needs advice")
        if self.kind != "change" and self.knob is not None:
            message = f"a leaf of kind {self.kind} changes no knob"
            raise fault("value", message, inner=("knob",))
        return self


class TreeInFile(RulePart):
    """A tree as written; its nodes and leaves are read one by one."""

    tree: str
    continues: str | None = None
    start: str
    nodes: dict[str, dict[str, Any]]
    leaves: dict[str, dict[str, Any]] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.leaves is None and self.continues is None:
            raise fault("missing-key", "leaves is missing")
        return self


_Mappings = Mapping[str, tuple[Place, Entries]]  # name → its place, and what it has


def read_tree(
    file: YamlFile, root: Entries, trees: Mapping[str, Tree] | None = None
) -> Tree | None:
    """The tree of one file; None where a problem was noted.

    Args:
        trees: trees that it may continue, by name.
    """
    before = len(file.problems)
    top = read_model(file, root, TreeInFile)
    base = _base(file, root, trees or {})
    there = {} if base is None else dict(base.nodes)
    own_nodes, own_leaves = _mappings(root, "nodes"), _mappings(root, "leaves")
    leaves, nodes = {}, {}
    for name, (place, entries) in own_leaves.items():
        if name == UNDETERMINED:
            message = "undetermined is where every unknown ends; it is not written down"
            file.add(place, "reserved", message)
        if (leaf := read_model(file, entries, LeafInFile, place=place)) is not None:
            leaves[name] = Leaf(name, **dict(leaf))
    for name, (place, entries) in own_nodes.items():
        if name in there:
            again = read_model(file, entries, _NodeChange, place=place)
            changed = {key: value for key, value in dict(again or ()).items() if value}
            nodes[name] = replace(there[name], **changed)
        elif (node := read_model(file, entries, NodeInFile, place=place)) is not None:
            lenient = parse_condition(node.when.text, false_when_unknown=node.not_asked)
            nodes[name] = Node(name, lenient=lenient, **dict(node))
    inherited = {} if base is None else {**base.nodes, **base.leaves}
    for twice in sorted(own_leaves.keys() & (own_nodes.keys() | inherited.keys())):
        where = "a node and a leaf" if twice in own_nodes else f"in {base and base.name} already"
        file.add(own_leaves[twice][0], "duplicate", f"{twice} is {where}")
    names = list(dict.fromkeys([*own_nodes, *own_leaves, *inherited]))
    for _, entries in own_nodes.values():
        for edge in ("yes", "no"):
            _check_target(file, entries, edge, names)
    start = node_at(root, ("start",))
    if isinstance(start, Scalar) and start.value not in {*own_nodes, *there}:
        hint = near(str(start.value), {*own_nodes, *there})
        file.add(start.place, "unknown-node", f"there is no node {start.value}", hint)
    if top is None or len(file.problems) > before:
        return None
    tree = Tree(
        top.tree,
        top.start,
        there | nodes,
        (dict(base.leaves) if base else {}) | leaves,
        None if base is None else base.name,
        file.path,
    )
    reached = _check_walks(file, tree, own_nodes, own_leaves)
    return _only(tree, reached) if len(file.problems) == before else None


def continued_by(root: Entries) -> str | None:
    """The name of the tree that a file's tree continues; None = none, or it cannot be read."""
    node = node_at(root, ("continues",))
    return node.value if isinstance(node, Scalar) and isinstance(node.value, str) else None


def _base(file: YamlFile, root: Entries, trees: Mapping[str, Tree]) -> Tree | None:
    """The continued tree; note a problem where it does not exist or continues another one."""
    name = continued_by(root)
    base = trees.get(name) if name is not None else None
    place = place_of(root, ("continues",))
    if name is not None and base is None:
        file.add(place, "unknown-tree", f"there is no tree {name}", near(name, trees))
    elif base is not None and base.continues is not None:
        message = f"{name} continues {base.continues} itself: continue that one"
        file.add(place, "value", message)
    return base


def _only(tree: Tree, reached: set[str]) -> Tree:
    """The tree without nodes and leaves that no walk of it reaches."""
    return replace(
        tree,
        nodes={name: node for name, node in tree.nodes.items() if name in reached},
        leaves={name: leaf for name, leaf in tree.leaves.items() if name in reached},
    )


def _mappings(root: Entries, key: str) -> _Mappings:
    """The mappings of a key; the model notes other values."""
    node = node_at(root, (key,))
    entries = node.entries.items() if isinstance(node, Entries) else ()
    return {name: (at, one) for name, (at, one) in entries if isinstance(one, Entries)}


def _check_target(file: YamlFile, node: Entries, edge: str, names: list[str]) -> None:
    target = node_at(node, (edge,))
    if isinstance(target, Scalar) and isinstance(target.value, str) and target.value not in names:
        help_text = near(target.value, names)
        if target.value == UNDETERMINED:
            help_text = "an unknown answer goes there by itself"
        message = f"there is no node or leaf {target.value}"
        file.add(target.place, "unknown-node", message, help_text)


def _check_walks(file: YamlFile, tree: Tree, nodes: _Mappings, leaves: _Mappings) -> set[str]:
    """Note edges that lead back, and what no walk reaches; every name that one does reach."""
    reached = {tree.start: None}
    graph: dict[str, list[str]] = {}
    for name in (order := [tree.start]):
        if name in tree.nodes:
            following = [tree.nodes[name].yes, tree.nodes[name].no]
            graph[name] = [one for one in following if one in tree.nodes]
            order += [one for one in dict.fromkeys(following) if one not in reached]
            reached |= dict.fromkeys(following)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = error.args[1][:0:-1]  # in the direction of the walk, each once
        first = circle.index(min(circle, key=order.index))
        circle = [*circle[first:], *circle[:first]]
        message = f"the tree goes in a circle: {' → '.join([*circle, circle[0]])}"
        # a way through the continued tree leads back over a node of this one at least
        last = max(n for n, name in enumerate(circle) if name in nodes)
        target = [*circle, circle[0]][last + 1]
        key = "yes" if tree.nodes[circle[last]].yes == target else "no"
        file.add(place_of(nodes[circle[last]][1], (key,)), "cycle", message)
    for what, mappings in (("node", nodes), ("leaf", leaves)):
        for name, (place, _) in mappings.items():
            if name not in reached:
                message = f"no walk from {tree.start} reaches {what} {name}"
                file.add(place, "unreachable", message)
    return set(reached)
