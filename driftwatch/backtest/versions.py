"""Another version of the rules: a folder, or a git ref of the folder that they stand in."""

from __future__ import annotations

import glob
import io
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from driftwatch.errors import UsageError
from driftwatch.git import git
from driftwatch.rulebook.book import Rulebook, load_rulebook
from driftwatch.settings import Settings


@contextmanager
def rulebook_of(
    version: str, paths: Sequence[Path], *, configured: Settings | None = None
) -> Iterator[Rulebook]:
    """The rules of a folder or file, else of a git ref.

    Args:
        version: a path that is there, else a ref: ``main``, ``HEAD~1``, ``v1.2``.
        paths: where the rules of now stand: files, folders or globs.
        configured: whose overrides hold for it too.

    Raises:
        ConfigError: that version has problems.
        UsageError: there is no such path or ref, or the ref has no rules there.
    """
    if Path(version).exists():
        yield load_rulebook([Path(version)], configured=configured)
        return
    with tempfile.TemporaryDirectory(prefix="driftwatch-rules-") as name:
        yield load_rulebook(_checked_out(version, paths, Path(name)), configured=configured)


def _checked_out(ref: str, paths: Sequence[Path], folder: Path) -> list[Path]:
    """The paths as they were at a ref, written below a folder."""
    top = _top(paths[0], ref)
    places = [(_fixed(path), path) for path in paths]
    try:
        inside = [(fixed.relative_to(top), path) for fixed, path in places]
    except ValueError as error:
        help_text = "--against takes a folder too"
        raise UsageError(f"--against {ref}: rules outside {top}", help_text=help_text) from error
    is_commit = ("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
    # a ref that begins with - would be an option
    if ref.startswith("-") or git(*is_commit, folder=top).code:
        raise UsageError(
            f"--against {ref}: neither a folder nor a git ref of {top}",
            help_text=f"git -C {top} branch --all",
        )
    names = sorted({str(relative) for relative, _ in inside})
    packed = git("archive", "--format=tar", ref, "--", *names, folder=top)
    if packed.code:
        why = packed.message or f"git archive: exit {packed.code}"
        raise UsageError(f"--against {ref}: {why}", help_text="does the ref have these rules?")
    with tarfile.open(fileobj=io.BytesIO(packed.output)) as archive:
        archive.extractall(folder, filter="data")
    return [
        folder / relative / path.resolve().relative_to(_fixed(path))
        if glob.has_magic(str(path))
        else folder / relative
        for relative, path in inside
    ]


def _fixed(path: Path) -> Path:
    """The path, of a glob the folder above its first pattern."""
    path = path.resolve()
    while glob.has_magic(str(path)):
        path = path.parent
    return path


def _top(path: Path, ref: str) -> Path:
    fixed = _fixed(path)
    here = fixed if fixed.is_dir() else fixed.parent
    top = git("rev-parse", "--show-toplevel", folder=here)
    if top.code:
        raise UsageError(
            f"--against {ref}: there is no folder {ref}, and {here} is in no git repository",
            help_text="--against takes a folder too",
        )
    return Path(top.output.decode().strip()).resolve()
