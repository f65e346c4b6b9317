"""``driftwatch recommend --patch FILE``: the file with the advised values, written whole or not."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from driftwatch.errors import ConfigError, Problem, UsageError

if TYPE_CHECKING:
    from driftwatch.model import KnobMove
    from driftwatch.vllm_arguments.patch import Patch, Server

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class PatchFile:
    """A file that starts one vLLM server, as it was read."""

    path: Path
    data: bytes
    server: Server

    @property
    def text(self) -> str:
        """Its text, line ends as they are."""
        return self.data.removeprefix(_BOM).decode()

    def write(self, moves: Sequence[KnobMove]) -> Patch:
        """Put the moves' values into the file.

        Raises ConfigError: a value cannot be replaced; nothing is written then. UsageError: the
        file has changed since it was read, or cannot be written.
        """
        patch = self.server.patched(self.text, moves)
        bom = _BOM if self.data.startswith(_BOM) else b""
        try:
            if self.path.read_bytes() != self.data:
                message = f"--patch {self.path}: somebody changed the file meanwhile"
                raise UsageError(message, help_text="nothing was written; start again")
            _replace(self.path.resolve(), bom + patch.text.encode())
        except OSError as error:
            reason = (error.strerror or type(error).__name__).lower()
            message = f"--patch {self.path}: cannot be written: {reason}"
            raise UsageError(message, help_text="nothing was written") from error
        return patch


def patch_file(name: str) -> PatchFile:
    """The file of ``--patch FILE[:LINE]``, before anything is computed.

    Raises ConfigError: it cannot be read, or starts no server or several. UsageError: it cannot be
    written.
    """
    from driftwatch.vllm_arguments.patch import server_in
    from driftwatch.yaml_positions import read_yaml

    path, line = _place(name)
    # as YAML it is read afterwards, with the anchors that manifests may have
    problems = read_yaml(path).problems
    if unreadable := tuple(one for one in problems if one.code in _UNREADABLE):
        raise ConfigError(unreadable)
    data = path.read_bytes()
    if not _is_writable(path):
        message = "the file is read-only"
        help_text = f"nothing was written; chmod u+w {path}, or patch a copy"
        raise ConfigError((Problem(str(path), None, None, "read-only", message, help_text),))
    return PatchFile(path, data, server_in(str(path), data.removeprefix(_BOM).decode(), line=line))


_UNREADABLE = ("unreadable", "too-large", "encoding")


def _place(name: str) -> tuple[Path, int | None]:
    """``values.yaml:12`` → the file and a line of it."""
    path, colon, line = name.rpartition(":")
    if colon and line.isascii() and line.isdigit() and not Path(name).exists():
        return Path(path), int(line[:9])
    return Path(name), None


def _is_writable(path: Path) -> bool:
    """Whether its mode lets anybody write, and this process may: root's may is not enough."""
    mode = path.stat().st_mode
    return bool(mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)) and os.access(path, os.W_OK)


def _replace(path: Path, data: bytes) -> None:
    """Put the data in the file's place at once, with its mode."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(path, name)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
