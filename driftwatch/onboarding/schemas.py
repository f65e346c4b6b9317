"""The published JSON Schemas, and the line by which an editor finds one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from driftwatch.errors import UsageError
from driftwatch.installation import shipped


def schema_text(name: str) -> str:
    """The JSON Schema of ``rules``, ``tree``, ``test`` or ``config`` files."""
    return (shipped("rules") / "schemas" / f"{name}.schema.json").read_text(encoding="utf-8")


def write_schemas(folder: Path, names: Iterable[str]) -> list[Path]:
    """The files that were written or were there already, as they are in this version.

    Raises UsageError: the folder cannot be written.
    """
    paths = []
    for name in names:
        path = folder / f"{name}.schema.json"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(schema_text(name), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}") from error
        paths.append(path)
    return paths


def modeline(path: Path | str) -> str:
    """Line 1 of a YAML file whose schema this is, seen from there."""
    return f"# yaml-language-server: $schema={path}"
