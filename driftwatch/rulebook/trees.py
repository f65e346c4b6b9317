"""Tree files: ``tree``, ``start``, ``nodes`` and ``leaves``, checked as a graph.

Nodes may be reached from several places (a tree file is an acyclic graph), but every way must
end in a leaf, and every node and leaf must be on some way.

A tree may continue another one: its ways lead on through that one's nodes to that one's leaves, and
a node that has the name of one there asks the same thing and says only what is different (its
words, what it shows, where its answers lead).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import cast, get_args

from driftwatch.diagnose.tree import Leaf, LeafKind, Node, Tree
from driftwatch.evidence import BY_NAME
from driftwatch.rulebook.fields import Fields, entries_of, near
from driftwatch.yaml_positions import Entries, YamlFile

TREE_KEYS = ("tree", "continues", "start", "nodes", "leaves")
NODE_KEYS = ("question", "when", "yes", "no", "not_asked", "show", "cause_on_yes")
LEAF_KEYS = ("kind", "meaning", "knob", "advice")
AGAIN_KEYS = ("question", "show", "yes", "no")  # of a node that the continued tree has
CAUSES = ("prompts", "generations", "prefix_hits")
UNDETERMINED = "undetermined"  # where an unknown ends a walk; no file names it


def read_tree(
    file: YamlFile, root: Entries, trees: Mapping[str, Tree] | None = None
) -> Tree | None:
    """The tree of one file; None where a problem was noted.

    Args:
        file: problems are noted there.
        root: what it holds.
        trees: trees that it may continue, by name.
    """
    before = len(file.problems)
    top = Fields(file, root, "the tree", root.place)
    top.allow(TREE_KEYS)
    name = top.text("tree", required=True)
    start = top.text("start", required=True)
    base = _base(top, trees or {})
    leaf_fields = _each(file, top, "leaves", "leaf", required=base is None)
    node_fields = _each(file, top, "nodes", "node")
    leaves = {n: leaf for n, f in leaf_fields.items() if (leaf := _read_leaf(n, f)) is not None}
    nodes = {}
    for n, fields in node_fields.items():
        again = None if base is None else base.nodes.get(n)
        node = _read_node(n, fields) if again is None else _read_again(again, fields)
        if node is not None:
            nodes[n] = node
    inherited = {} if base is None else {**base.nodes, **base.leaves}
    for twice in sorted(leaf_fields.keys() & (node_fields.keys() | inherited.keys())):
        there = "a node and a leaf" if twice in node_fields else f"in {base and base.name} already"
        file.add(leaf_fields[twice].place, "duplicate", f"{twice} is {there}")
    targets = list(dict.fromkeys([*node_fields, *leaf_fields, *inherited]))
    for fields in node_fields.values():
        for edge in ("yes", "no"):
            _check_target(fields, edge, targets)
    if start is not None and start not in {*node_fields, *(base.nodes if base else ())}:
        top.problem("start", "unknown-node", f"there is no node {start}", near(start, targets))
    if len(file.problems) == before and name is not None and start is not None:
        tree = Tree(
            name,
            start,
            (dict(base.nodes) if base else {}) | nodes,
            (dict(base.leaves) if base else {}) | leaves,
            None if base is None else base.name,
        )
        reached = _check_walks(file, tree, node_fields, leaf_fields)
        if len(file.problems) == before:
            return _only(tree, reached)
    return None


def continued_by(root: Entries) -> str | None:
    """The tree that a file's tree continues, as far as it can be read."""
    entry = root.entries.get("continues")
    return getattr(entry[1], "value", None) if entry else None


def _base(top: Fields, trees: Mapping[str, Tree]) -> Tree | None:
    """The continued tree; a problem where there is none of that name, or no end to it."""
    name = top.text("continues")
    base = trees.get(name) if name is not None else None
    if name is not None and base is None:
        help_text = near(name, trees)
        top.problem("continues", "unknown-tree", f"there is no tree {name}", help_text)
    elif base is not None and base.continues is not None:
        message = f"{name} continues {base.continues} itself: continue that one"
        top.problem("continues", "value", message)
    return base


def _only(tree: Tree, reached: set[str]) -> Tree:
    """Without what belongs to the continued tree alone."""
    return replace(
        tree,
        nodes={name: node for name, node in tree.nodes.items() if name in reached},
        leaves={name: leaf for name, leaf in tree.leaves.items() if name in reached},
    )


def _each(
    file: YamlFile, top: Fields, key: str, what: str, *, required: bool = True
) -> dict[str, Fields]:
    node = top.get(key, required=required)
    entries = entries_of(file, node, key) if node is not None else None
    children = {}
    for name, (place, child) in entries.entries.items() if entries is not None else ():
        child_entries = entries_of(file, child, f"{what} {name}")
        if child_entries is not None:
            children[name] = Fields(file, child_entries, f"{what} {name}", place)
    return children


