"""How the kernel is compiled, and where its machine code is cached.

The cache lies below NUMBA_CACHE_DIR, else XDG_CACHE_HOME/driftwatch (else ~/.cache/driftwatch); if
those are not writable, in a temporary directory. Its name is a hash of the kernel's sources: Numba
itself checks one file, and would run an old kernel after a change in another.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numba
from numba.core import cgutils, types
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import intrinsic, models, register_model


def cache_directory() -> Path | None:
    """A writable directory, with the files of a read-only cache copied; None = there is none."""
    here = Path(__file__).parent
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(here.glob("*.py"))))
    name = f"kernel-{digest.hexdigest()[:16]}"
    filled = None
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        chosen = Path(os.environ.get("NUMBA_CACHE_DIR") or Path(home) / "driftwatch") / name
        filled = chosen if chosen.is_dir() else None
        chosen.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=chosen):
            return chosen
    except (OSError, RuntimeError):  # RuntimeError: no home
        pass
    try:
        own = Path(tempfile.mkdtemp(prefix="driftwatch-kernel-"))
        if filled is not None:
            shutil.copytree(filled, own, dirs_exist_ok=True)
    except OSError:
        return None
    return own


_FOLDER = cache_directory()
if _FOLDER is not None:
    numba.config.CACHE_DIR = str(_FOLDER)
# Arrays belong to the caller: no reference counts. Functions that only compiled ones call need no
# entry from Python; ``cached`` contains the machine code of all of them.
compiled = numba.njit(
    error_model="numpy", _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True
)
cached = numba.njit(error_model="numpy", _nrt=False, cache=_FOLDER is not None)


class Borrowed(types.Type):
    """A pointer to a tuple of arrays: passed by value, the tuple would be 250 numbers."""

    def __init__(self, tables: types.NamedTuple) -> None:
        self.tables = tables
        super().__init__("driftwatch.Tables")


@register_model(Borrowed)
class _Pointer(models.PrimitiveModel):
    def __init__(self, manager: Any, borrowed: Borrowed) -> None:
        tables = manager.lookup(borrowed.tables).get_value_type()
        super().__init__(manager, borrowed, tables.as_pointer())


@intrinsic
def borrow(_context: Any, tables: Any) -> Any:
    """The address of the tuple on the stack."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return cgutils.alloca_once_value(builder, arguments[0])

    return Borrowed(tables)(tables), generate


@infer_getattr
class _Fields(AttributeTemplate):
    key = Borrowed

    def generic_resolve(self, borrowed: Borrowed, name: str) -> Any:
        return borrowed.tables[borrowed.tables.fields.index(name)]


@lower_getattr_generic(Borrowed)
def _load_field(_context: Any, builder: Any, borrowed: Borrowed, pointer: Any, name: str) -> Any:
    place = borrowed.tables.fields.index(name)
    return builder.load(cgutils.gep_inbounds(builder, pointer, 0, place))
