"""Compile the simulator before a demo begins, and say so where it takes long."""

from __future__ import annotations

import threading

import click

_SOON_SECONDS = 1.5  # loading a compiled kernel takes less
_COMPILING = "compiling the simulator of vLLM's scheduler, once on this machine: 15 to 60 s"


def compile_simulator() -> None:
    """Compile the kernel, or load it; a line on standard error tells of the first."""
    from driftwatch.simulate.engine import compile_kernel

    told = threading.Timer(_SOON_SECONDS, click.echo, (_COMPILING,), {"err": True})
    told.daemon = True
    told.start()
    try:
        compile_kernel()
    finally:
        told.cancel()
