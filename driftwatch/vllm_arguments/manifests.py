"""vLLM's command lines in Kubernetes manifests, Helm values and compose files.

No schema of any of these: ``command`` and ``args`` are vLLM's by their words, wherever they stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from driftwatch.errors import Problem
from driftwatch.vllm_arguments.check import (
    SERVER,
    Argument,
    check,
    commands_in,
    has_known_flag,
    in_order,
    names_vllm,
    text_of,
    whole,
)
from driftwatch.vllm_arguments.command_line import is_script
from driftwatch.vllm_arguments.documents import read_documents
from driftwatch.yaml_positions import Items, Node, Scalar

_OURS = re.compile(
    r"^(?:groups|tree|nodes|leaves|rules|tests|sources|pools|receivers)\s*:|"
    r"^\s*(?:-\s*\{?\s*)?(?:alert|when)\s*:",
    re.MULTILINE,
)
_THEIRS = re.compile(
    r"^[\s{]*[\"']?(?:apiVersion|kind|services|servingEngineSpec|modelSpec|image)[\"']?\s*:",
    re.MULTILINE,
)
_COMMAND = ("entrypoint", "command", "args", "extraArgs")


@dataclass(frozen=True, slots=True)
class Reading:
    """What a file says of vLLM's arguments."""

    problems: tuple[Problem, ...]  # in file order
    command_lines: int  # how many command lines of vLLM it has


def is_manifest(text: str) -> bool:
    """Whether a text is no file of driftwatch's but one that may start vLLM.

    >>> is_manifest("apiVersion: v1"), is_manifest("groups: []")
    (True, False)
    """
    if _OURS.search(text) and not re.search(r"^apiVersion\s*:", text, re.MULTILINE):
        return False
    return bool(_THEIRS.search(text) or SERVER.search(text))


def read_manifest(path: str, text: str) -> Reading:
    """Every problem of vLLM's arguments in a file; ``path`` is what problems call it."""
    file = read_documents(text, path)
    lines = [] if file.root is None or file.problems else list(_command_lines(file.root, set()))
    for words in lines:
        check(words, file)
    return Reading(in_order(file), len(lines))


def _command_lines(node: Node, visited: set[int]) -> Iterator[list[Argument]]:
    """The command lines of vLLM's in a node and all that is in it, each node once."""
    if isinstance(node, Scalar):
        if isinstance(node.value, str) and SERVER.search(node.value):
            yield from (words for words in commands_in(node) if names_vllm(words))
        return
    if id(node) in visited:
        return
    visited.add(id(node))
    if isinstance(node, Items):
        for item in node.items:
            yield from _command_lines(item, visited)
        return
    children = {name: child for name, (_, child) in node.entries.items()}
    image = children.get("image")
    named = text_of(image).lower() if isinstance(image, Scalar) else ""
    is_vllm = "vllm" in named and "router" not in named
    parts = {name: children[name] for name in _COMMAND if name in children}
    if is_vllm or not named:
        lines = _commands(list(parts.values()))
        yield from (one for one in lines if names_vllm(one) or has_known_flag(one))
    for name, child in children.items():
        if name not in parts:
            yield from _command_lines(child, visited)


def _commands(parts: Sequence[Node]) -> Iterator[list[Argument]]:
    """The commands of one container: its lists make one, a text for a shell may hold several."""
    words: list[Argument] = []
    items = [item for part in parts if isinstance(part, Items) for item in part.items]
    before = ""
    for item in (one for one in items if isinstance(one, Scalar)):
        text = text_of(item)
        has_space = any(char.isspace() for char in text)
        if has_space and (is_script(before) or SERVER.search(text)):
            yield from commands_in(item)
        elif has_space and text.startswith("-"):
            words += [word for command in commands_in(item) for word in command]
        else:
            words.append(whole(item))
        before = text
    yield words
    for part in parts:
        if isinstance(part, Scalar):
            yield from commands_in(part)
