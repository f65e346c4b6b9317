"""Manifests among the files of ``driftwatch check``: vLLM's arguments in them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from driftwatch.errors import Problem
from driftwatch.vllm_arguments.check import line_problems
from driftwatch.vllm_arguments.manifests import is_manifest, read_manifest
from driftwatch.yaml_positions import MAX_BYTES, yaml_files

STDIN = "<stdin>"  # what problems call standard input

arguments_option = click.option(
    "--arguments", metavar="TEXT", help="Check vLLM's command line instead of rules."
)


@dataclass
class Manifests:
    """What was found in manifests and command lines."""

    rule_files: list[Path] = field(default_factory=list)  # what is left: files and folders
    problems: list[Problem] = field(default_factory=list)
    files: list[str] = field(default_factory=list)  # manifests
    command_lines: int = 0


def check_manifests(files: Sequence[Path], arguments: str | None) -> Manifests:
    """Check a command line and every manifest; of a folder, the manifests directly in it.

    ``-`` is a manifest on standard input. A pipe among the files can be read once only and is left
    to the rules.
    """
    checked = Manifests()
    if arguments is not None:
        checked.command_lines = int(bool(arguments.strip()))
        checked.problems += line_problems(arguments)
    for path in files:
        if str(path) == "-":
            text = sys.stdin.buffer.read(MAX_BYTES + 1).decode("utf-8-sig", "replace")
            _check_text(checked, STDIN, text)
            continue
        inside = yaml_files(path)
        texts = [(one, text) for one in inside if (text := _manifest(one)) is not None]
        for one, text in texts:
            _check_text(checked, str(one), text)
        manifests = {one for one, _ in texts}
        if not manifests:
            checked.rule_files.append(path)
            continue
        checked.rule_files += [one for one in inside if one not in manifests]
        if path.is_dir():
            checked.rule_files += sorted(path.glob("trees/*.y*ml"))
    sources = [*(["--arguments"] if arguments is not None else []), *checked.files]
    if sources and not checked.command_lines and not checked.problems:
        message = "no command line of vLLM is here: nothing was checked"
        first = Problem(sources[0], None, None, "no-command-line", message)
        checked.problems.append(replace(first, severity="warning"))
    return checked


def _check_text(checked: Manifests, path: str, text: str) -> None:
    reading = read_manifest(path, text)
    checked.problems += reading.problems
    checked.command_lines += reading.command_lines
    checked.files.append(path)


def _manifest(path: Path) -> str | None:
    """The text of a manifest; None where the file is none, or cannot be read as text."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as stream:
            text = stream.read(MAX_BYTES + 1).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None
    return text if is_manifest(text) else None
