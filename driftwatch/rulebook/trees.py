"""Tree files: ``tree``, ``start``, ``nodes`` and ``leaves``, checked as a graph.

Nodes may be reached from several places (a tree file is an acyclic graph), but every way must
end in a leaf, and every node and leaf must be on some way.

A tree may continue another one: its ways lead on through that one's nodes to that one's leaves, and
a node that has the name of one there asks the same thing and says only what is different (its
words, what it shows, where its answers lead).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from driftwatch.condition import parse_condition
from driftwatch.diagnose.tree import UNDETERMINED, Leaf, LeafKind, Node, Tree
from driftwatch.knobs import KNOBS
from driftwatch.rulebook.values import Column, RulePart, When
from driftwatch.yaml_models import fault, near_or_all, nearest, node_at, place_of
from driftwatch.yaml_partly import read_model, read_partly
from driftwatch.yaml_positions import Entries, Place, Scalar, YamlFile, plain
from driftwatch.yaml_positions import Node as YamlNode

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
        "yes": "yes: is missing, so this answer leads nowhere",
        "no": "no: is missing, so this answer leads nowhere",
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
                hint = near_or_all(column, self.when.columns, "columns")
                raise fault("unknown-column", message, hint, inner=("not_asked", column, "[key]"))
        return self


def _knob(name: str) -> str:
    if name not in KNOBS:
        hint = near_or_all(name, KNOBS, "knobs")
        raise fault("unknown-knob", f"there is no knob {name}", hint)
    return name


class LeafInFile(RulePart):
    """A leaf as written."""

    kind: LeafKind
    meaning: str
    knob: Annotated[str, AfterValidator(_knob)] | None = None
    advice: str | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kind == "change" and self.knob is None:
            raise fault("missing-key", "a leaf of kind change needs a knob")
        if self.kind == "none" and self.advice is None:
            raise fault("missing-key", "a leaf of kind none needs advice", "advice: what to do")
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
# for keys of a node that are wrong or missing, so that the rest of the tree can be checked
_STAND_INS: Mapping[str, object] = {
    "question": "",
    "when": "scrapes >= 0",
    "yes": UNDETERMINED,
    "no": UNDETERMINED,
}
# for a condition with problems: it reads no column, and may be true or false
UNREADABLE = parse_condition("TRUE")


@dataclass(frozen=True, slots=True)
class ReadTree:
    """A tree and where it stands."""

    file: YamlFile
    entries: Entries
    tree: Tree | None  # None where it has problems
    # the tree with stand-ins for what is wrong; None where its walks are unknown or a circle
    partly: Tree | None


def read_tree(file: YamlFile, root: Entries, trees: Mapping[str, Tree]) -> ReadTree:
    """The tree of one file; problems are noted in the file.

    Args:
        trees: trees that it may continue, by name.
    """
    before = len(file.problems)
    top = read_model(file, root, TreeInFile)
    base = _base(file, root, trees)
    inherited = {} if base is None else {**base.nodes, **base.leaves}
    own_nodes, own_leaves = _mappings(root, "nodes"), _mappings(root, "leaves")
    leaves = {} if base is None else dict(base.leaves)
    for name, (place, entries) in own_leaves.items():
        if name == UNDETERMINED:
            message = "undetermined is where every unknown ends; it is not written down"
            file.add(place, "reserved", message)
        leaf = read_model(file, entries, LeafInFile, place=place)
        leaves[name] = Leaf(name, "none", "") if leaf is None else Leaf(name, **dict(leaf))
    nodes = {} if base is None else dict(base.nodes)
    for name, (place, entries) in own_nodes.items():
        if name in nodes:
            again, _ = read_partly(file, entries, _NodeChange, {}, place)
            changed = {key: value for key, value in dict(again or ()).items() if value}
            nodes[name] = replace(nodes[name], **changed)
            continue
        read, right = read_partly(file, entries, NodeInFile, _STAND_INS, place)
        values = dict(read or NodeInFile.model_validate(_STAND_INS))
        if read is None or "when" not in right.entries:
            values["when"] = UNREADABLE
        lenient = parse_condition(values["when"].text, false_when_unknown=values["not_asked"])
        nodes[name] = Node(name, lenient=lenient, **values)
    for twice in sorted(own_leaves.keys() & (own_nodes.keys() | inherited.keys())):
        where = "a node and a leaf" if twice in own_nodes else f"in {base and base.name} already"
        file.add(own_leaves[twice][0], "duplicate", f"{twice} is {where}")
    if base is None and continued_by(root) is not None:  # where its names lead is unknown
        return ReadTree(file, root, None, None)
    names = {*inherited, *_entries(root, "nodes"), *_entries(root, "leaves")}
    for name, (_, entries) in own_nodes.items():
        yes, no = (_led(file, entries, way, names) for way in ("yes", "no"))
        node = nodes[name]
        nodes[name] = replace(node, yes=yes or node.yes, no=no or node.no)
    start = node_at(root, ("start",))
    first = start.value if isinstance(start, Scalar) else None
    if isinstance(start, Scalar) and first not in nodes:
        hint = near_or_all(str(first), nodes, "nodes")
        file.add(start.place, "unknown-node", f"there is no node {first}", hint)
        first = nearest(str(first), nodes)
    if first not in nodes:
        return ReadTree(file, root, None, None)
    name = str(plain(node_at(root, ("tree",)))) if top is None else top.tree
    continues = None if base is None else base.name
    tree = Tree(name, str(first), nodes, leaves, continues, file.path)
    reached, is_acyclic = _check_walks(file, tree, own_nodes, own_leaves)
    nodes = {name: node for name, node in tree.nodes.items() if name in reached}
    leaves = {name: leaf for name, leaf in tree.leaves.items() if name in reached}
    tree = replace(tree, nodes=nodes, leaves=leaves)
    is_whole = top is not None and len(file.problems) == before
    return ReadTree(file, root, tree if is_whole else None, tree if is_acyclic else None)


def continued_by(root: Entries) -> str | None:
    """The name of the tree that a file's tree continues; None = none, or it cannot be read."""
    node = node_at(root, ("continues",))
    return node.value if isinstance(node, Scalar) and isinstance(node.value, str) else None


