"""Files that a configuration names, and which secret ones other users of the machine can read."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from driftwatch.settings.file import Settings

Location = tuple[int | str, ...]
NO_SECRET = ("ca_file", "recording", "startup_log")


def named_files(part: BaseModel, at: Location = ()) -> Iterator[tuple[Location, Path]]:
    """Every file that is to be read, where it is named: by the names of the fields, so that each
    kind of receiver has its own found.
    """
    for name in type(part).model_fields:
        inner = getattr(part, name)
        if isinstance(inner, Path) and (name.endswith("_file") or name in NO_SECRET):
            yield (*at, name), inner
        elif isinstance(inner, BaseModel):
            yield from named_files(inner, (*at, name))
        elif isinstance(inner, tuple):
            for number, one in enumerate(inner):
                if isinstance(one, BaseModel):
                    yield from named_files(one, (*at, name, number))


def secret_files(settings: Settings) -> list[Path]:
    """Every file of the settings that holds a secret, in their order, each once."""
    named = named_files(settings)
    return list(dict.fromkeys(path for at, path in named if at[-1] not in NO_SECRET))


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