def _read_leaf(name: str, fields: Fields) -> Leaf | None:
    fields.allow(LEAF_KEYS)
    if name == UNDETERMINED:
        message = "undetermined is where every unknown ends; it is not written down"
        fields.file.add(fields.place, "reserved", message)
    kind = fields.choice("kind", get_args(LeafKind), required=True)
    meaning = fields.text("meaning", required=True)
    knob, advice = fields.text("knob"), fields.text("advice")
    if kind == "change" and knob is None:
        fields.get("knob", required=True)
    if kind == "none" and advice is None:
        fields.get("advice", required=True)
    if kind != "change" and knob is not None:
        fields.problem("knob", "value", f"a leaf of kind {kind} changes no knob")
    if kind is None or meaning is None:
        return None
    return Leaf(name, cast("LeafKind", kind), meaning, knob, advice)


def _read_node(name: str, fields: Fields) -> Node | None:
    fields.allow(NODE_KEYS)
    question = fields.text("question", required=True)
    not_asked = fields.texts("not_asked")
    show = fields.names("show")
    cause = fields.choice("cause_on_yes", CAUSES)
    yes, no = fields.text("yes", required=True), fields.text("no", required=True)
    when = fields.condition("when")
    for column in show:
        if column not in BY_NAME:
            hint = near(column, BY_NAME)
            fields.problem("show", "unknown-column", column, hint, inner=column)
    if question is None or when is None or yes is None or no is None:
        return None
    for column in not_asked:
        if column not in when.columns:
            message = f"not_asked names {column}, which the condition does not read"
            hint = near(column, when.columns)
            fields.problem("not_asked", "unknown-column", message, hint, inner=column)
    lenient = fields.condition("when", false_when_unknown=not_asked)
    if lenient is None:
        return None
    return Node(name, question, when, lenient, yes, no, not_asked, show, cause)


def _read_again(there: Node, fields: Fields) -> Node:
    """A node of the continued tree with what is different here."""
    fields.allow(AGAIN_KEYS)
    show = fields.names("show")
    for column in show:
        if column not in BY_NAME:
            hint = near(column, BY_NAME)
            fields.problem("show", "unknown-column", column, hint, inner=column)
    return replace(
        there,
        question=fields.text("question") or there.question,
        show=show or there.show,
        yes=fields.text("yes") or there.yes,
        no=fields.text("no") or there.no,
    )


def _check_target(fields: Fields, edge: str, names: list[str]) -> None:
    entry = fields.node.entries.get(edge)
    target = getattr(entry[1], "value", None) if entry else None
    if not isinstance(target, str) or target in names:
        return
    help_text = near(target, names)
    if target == UNDETERMINED:
        help_text = "an unknown answer goes there by itself"
    fields.problem(edge, "unknown-node", f"there is no node or leaf {target}", help_text)


def _check_walks(
    file: YamlFile,
    tree: Tree,
    node_fields: Mapping[str, Fields],
    leaf_fields: Mapping[str, Fields],
) -> set[str]:
    """Note edges that lead back, and what no walk reaches; every name that one does reach."""
    done: set[str] = set()
    way: list[str] = []  # the nodes above the one that is looked at

    # An explicit stack: a file may hold thousands of nodes in a row.
    stack: list[tuple[str, int]] = [(tree.start, 0)]
    while stack:
        name, edge = stack.pop()
        if edge == 0:
            way.append(name)
        if edge == 2:
            way.pop()
            done.add(name)
            continue
        stack.append((name, edge + 1))
        key = ("yes", "no")[edge]
        target = getattr(tree.nodes[name], key)
        if target in way:
            circle = [*way[way.index(target) :], target]
            # a way through the continued tree leads back over a node of this one at least
            own, at = next((n, k) for n, k in _edges(tree, circle) if n in node_fields)
            message = f"the tree goes in a circle: {' → '.join(circle)}"
            node_fields[name if name in node_fields else own].problem(
                key if name in node_fields else at, "cycle", message
            )
        elif target in tree.nodes and target not in done:
            stack.append((target, 0))
        elif target in tree.leaves:
            done.add(target)
    for what, fields in (("node", node_fields), ("leaf", leaf_fields)):
        for name, one in fields.items():
            if name not in done:
                message = f"no walk from {tree.start} reaches {what} {name}"
                file.add(one.place, "unreachable", message)
    return done


def _edges(tree: Tree, circle: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each node of a way with the answer that leads to the next."""
    for name, following in pairwise(circle):
        yield name, "yes" if tree.nodes[name].yes == following else "no"
