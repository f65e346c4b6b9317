"""A group whose commands are imported only when they are called."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click


class LazyGroup(click.Group):
    """Imports a command only when it is called.

    Args:
        modules: command → module or folder, whose ``command`` it is, or ``module:name``; in the
            order of use.
        helps: command → its line in the help; without it the commands are imported for theirs.
    """

    def __init__(
        self,
        *args: Any,
        modules: Mapping[str, str],
        helps: Mapping[str, str] | None = None,
        **rest: Any,
    ) -> None:
        super().__init__(*args, **rest)
        self._modules = modules
        self._helps = helps

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names."""
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one; None where there is none of that name."""
        return imported(self._modules[cmd_name]) if cmd_name in self._modules else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands."""
        if self._helps is None:
            super().format_commands(ctx, formatter)
            return
        with formatter.section("Commands"):
            formatter.write_dl(list(self._helps.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command, with a did-you-mean for a wrong one."""
        if args[0] not in self._modules:
            import difflib

            close = difflib.get_close_matches(args[0].lower(), self._modules, n=1, cutoff=0.5)
            hint = (
                f"Did you mean {close[0]}?" if close else f"{ctx.command_path} --help lists them."
            )
            ctx.fail(f"No such command {args[0]!r}. {hint}")
        return super().resolve_command(ctx, args)


def imported(place: str) -> click.Command:
    """Import the command of a module, of a folder with its ``command.py``, or ``module:name``."""
    name, _, attribute = place.partition(":")
    module = importlib.import_module(name)
    if hasattr(module, "__path__"):
        module = importlib.import_module(f"{name}.command")
    command: click.Command = getattr(module, attribute or "command")
    return command
