"""Which secret files of a configuration other users of the machine can read."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from driftwatch.settings.file import Settings

_PUBLIC = ("ca_file",)


def secret_files(settings: Settings) -> list[Path]:
    """Every file of the settings that holds a secret, in their order, each once."""
    return list(dict.fromkeys(_below(settings)))


def _below(part: object) -> Iterator[Path]:
    if isinstance(part, BaseModel):
        for name in type(part).model_fields:
            inner = getattr(part, name)
            if name.endswith("_file") and name not in _PUBLIC and isinstance(inner, Path):
                yield inner
            else:
                yield from _below(inner)
    elif isinstance(part, tuple):
        for inner in part:
            yield from _below(inner)


def others_can_read(file: Path) -> bool:
    """Whether its mode lets every user of the machine read it.

    Of a volume of Kubernetes never: only its container sees it, whatever the mode; its files are
    links through ``..data``.
    """
    try:
        in_volume = file.is_symlink() and "..data" in file.readlink().parts
        return not in_volume and bool(file.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False  # that it cannot be read is said elsewhere
