"""Names say what a thing is, in the words of docs/glossary.md.

A name that only says that something was found, told or seen says nothing, and some words have
another one in the glossary (peer for twin, step-time model for law, scenario for world). The rooms
below are not clean yet: their counts may only go down.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "driftwatch"
GLOSSARY = ROOT / "docs" / "glossary.md"

# As a whole name these say only that something happened to something.
EMPTY = frozenset(
    (
        *("found", "told", "said", "seen", "asked", "known", "given", "made", "come", "came"),
        *("gone", "met", "kept", "left", "held", "read", "drawn", "taken", "got", "shown"),
        *("answered", "looked", "noted", "heard"),
    )
)
# As a word in any name: the glossary has another.
REPLACED = {
    "twin": "peer",
    "twins": "peers",
    "law": "step-time model",
    "laws": "step-time models",
    "world": "scenario",
    "worlds": "scenarios",
}
VERBS = {"read"}  # as functions

ALLOWED: dict[str, int] = {
    "fleet": 1,
    "recommend": 1,
}

# Modules are nouns of what they hold; these forms are nouns of the field.
NOUNS = frozenset(
    (
        *("last_speed", "onboarding", "padding", "planning", "pooling", "recording", "speed"),
        *("testing", "timing", "wording", "matching", "decoding", "routing"),
        *("autoscaling", "drawing", "paging", "undelivered"),
    )
)
UNCLEAR_MODULES: frozenset[str] = frozenset(
    {
        "compiling",
        "observed",
        "unfinished",
    }
)


def modules() -> Iterator[Path]:
    yield from sorted(PACKAGE.rglob("*.py"))


def bound(tree: ast.AST) -> Iterator[str]:
    """Every name that a module gives: of a function, a class, an argument, a variable, a field."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name not in VERBS:
                yield node.name
        elif isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def is_empty(name: str) -> bool:
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)]
    if len(words) == 1 and words[0] in EMPTY:
        return True
    return any(word in REPLACED for word in words)


def counts() -> Counter[str]:
    """Names to mend, by room."""
    rooms: Counter[str] = Counter()
    for path in modules():
        parts = path.relative_to(PACKAGE).parts
        room = parts[0] if len(parts) > 1 else "driftwatch"
        names = bound(ast.parse(path.read_text(encoding="utf-8")))
        rooms[room] += sum(map(is_empty, names))
    return rooms


def test_names_that_say_nothing_only_become_fewer() -> None:
    more = {
        room: f"{count} names, {ALLOWED.get(room, 0)} allowed"
        for room, count in counts().items()
        if count > ALLOWED.get(room, 0)
    }
    assert more == {}, "name what it is (docs/glossary.md)"


@pytest.mark.parametrize(
    ("name", "empty"),
    [
        ("found", True),
        ("_told", True),
        ("Said", True),
        ("twin_speed", True),
        ("StepLaw", True),
        ("findings", False),
        ("told_at", False),
        ("flawed", False),
        ("reader", False),
    ],
)
def test_which_names_say_nothing(name: str, empty: bool) -> None:
    assert is_empty(name) is empty


def unclear(stem: str) -> bool:
    words = stem.split("_")
    return stem not in NOUNS and (
        words[-1].endswith(("ing", "ed")) or bool({*words} & (EMPTY | REPLACED.keys()))
    )


def test_modules_are_nouns_of_what_they_hold() -> None:
    names = {
        part
        for path in modules()
        for part in path.relative_to(PACKAGE).with_suffix("").parts
        if unclear(part)
    }
    assert sorted(names - UNCLEAR_MODULES) == [], "name what the module holds (docs/glossary.md)"


def test_the_glossary_has_the_words_that_replace_others() -> None:
    text = GLOSSARY.read_text(encoding="utf-8")
    for word in ("peer", "step-time model", "scenario", "slot", "baseline"):
        assert f"**{word}**" in text
