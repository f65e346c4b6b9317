"""Compile the simulator before a demo begins, and say so where it takes long."""

from __future__ import annotations

import threading
from contextlib import suppress

import click

_COMPILING = (
    "loading the simulator of vLLM's scheduler; compiling it, the first time, takes 15 to 60 s"
)


def compile_simulator() -> None:
    """Compile the kernel, or load it; a line on standard error tells of the first."""
    from driftwatch.simulate.engine import compile_kernel

    told = threading.Timer(1.5, click.echo, (_COMPILING,), {"err": True})  # loading takes less
    told.daemon = True  # an error that is not expected ends the program at once
    told.start()
    # where memory may not be made executable, the advice says why there is none
    with suppress(MemoryError, OSError, RuntimeError):
        compile_kernel()
    told.cancel()
