"""Stores that a recording or a history was replayed into, kept so that the next question is quick.

Each is a SQLite file named by what it was made of: the recording's bytes or an API's address and
span, the settings and rules, the version of driftwatch. The folder may be deleted at any time.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import driftwatch
from driftwatch import __version__
from driftwatch.errors import StoreError
from driftwatch.pipeline.plan import Plan
from driftwatch.service.report_material import rules_of
from driftwatch.store.store import Store

# The oldest go where there are more, or more bytes: a server-day takes 0.2 MB.
MOST_FILES, MOST_BYTES = 20, 2 << 30
# What of a plan no stored row depends on: rules are told apart by what they say.
_NOT_STORED = {"rules", "trees", "external_url"}


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/driftwatch/replays``, else below ``~/.cache``."""
    cache_home = os.environ.get("XDG_CACHE_HOME")
    base = Path(cache_home) if cache_home else Path.home() / ".cache"
    return base / "driftwatch" / "replays"


@contextmanager
def replayed_store(
    made_of: Mapping[str, Any] | None, fill: Callable[[Store], None]
) -> Iterator[Store]:
    """The store that ``fill`` filled; from the cache where it is there already.

    Args:
        made_of: what decides what is in it, as JSON values; None = it is kept nowhere.
        fill: replays into an empty store.
    """
    kept = None if made_of is None else _writable(cache_folder())
    if kept is None:
        with Store.in_memory() as store:
            fill(store)
            yield store
        return
    text = json.dumps({**(made_of or {}), "driftwatch": _program()}, sort_keys=True)
    path = kept / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.db"
    store = _opened(path) or _filled(path, fill)
    try:
        yield store
    finally:
        store.close()


def _opened(path: Path) -> Store | None:
    """The store of a file; None where it is not there, or damaged."""
    if not path.exists():
        return None
    try:
        store = Store.open(path, migrate=False)
    except StoreError:
        path.unlink(missing_ok=True)
        return None
    with suppress(OSError):
        os.utime(path)  # it is the one that was used last
    return store


def _filled(path: Path, fill: Callable[[Store], None]) -> Store:
    beside = path.with_suffix(f".{os.getpid()}.new")
    try:
        with Store.open(beside, durable=False) as store:
            fill(store)
        beside.replace(path)
    finally:
        for suffix in ("", "-wal", "-shm"):
            beside.with_name(beside.name + suffix).unlink(missing_ok=True)
    _bound(path.parent, path)
    return Store.open(path, migrate=False)


def _bound(folder: Path, newest: Path) -> None:
    """Delete what was not used for longest, and what a process that was killed left."""
    files = sorted(folder.glob("*.db"), key=lambda one: -one.stat().st_mtime)
    size = 0
    for number, one in enumerate(files):
        size += one.stat().st_size
        if one != newest and (number >= MOST_FILES or size > MOST_BYTES):
            one.unlink(missing_ok=True)
    day_ago = newest.stat().st_mtime - 86_400
    for left in folder.glob("*.new*"):
        with suppress(OSError):
            if left.stat().st_mtime < day_ago:
                left.unlink()


def _writable(folder: Path) -> Path | None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def of_files(paths: Iterable[Path]) -> list[str]:
    """A digest of the bytes of each file, or of all files of a folder with their names."""
    return [_digest(path) for path in paths]


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]:
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
        digest.update(str(file.relative_to(path)).encode())
    return digest.hexdigest()


def of_plan(plan: Plan) -> dict[str, Any]:
    """What of a plan stored rows depend on, as JSON; no secret is in it."""
    names = (field.name for field in dataclasses.fields(plan))
    settings = {name: _plain(getattr(plan, name)) for name in names if name not in _NOT_STORED}
    return {**settings, "rules": rules_of(plan).sha256, "inputs": list(plan.inputs)}


def _plain(value: Any) -> Any:
    """Values of settings as JSON has them."""
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(_plain(key)): _plain(one) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(str(_plain(one)) for one in value)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, bool | int | float) else str(value)


@cache
def _program() -> str:
    """The version; of a checkout that is edited also when each file was."""
    package = Path(driftwatch.__file__).parent
    files = sorted(p for p in package.rglob("*") if p.suffix in (".py", ".toml", ".yaml", ".json"))
    states = (f"{p.relative_to(package)} {(s := p.stat()).st_mtime_ns} {s.st_size}" for p in files)
    return f"{__version__} {hashlib.sha256(chr(10).join(states).encode()).hexdigest()[:12]}"
