"""vLLM's arguments wherever they stand: a table of its flags by release, and what is wrong.

Pure: text in, problems out. Nothing is raised.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from driftwatch.errors import Problem
from driftwatch.vllm_arguments.arguments import Argument, Finding
from driftwatch.vllm_arguments.check import check, names_vllm
from driftwatch.vllm_arguments.command_line import Word, is_open, split
from driftwatch.vllm_arguments.documents import of_text, read_documents
from driftwatch.vllm_arguments.images import Surroundings
from driftwatch.vllm_arguments.manifests import Walk
from driftwatch.vllm_arguments.table import CURES, FLAGS, Version, parse_version
from driftwatch.yaml_positions import LINE_BREAK, Place

_OURS = re.compile(
    r"^(?:groups|tree|nodes|leaves|rules|tests|sources|pools|receivers)\s*:|"
    r"^\s*(?:-\s*\{?\s*)?(?:alert|when)\s*:",
    re.MULTILINE,
)
_THEIRS = re.compile(
    r"^[\s{]*[\"']?(?:apiVersion|kind|services|servingEngineSpec|modelSpec|vllmConfig|image)"
    r"[\"']?\s*:",
    re.MULTILINE,
)
_TEMPLATE = re.compile(r"^\s*(?:[\w.-]+:\s*)?\{\{|\{\{-|-\}\}", re.MULTILINE)
_FLAG = re.compile(r"--[a-z][a-z0-9_-]+|\b[a-z][\w-]*(?=\s*:)|vllm\.entrypoints|vllm\s+serve")


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
    if _THEIRS.search(text) or _TEMPLATE.search(text):
        return True
    return any(_is_vllms(match[0]) for match in _FLAG.finditer(text))


def argument_problems(
    path: str, text: str, *, version: Version | None = None
) -> tuple[Problem, ...]:
    """Every problem of vLLM's arguments in a manifest, Helm values or a compose file."""
    return read_arguments(path, text, version=version).problems


def read_arguments(path: str, text: str, *, version: Version | None = None) -> Reading:
    """The same, with the number of command lines.

    Args:
        path: what problems call the file.
        text: its content.
        version: of vLLM, where a person named it; else the tag of each image counts.
    """
    file = read_documents(text, path)
    if file.problems or file.root is None:
        if "{{" in text and file.problems and file.problems[0].code in ("yaml", "key"):
            return Reading((_template(path),), 0)
        return Reading(tuple(file.problems), 0)
    walk = Walk()
    walk.visit(file.root, Surroundings(version, version is not None))
    if not walk.lines and _TEMPLATE.search(text):
        return Reading((_template(path),), 0)
    return Reading(problems_of(path, file.lines, walk.findings), len(walk.lines))


def line_problems(
    text: str, *, path: str = "--arguments", version: Version | None = None
) -> tuple[Problem, ...]:
    """Every problem of one command line, or of what follows ``vllm serve``."""
    locate = of_text(text)
    findings: list[Finding] = []
    commands = [[_argument(word, locate) for word in words] for words in split(text)]
    chosen = [one for one in commands if names_vllm(one)] or commands
    for words in chosen:
        is_vllm = len(chosen) == 1 or names_vllm(words) or words[0].text.startswith("-")
        findings += check(words, version=version, is_vllm=is_vllm)
    problems = problems_of(path, LINE_BREAK.split(text), findings)
    if is_open(text):
        at = max(text.rfind("'"), text.rfind('"'), 0)
        message = "a quote is never closed"
        problems += (_problem(path, LINE_BREAK.split(text), locate(at, 1), "quote", message),)
    return problems


def problems_of(
    path: str, lines: Sequence[str], findings: Sequence[Finding]
) -> tuple[Problem, ...]:
    """Findings as problems of a file, each once, in file order."""
    problems = [
        _problem(
            path,
            lines,
            one.place,
            one.fault.code,
            one.fault.message,
            one.fault.help_text,
            one.fault.severity,
        )
        for one in findings
    ]
    unique = dict.fromkeys(problems)
    return tuple(sorted(unique, key=lambda one: (one.line or 0, one.column or 0)))


def _problem(
    path: str,
    lines: Sequence[str],
    place: Place,
    code: str,
    message: str,
    help_text: str | None = None,
    severity: str = "error",
) -> Problem:
    source = lines[place.line - 1] if 0 < place.line <= len(lines) else None
    return Problem(
        path, place.line, place.column, code, message, help_text, source, place.length, severity
    )


def _template(path: str) -> Problem:
    return Problem(
        path,
        None,
        None,
        "helm-template",
        "a Helm template is not checked: its values are not there yet",
        "check what helm template prints, or the values file",
        severity="warning",
    )


def _argument(word: Word, locate: object) -> Argument:
    def place(start: int, length: int) -> Place:
        return locate(*word.place(start, length))  # type: ignore[operator,no-any-return]

    return Argument(word.text, place)


def _is_vllms(text: str) -> bool:
    if text.startswith("vllm"):
        return True
    name = text.lstrip("-").replace("_", "-")
    flag = FLAGS.get(name.removeprefix("no-"))
    return (flag is not None and flag.is_own) or (text.startswith("--") and name in CURES)


__all__ = [
    "Argument",
    "Finding",
    "Reading",
    "argument_problems",
    "check",
    "is_manifest",
    "line_problems",
    "parse_version",
    "problems_of",
    "read_arguments",
]
