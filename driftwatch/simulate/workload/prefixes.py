"""Mooncake's ``hash_ids`` → prefix groups, as far as groups can say it.

A hash id names a block of 512 prompt tokens together with everything before it, so requests with
the same id share all tokens up to that block (Qin et al., "Mooncake", FAST '25). The ids form a
tree; a request here belongs to one group, whose members share the beginning of one text. The tree
is cut into chains: a block is continued by the branch that most requests follow, every other
branch begins a group of its own whose text runs from the root. What is shared between two groups
(a system prompt before different conversations) is lost, and said.
"""

from __future__ import annotations

from array import array

import numpy as np
import orjson

from driftwatch.simulate.requests import NO_GROUP, Floats, Integers
from driftwatch.simulate.workload.chunks import Chunk, Problems

BLOCK_TOKENS = 512
_ROOT = -1


class Prefixes:
    """The tree of blocks of one trace.

    ``skipped``: requests before the first that has the column.
    """

    def __init__(self, skipped: int = 0) -> None:
        self._node_of: dict[int, int] = {}
        self._parent, self._depth, self._seen = array("q"), array("q"), array("q")
        self._last = array("q", [_ROOT] * skipped)  # deepest block of each request
        self._prompt = array("q", [0] * skipped)
        self._reused_ideal = 0

    def skip(self, count: int) -> None:
        """Requests without hash ids."""
        self._last.extend([_ROOT] * count)
        self._prompt.extend([0] * count)

    def take(self, chunk: Chunk, prompt_tokens: Floats, problems: Problems) -> None:
        """The ids of one chunk's requests."""
        column = chunk.frame["hash_ids"]
        for line, ids, prompt in zip(
            chunk.lines.tolist(), column.to_list(), prompt_tokens.tolist(), strict=True
        ):
            if isinstance(ids, str):
                ids = _parsed(ids)
            if ids is None:
                ids = []
            if not isinstance(ids, list) or not all(type(one) is int for one in ids):
                problems.add(line, "hash_ids is no list of whole numbers")
                ids = []
            self._add(ids, 0 if np.isnan(prompt) else int(prompt), line, problems)

    def _add(self, ids: list[int], prompt: int, line: int, problems: Problems) -> None:
        at, reused = _ROOT, True
        for depth, one in enumerate(ids, start=1):
            node = self._node_of.get(one)
            if node is None:
                reused = False
                node = self._node_of[one] = len(self._parent)
                self._parent.append(at)
                self._depth.append(depth)
                self._seen.append(0)
            elif self._parent[node] != at:
                problems.add(line, f"hash id {one} follows another block than before")
                break
            elif reused:
                self._reused_ideal += max(0, min(BLOCK_TOKENS, prompt - (depth - 1) * BLOCK_TOKENS))
            self._seen[node] += 1
            at = node
        self._last.append(at)
        self._prompt.append(prompt)

    def grouped(self) -> tuple[Integers, Integers, str]:
        """Group and shared prefix of each request, and a sentence on what the groups lose."""
        followers = np.array(self._seen, dtype=np.int64)
        parent = np.array(self._parent, dtype=np.int64)
        depth = np.array(self._depth, dtype=np.int64)
        chain = _chains(parent, followers)
        groups = np.full(len(self._last), NO_GROUP, dtype=np.int64)
        shared = np.zeros(len(self._last), dtype=np.int64)
        reached: dict[int, int] = {}  # chain → tokens of its text that were seen
        reused = 0
        for row, node in enumerate(self._last):
            while node != _ROOT and followers[node] < 2:  # the part that nobody else has
                node = int(parent[node])
            if node == _ROOT:
                continue
            tokens = min(int(depth[node]) * BLOCK_TOKENS, self._prompt[row])
            group = int(chain[node])
            groups[row], shared[row] = group, tokens
            reused += min(tokens, reached.get(group, 0))
            reached[group] = max(tokens, reached.get(group, 0))
        share = 100 * reused / self._reused_ideal if self._reused_ideal else 100.0
        note = (
            f"hash_ids as prefix groups: {len(reached):,} groups keep {share:.3g} % of the "
            f"{self._reused_ideal:,} prompt tokens that an endless cache would find again; "
            "what different groups have in common is lost"
        )
        return groups, shared, note


def _chains(parent: Integers, followers: Integers) -> Integers:
    """Chain of each block: its parent's where it is the parent's most followed branch."""
    heaviest: dict[int, int] = {}
    for node, above in enumerate(parent.tolist()):
        best = heaviest.get(above)
        if best is None or followers[node] > followers[best]:
            heaviest[above] = node
    chain = np.arange(len(parent), dtype=np.int64)
    for node, above in enumerate(parent.tolist()):
        if above != _ROOT and heaviest[above] == node:
            chain[node] = chain[above]
    return chain


def _parsed(text: str) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
