"""A group whose subcommands are imported only when they are called."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click


class LazySubcommands(click.Group):
    """Imports a subcommand only when it is called.

    Args:
        modules: subcommand → module, whose ``command`` it is, or ``module:name``; in the order of
            use.
    """

    def __init__(self, *args: Any, modules: Mapping[str, str], **rest: Any) -> None:
        super().__init__(*args, **rest)
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names."""
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one; None where there is none of that name."""
        if cmd_name not in self._modules:
            return None
        module, _, name = self._modules[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name or "command")
        return command
