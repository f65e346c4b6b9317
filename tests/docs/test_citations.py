"""No page, comment, rule or message names a document that is not in the repository."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("bench", "deploy", "docs", "driftwatch", "migrations", "rules", "scripts", "tests")
DOCUMENT = re.compile(r"(?<![\w./{*-])(?:[\w.-]+/)*[A-Za-z][\w-]*\.md\b")

# Written by a command, or a name that a test makes up.
NO_DOCUMENT = frozenset({"week.md", "other.md", "page.md"})


def texts() -> Iterator[tuple[str, Path]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".yaml", ".yml", ".md", ".service"} or (
                folder == "scripts" and path.is_file() and not path.suffix
            ):
                parts = path.relative_to(ROOT).parts
                yield "/".join(parts[: 2 if len(parts) > 2 else 1]), path


def exists(name: str, beside: Path) -> bool:
    """In the repository, in docs/ under its own name, beside the file, or in shared/."""
    there = any((base / name).exists() for base in (ROOT, beside.parent))
    return there or name.startswith("shared/") or any((ROOT / "docs").rglob(name))


def strangers() -> dict[str, list[str]]:
    """Folder → file and document, where the document is not there."""
    where: dict[str, list[str]] = {}
    for folder, path in texts():
        for name in DOCUMENT.findall(path.read_text(encoding="utf-8")):
            if name not in NO_DOCUMENT and not exists(name, path):
                where.setdefault(folder, []).append(f"{path.relative_to(ROOT)}: {name}")
    return where


def test_every_document_that_is_cited_is_in_the_repository() -> None:
    assert strangers() == {}
