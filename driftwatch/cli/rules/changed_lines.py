"""Which lines of files git says have changed since a commit."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from driftwatch.errors import Problem, UsageError
from driftwatch.git import git
from driftwatch.rulebook.book import resolved
from driftwatch.rulebook.comments import Part

_FILE = re.compile(r'^\+\+\+ "?b/(.*?)"?\t?$', re.M)
_HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", re.M)


@dataclass(frozen=True, slots=True)
class Changes:
    """What has changed in some files; a file that is not here has not."""

    lines: Mapping[Path, frozenset[int]]  # file → 1-based lines that are new or beside removed ones
    new: frozenset[Path]  # files that the commit did not have

    def touch(self, problem: Problem, parts: Sequence[Part]) -> bool:
        """Whether a problem stands on a changed line, or in a rule, node or leaf with one.

        ``parts``: those of the problem's file.
        """
        path = resolved(Path(problem.path))
        if path in self.new:
            return True
        lines = self.lines.get(path, frozenset())
        if problem.line is None or problem.line in lines:
            return bool(lines)
        return any(
            part.first <= problem.line <= part.last
            and not lines.isdisjoint(range(part.first, part.last + 1))
            for part in parts
        )


def changes_since(reference: str, files: Collection[Path]) -> Changes:
    """Compare the files with the merge base of a commit and HEAD.

    Raises:
        UsageError: not in a git repository, no such commit, or a file lies outside of it.
    """
    root = Path(_git("rev-parse", "--show-toplevel", reason="this is no git repository").strip())
    reason = f"git finds no common ancestor of {reference} and HEAD"
    base = _git("merge-base", reference, "HEAD", reason=reason).strip()
    for path in files:
        if not resolved(path).is_relative_to(root.resolve()):
            raise UsageError(f"{path} is not in the git repository {root}")
    names = [str(resolved(path)) for path in files]
    diff = _git(
        *("-c", "core.quotepath=off", "diff", "--unified=0", "--no-color", "--no-ext-diff"),
        *("--no-renames", "--src-prefix=a/", "--dst-prefix=b/", base, "--", *names),
    )
    tracked = _git("ls-tree", "-r", "-z", "--full-tree", "--name-only", base).split("\0")
    before = {resolved(root / name) for name in tracked if name}
    lines: dict[Path, frozenset[int]] = {}
    for name, hunks in zip(*[iter(_FILE.split(diff)[1:])] * 2, strict=True):
        lines[resolved(root / name)] = _changed(hunks)
    return Changes(lines, frozenset(resolved(path) for path in files) - before)


def _changed(hunks: str) -> frozenset[int]:
    lines: set[int] = set()
    for first, count in _HUNK.findall(hunks):
        start, number = int(first), int(count or 1)
        # of removed lines those that stood around them
        lines.update(range(start, start + number) if number else (start, start + 1))
    return frozenset(lines)


def _git(*words: str, reason: str = "git failed") -> str:
    """What git prints here.

    Raises UsageError: git is missing or fails.
    """
    answer = git(*words)
    if answer.code:
        help_text = f"git: {answer.message}" if answer.message else None
        raise UsageError(f"--changed-since: {reason}", help_text=help_text)
    return answer.output.decode(errors="surrogateescape")
