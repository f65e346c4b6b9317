"""Tree files: ``tree``, ``start``, ``nodes`` and ``leaves``, checked as a graph.

Nodes may be reached from several places (a tree file is an acyclic graph), but every way must
end in a leaf, and every node and leaf must be on some way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast, get_args

from driftwatch.diagnose.tree import Leaf, LeafKind, Node, Tree
from driftwatch.evidence import BY_NAME
from driftwatch.rulebook.fields import Fields, entries_of, near
from driftwatch.yaml_positions import Entries, YamlFile

NODE_KEYS = ("question", "when", "yes", "no", "not_asked", "show", "cause_on_yes")
LEAF_KEYS = ("kind", "meaning", "knob", "advice")
CAUSES = ("prompts", "generations")
UNDETERMINED = "undetermined"  # where an unknown ends a walk; no file names it


def read_tree(file: YamlFile, root: Entries) -> Tree | None:
    """The tree of one file; None where a problem was noted."""
    before = len(file.problems)
    top = Fields(file, root, "the tree", root.place)
    top.allow(("tree", "start", "nodes", "leaves"))
    name = top.text("tree", required=True)
    start = top.text("start", required=True)
    leaf_fields = _each(file, top, "leaves", "leaf")
    node_fields = _each(file, top, "nodes", "node")
    leaves = {n: leaf for n, f in leaf_fields.items() if (leaf := _read_leaf(n, f)) is not None}
    nodes = {n: node for n, f in node_fields.items() if (node := _read_node(n, f)) is not None}
    for twice in sorted(node_fields.keys() & leaf_fields.keys()):
        message = f"{twice} is a node and a leaf"
        file.add(leaf_fields[twice].place, "duplicate", message)
    known = [*node_fields, *leaf_fields]
    for fields in node_fields.values():
        for edge in ("yes", "no"):
            _check_target(fields, edge, known)
    if start is not None and start not in node_fields:
        top.problem("start", "unknown-node", f"there is no node {start}", near(start, known))
    if len(file.problems) == before and name is not None and start is not None:
        tree = Tree(name, start, nodes, leaves)
        _check_walks(file, tree, node_fields, leaf_fields)
        if len(file.problems) == before:
            return tree
    return None


def _each(file: YamlFile, top: Fields, key: str, what: str) -> dict[str, Fields]:
    node = top.get(key, required=True)
    entries = entries_of(file, node, key) if node is not None else None
    found = {}
    for name, (place, child) in entries.entries.items() if entries is not None else ():
        child_entries = entries_of(file, child, f"{what} {name}")
        if child_entries is not None:
            found[name] = Fields(file, child_entries, f"{what} {name}", place)
    return found


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


def _check_target(fields: Fields, edge: str, known: list[str]) -> None:
    found = fields.node.entries.get(edge)
    target = getattr(found[1], "value", None) if found else None
    if not isinstance(target, str) or target in known:
        return
    help_text = near(target, known)
    if target == UNDETERMINED:
        help_text = "an unknown answer goes there by itself"
    fields.problem(edge, "unknown-node", f"there is no node or leaf {target}", help_text)


def _check_walks(
    file: YamlFile,
    tree: Tree,
    node_fields: Mapping[str, Fields],
    leaf_fields: Mapping[str, Fields],
) -> None:
    """Note edges that lead back, and what no walk reaches."""
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
            circle = " → ".join([*way[way.index(target) :], target])
            node_fields[name].problem(key, "cycle", f"the tree goes in a circle: {circle}")
        elif target in tree.nodes and target not in done:
            stack.append((target, 0))
        elif target in tree.leaves:
            done.add(target)
    for what, fields in (("node", node_fields), ("leaf", leaf_fields)):
        for name, one in fields.items():
            if name not in done:
                message = f"no walk from {tree.start} reaches {what} {name}"
                file.add(one.place, "unreachable", message)
