"""git, as it is installed here."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from driftwatch.errors import UsageError


@dataclass(frozen=True, slots=True)
class GitResult:
    """What git printed."""

    code: int  # exit code
    output: bytes
    message: str  # the first line of standard error, without "fatal: "; empty = none


def git(*words: str, folder: Path = Path()) -> GitResult:
    """Run git in a folder, without a shell.

    Raises UsageError: git is not installed.
    """
    try:
        ran = subprocess.run(  # noqa: S603 - no shell
            ["git", "-C", str(folder), *words],  # noqa: S607 - the git of the person
            capture_output=True,
            check=False,
        )
    except OSError as error:
        raise UsageError(f"git cannot be run: {error.strerror or error}") from error
    lines = ran.stderr.decode(errors="replace").strip().splitlines()
    return GitResult(ran.returncode, ran.stdout, lines[0].removeprefix("fatal: ") if lines else "")
