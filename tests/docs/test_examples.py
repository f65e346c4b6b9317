"""What the docs tell a reader to type exists: make targets, scripts, verbs and their options."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from driftwatch.cli.engine_options import FLAGS
from driftwatch.cli.main import VERBS, command_of

ROOT = Path(__file__).resolve().parents[2]
# the changelog names commands that are gone
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND = re.compile(r"driftwatch ([a-z]+(?:-[a-z]+)*)((?: [^\s`|;#)]+)*)")


def typed(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Verb and words of every command in a code span or block of a page."""
    text = path.read_text(encoding="utf-8")
    blocks = re.findall(r"```\w*\n(.*?)```", text, flags=re.S)
    prose = re.sub(r"```\w*\n.*?```", "", text, flags=re.S)
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    for code in spans + lines:
        match = COMMAND.match(code.removeprefix("$ "))
        if match:
            yield match[1], match[2].split()


def command_typed(verb: str, words: list[str]) -> click.Command | None:
    """The command, or its group where a placeholder or nothing stands for it; None: no such one."""
    if verb not in VERBS:
        return None
    command = command_of(verb)
    if isinstance(command, click.Group) and words and re.fullmatch(r"[a-z]+", words[0]):
        # a lazy group has its commands on demand only
        return command.get_command(click.Context(command), words[0])
    return command


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_command_shown_is_one(path: Path) -> None:
    wrong = []
    for verb, words in typed(path):
        command = command_typed(verb, words)
        if command is None:
            wrong.append(" ".join([verb, *words[:1]]))
            continue
        known = {
            option
            for parameter in command.params
            for option in (*parameter.opts, *parameter.secondary_opts)
        } | {"--help"}
        if command.context_settings.get("ignore_unknown_options"):
            known |= {*FLAGS, "-tp"}  # of vLLM
        wrong += [
            f"{verb} {word}" for word in words if re.match(r"--?[a-z]", word) and word not in known
        ]
    assert wrong == []


# "driftwatch rules export" and "driftwatch run" in a help, an error or a page; not "driftwatch is"
SAID = re.compile(r"\bdriftwatch (" + "|".join(sorted(VERBS)) + r")(?: ([a-z]+))?\b")


def test_every_command_of_a_group_that_a_text_names_is_one() -> None:
    """Helps and errors of the source send readers to commands; a group needs one of its own."""
    wrong = []
    for path in sorted((ROOT / "driftwatch").rglob("*.py")):
        for literal in texts_of(path):
            for verb, word in SAID.findall(literal):
                if word and command_typed(verb, [word]) is None:
                    wrong.append(f"{path.name}: driftwatch {verb} {word}")
    assert wrong == []


def texts_of(path: Path) -> Iterator[str]:
    """Text literals of a module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_commands_are_found_in_text_and_blocks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    block = "```\n$ driftwatch run -c x.yaml  # go\n```\n"
    page.write_text(f"Say `driftwatch ack ID --by ana`.\n\n{block}")
    assert list(typed(page)) == [("ack", ["ID", "--by", "ana"]), ("run", ["-c", "x.yaml"])]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_target_and_script_shown_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, flags=re.M))
    asked = set(re.findall(r"^    make ([a-z]+)|`make ([a-z]+)", text, flags=re.M))
    assert {first or second for first, second in asked} <= targets
    scripts = set(re.findall(r"`(scripts/[a-z-]+(?:\.[a-z]+)?)", text))
    assert {name for name in scripts if not (ROOT / name).is_file()} == set()


def test_the_readme_shows_both_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(r"^    make demo$", text, flags=re.M)
    assert re.search(r"^    make test$", text, flags=re.M)
