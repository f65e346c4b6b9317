"""A diagnosis tree as data, and its walk for all rows at once, with the numbers at each step.

``driftwatch.rulebook`` reads the files in ``rules/trees/``. Every node is three-valued: yes, no, or
unknown. An unknown ends the walk in ``undetermined``, which names the missing columns. A node may
list columns that it can do without (``not_asked``): comparisons with such an unknown column count
as false, and the answer is printed as "not asked: reason".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import polars as pl

from driftwatch.condition import Condition
from driftwatch.diagnose.limits import BUDGET, KV, SEQS, contradictions
from driftwatch.diagnose.states import unknown_inputs
from driftwatch.evidence import BY_NAME, TEXTS
from driftwatch.minutes.engine import POOLING
from driftwatch.model import Answer, Diagnosis, Limit, Step

LeafKind = Literal["change", "none", "notice", "healthy"]


@dataclass(frozen=True, slots=True)
class Node:
    """One question."""

    name: str  # name in the file
    question: str  # as printed
    when: Condition  # strict condition: NULL where any needed column is NULL
    lenient: Condition  # the same with comparisons of the ``not_asked`` columns false where NULL
    yes: str  # next node or leaf
    no: str  # next node or leaf
    # column → reason, printed where the column is NULL and the walk continues
    not_asked: Mapping[str, str] = field(default_factory=dict)
    show: tuple[str, ...] = ()  # extra evidence columns printed with the answer
    # cause recorded when answered yes (``prompts``, ``generations``, ``prefix_hits``), or None
    cause_on_yes: str | None = None


@dataclass(frozen=True, slots=True)
class Leaf:
    """Where a walk ends."""

    name: str  # leaf name, e.g. ``concurrency_cap_binding``.
    # ``change`` (a knob may help), ``none`` (no knob helps: advice says what to do), ``notice``
    # (something moved, nothing is wrong), ``healthy``
    kind: LeafKind
    meaning: str  # one line for the reader
    knob: str | None = None  # vLLM argument in snake case, for kind ``change``
    advice: str | None = None  # imperative for kind ``none`` ("Drain it")


@dataclass(frozen=True, slots=True)
class Tree:
    """A whole tree; every target named by yes/no exists and every node is reachable."""

    name: str  # file stem
    start: str  # first node
    nodes: Mapping[str, Node]  # name → node
    leaves: Mapping[str, Leaf]  # name → leaf
    # the tree whose nodes and leaves are among these; None = all are its own
    continues: str | None = None
    path: str = ""  # file it was read from


UNDETERMINED = "undetermined"
REFERENCE = "reference_"  # before a column: its value in the baseline


def walk(tree: Tree, rows: pl.DataFrame) -> list[Diagnosis]:
    """The diagnosis of every row.

    Every node's condition is evaluated once, for all rows together; following the answers is a
    look-up.

    ``tree``: checked by the rulebook (no dead ends, no cycles); ``rows``: evidence rows
    (:func:`driftwatch.diagnose.evidence_table.evidence_table`).
    """
    strict, lenient = (
        rows.select(
            getattr(node, which).expression.alias(node.name) for node in tree.nodes.values()
        ).to_dicts()
        for which in ("when", "lenient")
    )
    evidence = rows.select(
        c for c in rows.columns if c.removeprefix(REFERENCE) in BY_NAME or c in TEXTS
    ).to_dicts()
    limits = limits_of(rows)
    return [
        _follow(tree, by_node, forgiving, values, row_limits)
        for by_node, forgiving, values, row_limits in zip(
            strict, lenient, evidence, limits, strict=True
        )
    ]


def _follow(
    tree: Tree,
    strict: Mapping[str, bool | None],
    lenient: Mapping[str, bool | None],
    values: Mapping[str, Any],
    limits: tuple[Limit, ...],
) -> Diagnosis:
    """One row's way from the start to a leaf."""
    path: list[Step] = []
    cause: str | None = None
    place = tree.start
    while place in tree.nodes:
        node = tree.nodes[place]
        step = _step(node, strict[place], lenient[place], values)
        path.append(step)
        if step.answer == "unknown":
            return Diagnosis(
                tree.name,
                UNDETERMINED,
                tuple(path),
                cause,
                limits,
                missing=_missing(node, values),
                advice=None,
            )
        yes = lenient[place] is True
        if yes and node.cause_on_yes:
            cause = node.cause_on_yes
        place = node.yes if yes else node.no
    leaf: Leaf = tree.leaves[place]
    # the cause is demand where a node asked for causes and found none; no node asks a slow engine
    asked_for_causes = any(tree.nodes[step.node].cause_on_yes for step in path)
    if leaf.kind in ("change", "none") and asked_for_causes and cause is None:
        # both lengths are known and unchanged
        lengths = ("prompt_tokens_mean_ratio", "generation_tokens_mean_ratio")
        cause = None if any(values.get(name) is None for name in lengths) else "demand"
    return Diagnosis(
        tree.name, leaf.name, tuple(path), cause, limits, advice=leaf.advice, meaning=leaf.meaning
    )


