"""The kernel, compiled by Numba where that helps, or as it stands.

One source: the functions of ``kernel*.py`` and ``prefix_cache.py``. Numba is imported only when a
replay runs. The machine code is cached in a directory named by the sources themselves, so that a
new release never runs an old kernel: NUMBA_CACHE_DIR, else XDG_CACHE_HOME/driftwatch (else
~/.cache/driftwatch), else a private temporary directory where those cannot be written (else none).
DRIFTWATCH_COMPILE=0 in the environment forbids compiling.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from driftwatch.simulate import (
    kernel,
    kernel_layout,
    kernel_lazy,
    kernel_one_by_one,
    kernel_outputs,
    kernel_queues,
    kernel_schedule,
    kernel_steady,
    prefix_cache,
)

MODULES: tuple[ModuleType, ...] = (
    kernel_queues,
    prefix_cache,
    kernel_lazy,
    kernel_one_by_one,
    kernel_schedule,
    kernel_steady,
    kernel_outputs,
    kernel,
)
Advance = Callable[[Any, Any, float], None]


def compiling_allowed() -> bool:
    """Whether the environment lets the kernel be compiled."""
    return os.environ.get("DRIFTWATCH_COMPILE", "") not in ("0", "no", "false", "off")


def why_plain() -> str | None:
    """Why a long replay runs as plain Python though it may be compiled; None where it does not."""
    if not compiling_allowed() or find_spec("numba"):
        return None
    return "Numba is not installed"


@cache
def sources_digest() -> str:
    """Names this version of the kernel's sources."""
    digest = hashlib.sha256()
    for path in (*(module.__file__ for module in (*MODULES, kernel_layout)), __file__):
        digest.update(Path(str(path)).read_bytes())
    return digest.hexdigest()[:16]


def preferred_directory() -> Path:
    """Where machine code belongs, whether or not it can be written.

    Raises:
        RuntimeError: there is no home directory.
    """
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(chosen) / f"kernel-{sources_digest()}"
    home = os.environ.get("XDG_CACHE_HOME")
    base = Path(home) if home else Path.home() / ".cache"
    return base / "driftwatch" / f"kernel-{sources_digest()}"


def cache_directory() -> Path | None:
    """Where machine code is kept: a directory that can be written, where there is one; or None.

    What lies in one that can only be read (of a container) is copied out of it.
    """
    filled = None
    try:
        made = preferred_directory()
        filled = made if made.is_dir() else None
        made.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=made):
            return made
    except (OSError, RuntimeError):
        pass
    try:
        own = Path(tempfile.mkdtemp(prefix="driftwatch-kernel-"))
        if filled is not None:
            shutil.copytree(filled, own, dirs_exist_ok=True)
    except OSError:
        return filled
    return own


def is_cached() -> bool:
    """Whether the compiled kernel can be had at once."""
    if compiled_kernel.cache_info().currsize:
        return compiled_kernel() is not None
    try:
        return any(preferred_directory().rglob("*.nbc"))
    except (OSError, RuntimeError):
        return False


@cache
def compiled_kernel() -> Advance | None:
    """The compiled ``advance``; None where Numba cannot be imported."""
    try:
        import numba
    except ImportError:
        return None
    folder = cache_directory()
    if folder is not None:
        numba.config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]
    try:
        advance = compile_advance(numba, folder)
    except OSError:  # what lies there is of another processor, and nothing can be written
        advance = compile_advance(numba, None)
    whole, real = ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_double)

    def run(m: Any, f: Any, until: float) -> None:
        advance(m.ctypes.data_as(whole), f.ctypes.data_as(real), until)

    return run


def compile_advance(numba: Any, folder: Path | None) -> Any:
    """``advance`` as machine code that takes two pointers and a number; cached in ``folder``.

    Pointers, not arrays: an array costs Numba seven arguments, counts of references and a check of
    the sign of every index, in each of the functions: twice the time to compile and to run.
    Each function is compiled for the types that it names, before the functions that call it.
    """
    types = numba.types
    kinds = {
        "m": types.CPointer(types.int64),
        "f": types.CPointer(types.float64),
        "int": types.int64,
        "float": types.float64,
        "bool": types.boolean,
        "None": types.void,
        "tuple[int, int]": types.UniTuple(types.int64, 2),
    }
    names: dict[str, Any] = {}
    for module in MODULES:
        names.update(vars(module))
    own = {
        name: function
        for module in MODULES
        for name, function in vars(module).items()
        if isinstance(function, FunctionType) and function.__module__ == module.__name__
    }
    signatures = {}
    for name, function in own.items():
        code, said = function.__code__, function.__annotations__
        taken = code.co_varnames[: code.co_argcount]
        signatures[name] = kinds[said["return"]](*(kinds.get(n) or kinds[said[n]] for n in taken))
        # The copy finds the other compiled functions among its globals.
        own[name] = copy = FunctionType(function.__code__, names, name)
        copy.__module__ = function.__module__
        if name != "advance":
            names[name] = numba.njit(
                error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True
            )(copy)
    ready = {"advance"}

    def compile_callees(name: str) -> None:
        for callee in own[name].__code__.co_names:
            if callee in own and callee not in ready:
                ready.add(callee)
                compile_callees(callee)
                names[callee].compile(signatures[callee])
                names[callee].disable_compile()

    if folder is None or not any(folder.rglob("*.nbc")):
        compile_callees("advance")
    # One entry in the cache, of the function that holds all others.
    top = numba.cfunc(signatures["advance"], cache=folder is not None, error_model="numpy")
    return top(own["advance"]).ctypes


def plain_kernel(m: Any, f: Any, until: float) -> None:
    """Run the kernel's source over lists, which Python indexes faster than arrays."""
    whole, real = m.tolist(), f.tolist()
    kernel.advance(whole, real, until)
    m[:] = whole
    f[:] = real
