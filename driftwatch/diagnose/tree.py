"""A diagnosis tree as data. Files in ``rules/trees/`` are read by ``driftwatch.rulebook``.

Every node is three-valued: yes, no, or unknown. An unknown ends the walk in ``undetermined``,
naming the missing columns, except where the node says what an unknown of a column means
(``not_asked``): then the comparisons with that column count as false and the answer is printed
"not asked: reason".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from driftwatch.condition import Condition

LeafKind = Literal["change", "none", "notice", "healthy"]


@dataclass(frozen=True, slots=True)
class Node:
    """One question.

    Attributes:
        name: name in the file.
        question: as printed.
        when: strict condition: NULL where any needed column is NULL.
        lenient: the same with comparisons of the ``not_asked`` columns false where NULL.
        yes: next node or leaf.
        no: next node or leaf.
        not_asked: column → reason printed where it is NULL and the walk goes on without it.
        show: extra evidence columns printed with the answer.
        cause_on_yes: cause recorded when answered yes (``prompts``, ``generations``,
            ``prefix_hits``), or None.
    """

    name: str
    question: str
    when: Condition
    lenient: Condition
    yes: str
    no: str
    not_asked: Mapping[str, str] = field(default_factory=dict)
    show: tuple[str, ...] = ()
    cause_on_yes: str | None = None


@dataclass(frozen=True, slots=True)
class Leaf:
    """Where a walk ends.

    Attributes:
        name: leaf name, e.g. ``concurrency_cap_binding``.
        kind: ``change`` (a knob may help), ``none`` (no knob helps: advice says what to do),
            ``notice`` (something moved, nothing is wrong), ``healthy``.
        meaning: one line for the reader.
        knob: vLLM argument in snake case, for kind ``change``.
        advice: imperative for kind ``none`` ("Do not change a knob; drain it").
    """

    name: str
    kind: LeafKind
    meaning: str
    knob: str | None = None
    advice: str | None = None


@dataclass(frozen=True, slots=True)
class Tree:
    """A whole tree; every target named by yes/no exists and every node is reachable.

    Attributes:
        name: file stem.
        start: first node.
        nodes: name → node.
        leaves: name → leaf.
        continues: the tree whose nodes and leaves are among these; None = all are its own.
    """

    name: str
    start: str
    nodes: Mapping[str, Node]
    leaves: Mapping[str, Leaf]
    continues: str | None = None