def _step(node: Node, strict: bool | None, lenient: bool | None, values: Mapping[str, Any]) -> Step:
    """The answer at one node, with the numbers it rests on."""
    columns = {
        column: values.get(column)
        for column in (*node.show, *sorted(node.when.columns))
        if column in values
    }
    before = {c: was for c in columns if (was := values.get(REFERENCE + c)) is not None}
    answer: Answer
    reason: str | None = None
    if lenient is None:
        answer = "unknown"
        whys = [
            f"{c}: {_own_reason(c, values) or BY_NAME[c].disabled_by or 'not on the page'}"
            for c in _missing(node, values)
        ]
        reason = f"unknown: {'; '.join(whys)}"
    elif strict is None:
        unasked = [c for c in node.not_asked if values.get(c) is None and c in node.when.columns]
        owns = [(node.not_asked[c], _own_reason(c, values)) for c in unasked]
        reasons = [f"{text}: {own}" if own else text for text, own in owns]
        reason = "; ".join(dict.fromkeys(reasons))
        # "not asked" only if no column of the question is known
        no: Answer = "not asked" if set(node.when.columns) <= set(unasked) else "no"
        answer = "yes" if lenient else no
    else:
        answer = "yes" if strict else "no"
    return Step(node.name, node.question, answer, columns, reason, before)


_NOT_SIZED = "no finished requests to size by"
# Column → the column with the detector's reason why it is unknown.
_WHY = {
    "slower": "speed_unknown_reason",
    "slower_at_equal_load": "speed_unknown_reason",
    "speed_at_equal_load_ratio": "speed_unknown_reason",
}


def _own_reason(column: str, values: Mapping[str, Any]) -> str | None:
    return values.get(_WHY[column]) if column in _WHY else None


def _missing(node: Node, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Unknown columns that the node cannot do without."""
    needed = (c for c in node.when.columns if values.get(c) is None and c not in node.not_asked)
    return tuple(sorted({name for c in needed for name in unknown_inputs(c, values)}))


def limits_of(rows: pl.DataFrame) -> list[tuple[Limit, ...]]:
    """The limits of every row, for pages and walks."""
    return [_limits(row) for row in rows.to_dicts()]


def _limits(row: Mapping[str, Any]) -> tuple[Limit, ...]:
    binding = row["binding_limit"]
    running = row["running_requests"]
    if binding in (BUDGET, SEQS, KV) and row.get("binding_running_requests") is not None:
        running = row["binding_running_requests"]  # the mean while it was full
    notes = {
        SEQS: "inferred" if row["max_num_seqs_inferred"] else None,
        BUDGET: None,
        KV: None,
    }
    limits = []
    for name in (BUDGET, SEQS, KV):
        allows = row[f"allows_{name}"]
        binds = None if binding is None else binding == name
        margin = None if not allows or running is None else max(0.0, 1 - running / allows)
        if binds and margin is not None and name != SEQS:
            # a full limit leaves no room, even if the closed form allows more
            margin, allows = 0.0, running
        note = notes[name]
        if allows is None:
            setting = "kv_cache_tokens" if name == KV else name
            none = "no tokens generated" if row["engine_kind"] == POOLING else _NOT_SIZED
            not_given = "KV cache size not in /metrics" if name == KV else "setting not given"
            note = not_given if row[setting] is None else none
            note = contradictions(row).get(name) or note
        waiting = row.get("binding_waiting_requests")
        kv = {"preemptions_per_second": row.get("preemptions_per_second")} if name == KV else {}
        if binds and name == KV:
            kv["usage_ratio"] = row.get("binding_kv_cache_usage_ratio")
        if waiting is None:
            waiting = row.get("waiting_requests")
        full = row.get("limit_binding_share_10m_ratio")
        waits = waiting if binds else None
        limits.append(Limit(name, allows, running, margin, binds, note, full, waits, **kv))
    return tuple(limits)