def _base(file: YamlFile, root: Entries, trees: Mapping[str, Tree]) -> Tree | None:
    """The continued tree, of a misspelt name the nearest; note a name that does not exist and a
    tree that continues another one.
    """
    name = continued_by(root)
    base = trees.get(name) if name is not None else None
    place = place_of(root, ("continues",))
    if name is not None and base is None:
        hint = near_or_all(name, trees, "trees")
        file.add(place, "unknown-tree", f"there is no tree {name}", hint)
        base = trees.get(nearest(name, trees) or "")
    elif base is not None and base.continues is not None:
        message = f"{name} continues {base.continues} itself: continue that one"
        file.add(place, "value", message)
    return base


def _entries(root: Entries, key: str) -> Mapping[str, tuple[Place, YamlNode]]:
    node = node_at(root, (key,))
    return node.entries if isinstance(node, Entries) else {}


def _mappings(root: Entries, key: str) -> _Mappings:
    """The mappings of a key; the model notes other values."""
    every = _entries(root, key).items()
    return {name: (at, one) for name, (at, one) in every if isinstance(one, Entries)}


def _led(file: YamlFile, node: Entries, way: str, names: Collection[str]) -> str | None:
    """Where an answer leads; of a misspelt name, which is noted, the nearest; None = unknown."""
    target = node_at(node, (way,))
    if not isinstance(target, Scalar) or not isinstance(target.value, str):
        return None
    if target.value in names:
        return target.value
    help_text = near_or_all(target.value, names, "nodes and leaves")
    if target.value == UNDETERMINED:
        help_text = "an unknown answer goes there by itself"
    message = f"there is no node or leaf {target.value}"
    file.add(target.place, "unknown-node", message, help_text)
    return None if target.value == UNDETERMINED else nearest(target.value, names)


def _check_walks(
    file: YamlFile, tree: Tree, nodes: _Mappings, leaves: _Mappings
) -> tuple[set[str], bool]:
    """Note edges that lead back, and what no walk reaches.

    Returns every name that a walk reaches, and whether no walk goes in a circle.
    """
    is_acyclic = True
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
        is_acyclic = False
        circle = error.args[1][:0:-1]  # in the direction of the walk, each once
        first = circle.index(min(circle, key=order.index))
        circle = [*circle[first:], *circle[:first]]
        message = f"the tree goes in a circle: {' → '.join([*circle, circle[0]])}"
        # a way through the continued tree leads back over a node of this one at least
        last = max(n for n, name in enumerate(circle) if name in nodes)
        target = [*circle, circle[0]][last + 1]
        key = "yes" if tree.nodes[circle[last]].yes == target else "no"
        file.add(
            place_of(nodes[circle[last]][1], (key,)),
            "cycle",
            message,
            "lead one of these answers to a leaf",
        )
    for what, mappings in (("node", nodes), ("leaf", leaves)):
        for name, (place, _) in mappings.items():
            if name not in reached and name != UNDETERMINED:
                message = f"no walk from {tree.start} reaches {what} {name}"
                file.add(place, "unreachable", message)
    return set(reached), is_acyclic
