"""A case in one file: what it shows, its files, and a transcript of commands.

```
A share in per cent can never hold.

-- rules.yaml --
groups: []
-- transcript --
$ driftwatch check rules.yaml
rules.yaml:5:15: error[never-holds] …
1 error in 1 file, 1 rule
exit 1
```

Below a command stand its standard output, its standard error with `! ` before each line, and its
exit code. `driftwatch` runs in this process, anything else in bash, all of it in an empty folder
that holds the case's files. `$SHARED` is the folder of recordings, `$CASE` stands for the folder
where a command prints it. An empty line before `exit` is one that the command printed.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_SECTION = re.compile(r"^-- (\S(?:.*\S)?) --\n", re.M)
_PROGRESS = re.compile(r"\w+: \d+ %")
_COMMAND = re.compile(r"^\$ (.*)\n", re.M)
_GIT = {
    **{f"GIT_{who}_NAME": "a" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "a@b" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_DATE": "2026-01-01T00:00Z" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_CONFIG_{file}": "/dev/null" for file in ("GLOBAL", "SYSTEM")},
}

# argv → exit code, standard output, standard error
RunHere = Callable[[list[str]], tuple[int, str, str]]


@dataclass(frozen=True, slots=True)
class Case:
    """One case as written."""

    title: str  # what it shows, with the blank line after it
    files: tuple[tuple[str, str], ...]  # path below the folder, text
    transcript: str  # commands, what they print, exit codes

    @property
    def commands(self) -> list[str]:
        """The commands as typed."""
        return _COMMAND.findall(self.transcript)

    def text(self, transcript: str) -> str:
        """The case's file with another transcript."""
        files = "".join(f"-- {name} --\n{content}" for name, content in self.files)
        return f"{self.title}{files}-- transcript --\n{transcript}"


def read_case(path: Path) -> Case:
    """One file of ``tests/cases``."""
    title, *rest = _SECTION.split(path.read_text(encoding="utf-8"))
    sections = list(zip(rest[::2], rest[1::2], strict=True))
    assert title.strip(), f"{path}: the first line says what the case shows"
    assert sections[-1][0] == "transcript", f"{path}: the last section is the transcript"
    case = Case(title, tuple(sections[:-1]), sections[-1][1])
    assert case.commands, f"{path}: the transcript has no command"
    return case


def play(case: Case, folder: Path, shared: Path | None, run_here: RunHere) -> str:
    """Write the case's files, run its commands; the transcript as it is now."""
    for name, content in case.files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return "".join(
        f"$ {command}\n{_run(command, folder, shared, run_here)}" for command in case.commands
    )


def _run(command: str, folder: Path, shared: Path | None, run_here: RunHere) -> str:
    arguments = shlex.split(command.replace("$SHARED", str(shared)))
    if arguments[0] == "driftwatch":
        code, output, errors = run_here(arguments)
    else:
        environment = os.environ | _GIT | {"SHARED": str(shared)}
        ran = subprocess.run(
            ["bash", "-c", command],
            cwd=folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        code, output, errors = ran.returncode, ran.stdout, ran.stderr
    # how often progress is told depends on the machine
    errors = "".join(f"! {line}\n" for line in errors.splitlines() if not _PROGRESS.match(line))
    if output and not output.endswith("\n"):
        output += "\n"
    text = f"{output}{errors}exit {code}\n".replace(str(folder), "$CASE")
    return text if shared is None else text.replace(str(shared), "$SHARED")
