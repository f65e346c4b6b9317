"""vLLM's arguments that a configuration names, against the table of its flags."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from driftwatch.collect.fingerprint import fingerprint_from_startup_log
from driftwatch.errors import Problem
from driftwatch.settings import Settings
from driftwatch.settings.pools import ServingSettings
from driftwatch.vllm_arguments import Argument, Finding, check, problems_of
from driftwatch.vllm_arguments.command_line import plain_words
from driftwatch.vllm_arguments.documents import of_scalar
from driftwatch.vllm_arguments.manifests import commands_in
from driftwatch.vllm_arguments.table import Version, parse_version
from driftwatch.vllm_arguments.values import Fault
from driftwatch.yaml_models import node_at
from driftwatch.yaml_positions import Entries, Items, Node, Scalar, read_yaml


def configured_argument_problems(
    settings: Settings, path: Path, *, version: Version | None = None
) -> tuple[Problem, ...]:
    """Every problem of ``pools[].serving.arguments``.

    Args:
        settings: as loaded from ``path``.
        version: of vLLM; by default what a pool's start-up log names.
    """
    file = read_yaml(path)
    findings: list[Finding] = []
    for number, pool in enumerate(settings.pools):
        location = ("pools", number, "serving", "arguments")
        node = node_at(file.root, location) if isinstance(file.root, Entries) else None
        if node is None:
            continue
        of_pool = version if version is not None else _version(pool.serving)
        for words in _command_lines(node):
            findings += check(words, version=of_pool)
        findings += _open_quote(node)
    return problems_of(file.path, file.lines, findings)


def _command_lines(node: Node) -> Iterator[list[Argument]]:
    if isinstance(node, Scalar):
        yield from commands_in(node, of_scalar(node))
    elif isinstance(node, Items):
        yield [
            Argument(one.value if isinstance(one.value, str) else one.raw, of_scalar(one))
            for one in node.items
            if isinstance(one, Scalar)
        ]


def _open_quote(node: Node) -> Iterator[Finding]:
    if isinstance(node, Scalar) and isinstance(node.value, str):
        try:
            plain_words(node.value)
        except ValueError as error:
            place = of_scalar(node)(0, len(node.value))
            yield Finding(place, Fault("quote", str(error)))


def _version(serving: ServingSettings) -> Version | None:
    """What the start-up log names; None where it cannot be read or names none."""
    if serving.startup_log is None:
        return None
    try:
        text = serving.startup_log.read_text(encoding="utf-8", errors="replace")
        return parse_version(fingerprint_from_startup_log(text).release.get("vllm", ""))
    except (OSError, ValueError):
        return None
