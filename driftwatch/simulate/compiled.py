"""The kernel, compiled by Numba where that helps, or as it stands.

One source: the functions of ``kernel*.py`` and ``prefix_cache.py``. Numba is imported only when a
replay runs. The machine code is cached in a directory named by the sources themselves, so that a
new release never runs an old kernel: NUMBA_CACHE_DIR, else XDG_CACHE_HOME/driftwatch (else
~/.cache/driftwatch), else a private temporary directory where those cannot be written.
DRIFTWATCH_COMPILE=0 in the environment forbids compiling.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from driftwatch.simulate import (
    kernel,
    kernel_layout,
    kernel_lazy,
    kernel_outputs,
    kernel_queues,
    kernel_schedule,
    prefix_cache,
)

MODULES: tuple[ModuleType, ...] = (
    kernel_queues,
    prefix_cache,
    kernel_lazy,
    kernel_schedule,
    kernel_outputs,
    kernel,
)
Advance = Callable[[Any, Any, float], None]


def compiling_allowed() -> bool:
    """Whether the environment lets the kernel be compiled."""
    return os.environ.get("DRIFTWATCH_COMPILE", "") not in ("0", "no", "false", "off")


def sources_digest() -> str:
    """Names this version of the kernel's sources."""
    digest = hashlib.sha256()
    for module in (*MODULES, kernel_layout):
        digest.update(Path(str(module.__file__)).read_bytes())
    return digest.hexdigest()[:16]


def cache_directory() -> Path:
    """Where machine code is kept; a directory that can be written."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME")
    try:
        base = Path(chosen) if chosen else Path(home) if home else Path.home() / ".cache"
        folder = base / ("kernel-" if chosen else "driftwatch/kernel-")
        made = folder.with_name(folder.name + sources_digest())
        made.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=made):
            return made
    except (OSError, RuntimeError):  # RuntimeError: no home directory
        return Path(tempfile.mkdtemp(prefix="driftwatch-kernel-"))


@cache
def compiled_kernel() -> Advance | None:
    """The compiled ``advance``; None where Numba cannot be imported."""
    try:
        import numba
    except ImportError:
        return None
    numba.config.CACHE_DIR = str(cache_directory())  # type: ignore[attr-defined]
    names: dict[str, Any] = {}
    for module in MODULES:
        names.update(vars(module))
    for module in MODULES:
        for name, function in vars(module).items():
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                # The copy finds the other compiled functions among its globals.
                copy = FunctionType(function.__code__, names, name)
                copy.__module__ = module.__name__
                # One entry in the cache, of the function that holds all others.
                top = function is kernel.advance
                names[name] = numba.njit(cache=top, nogil=True)(copy)
    advance: Advance = names["advance"]
    return advance


def is_cached() -> bool:
    """Whether the compiled kernel can be had at once."""
    return compiled_kernel.cache_info().currsize > 0 or any(cache_directory().rglob("*.nbc"))


def plain_kernel(m: Any, f: Any, until: float) -> None:
    """Run the kernel's source over lists, which Python indexes faster than arrays."""
    whole, real = m.tolist(), f.tolist()
    kernel.advance(whole, real, until)
    m[:] = whole
    f[:] = real
