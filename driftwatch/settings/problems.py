"""Problems of a configuration without its secrets, the part of it that is right, unknown receivers,
and the files that it names.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from driftwatch.errors import Problem
from driftwatch.settings.values import LOOKS_SECRET
from driftwatch.yaml_models import Location, near_or_all, nearest, node_at
from driftwatch.yaml_positions import Entries, Items, Node, Scalar, YamlFile

NO_SECRET = ("ca_file", "recording", "startup_log")
UNREAD_FIX = "write the secret into this file, alone on one line; or name the right file"
M = TypeVar("M", bound=BaseModel)
# Keys whose values may be secret, and anything that looks like a URL. A count of tokens is none,
# nor is the name of a file.
_KEY = (
    r"(?i)(?<![\w-])(?![\w-]*(?:tokens|_file)[\"']?\s*:)"
    r"[\w-]*(?:password|passwd|secret|token|url|key|auth)[\w-]*[\"']?\s*:\s*"
)
_SECRET_KEY = re.compile(_KEY + r"[\"'\[]?$")
_SECRET_VALUE = re.compile(_KEY + r"[\"'\[]?[^\s\[{\"']")
_URL = re.compile(r"(?i)\w+://\S")


def checked_receivers(file: YamlFile, root: Entries) -> None:
    """Note every name of a receiver that does not exist."""
    names = receiver_names(root)
    for wanted in _wanted(root):
        if isinstance(wanted, Scalar) and wanted.value is not None and wanted.value not in names:
            text = str(wanted.value)
            help_text = near_or_all(text, names, "receivers") or "there is none"
            file.add(wanted.place, "unknown-receiver", f"there is no receiver {text}", help_text)


def receiver_names(root: Entries) -> set[str]:
    """Names that the file gives to receivers, well or not, also under a misspelt key."""
    key = "receivers" if "receivers" in root.entries else nearest("receivers", root.entries) or ""
    there = [node_at(one, ("name",)) for one in _items(node_at(root, (key,)))]
    return {str(node.value) for node in there if isinstance(node, Scalar)}


def _wanted(root: Entries) -> Iterator[Node | None]:
    yield from _items(node_at(root, ("report", "receivers")))
    for pool in _items(node_at(root, ("pools",))):
        yield from _items(node_at(pool, ("receivers",)))


def _items(node: Node | None) -> Sequence[Node]:
    return node.items if isinstance(node, Items) else ()


def without_secrets(problem: Problem) -> Problem:
    """The problem with no more of its source line than is needed and no secret in it.

    The line ends behind the caret. A marked secret becomes ``<secret>``; where one stands before
    the caret, the line is left out.
    """
    line = problem.source_line
    if line is None:
        return problem
    start = (problem.column or 1) - 1
    end = start + problem.length
    before, marked, after = line[:start], line[start:end], line[end:]
    # Of a line that could not be parsed nobody knows which part is a value.
    unparsed = problem.code == "yaml" and ":" in before
    if unparsed or any(one.search(before) for one in (_SECRET_VALUE, _URL, LOOKS_SECRET)):
        return replace(problem, source_line=None)
    if _SECRET_KEY.search(before) or _URL.search(marked) or LOOKS_SECRET.search(marked):
        marked = "<secret>"
    tail = (": …" if after.startswith(":") else " …") if after.strip(" :,]}") else ""
    return replace(problem, source_line=before + marked + tail, length=len(marked))


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


def secret_files(settings: BaseModel) -> list[Path]:
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
        return False  # another check finds that it cannot be read
