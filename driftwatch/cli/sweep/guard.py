"""Before a live server is loaded: print what will be sent, and have somebody agree to it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from driftwatch.cli.options import print_note
from driftwatch.cli.sweep.client import is_loopback
from driftwatch.errors import UsageError


def announce(
    base: str,
    levels: Sequence[int],
    requests: int,
    tokens: tuple[int, int],
    level_seconds: float,
    yes: bool,
) -> None:
    """Print what will be sent, and have it confirmed unless the server is on this machine.

    Raises:
        UsageError: nobody can confirm it.
        click.Abort: the answer was no.
    """
    print_note(
        f"sends to {base}: up to {requests:,} requests ({tokens[0]:,} prompt and "
        f"{tokens[1]:,} generated tokens), {levels[0]} to {levels[-1]} at once, "
        f"{level_seconds:g} s a level, up to {level_seconds * len(levels):g} s until the last "
        "request is sent"
    )
    if yes or is_loopback(base):
        return
    if not sys.stdin.isatty():
        raise UsageError(
            "this loads a server that is not on this machine", help_text="give --yes to send it"
        )
    click.confirm("Send it?", abort=True, err=True)


def read_key(file: Path | None) -> str | None:
    """The server's key, from the file or from VLLM_API_KEY; None where neither has one.

    Raises ConfigError: the file cannot be read as one; UsageError: the variable cannot be a header.
    """
    from driftwatch.settings.values import read_of

    if file is not None:
        return read_of(None, file)
    key = os.environ.get("VLLM_API_KEY", "").strip()
    if not key.isprintable() or not key.isascii():
        raise UsageError("VLLM_API_KEY holds a character that no header can")
    return key or None
