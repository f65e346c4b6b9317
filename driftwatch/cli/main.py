"""The command line: a lazy group, so that ``driftwatch --help`` imports no verb."""

from __future__ import annotations

import codecs
import contextlib
import importlib
import os
import sys
from typing import Any

import click

from driftwatch import __version__
from driftwatch.errors import (
    ConfigError,
    DriftwatchError,
    ImpossibleConfiguration,
    NoVerdict,
    UsageError,
    WorkloadError,
)

# verb → one line of help
VERBS: dict[str, str] = {
    "init": "Find vLLM servers and write a configuration.",
    "watch": "Watch vLLM servers' /metrics now; no configuration needed.",
    "run": "Watch as a service, with a configuration file.",
    "web": "Serve the fleet and its incidents as web pages.",
    "demo": "Play a recorded server and show the page on-call gets.",
    "replay": "Run history through the whole pipeline at its own times.",
    "explain": "Explain a server, a pool or an incident: page, cause, limits.",
    "recommend": "Advise one change, or none.",
    "simulate": "Simulate requests on vLLM's scheduler.",
    "evidence": "Explain the evidence columns.",
    "doctor": "Check which rules can fire, and what is missing.",
    "compare": "Compare ways of batching: static, dynamic, continuous, hybrid.",
    "baseline": "List, propose and accept baselines of speed and lengths.",
    "plan": "How many requests a server takes, and how fast it is.",
    "report": "One week: what drifted, at what cost, did the changes work.",
    "verify": "Did a change work? Compare like traffic before and after it.",
    "incidents": "List incidents.",
    "ack": "Acknowledge an incident, or mark its page as useful or not.",
    "silence": "Silence pages that match, until a time.",
    "check": "Check configuration and rules; every problem at once.",
    "rules": "Test, backtest and export rules.",
    "schema": "Print the JSON Schema of a page, an advice, a rule file, ….",
    "db": "Bring the database to this version.",
}

# verb → its module, where several share one
_SHARED = {
    **{"web": "run", "db": "run", "ack": "acts", "silence": "acts", "simulate": "lab"},
    **{"compare": "lab", "evidence": "catalogue", "schema": "catalogue"},
}

EXIT_ANSWERED, EXIT_PROBLEM, EXIT_USAGE, EXIT_LINT, EXIT_NO_VERDICT = range(5)
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE, as of any command before `| head`


class OutputClosed(Exception):
    """Whoever read our output has gone; click would call its BrokenPipeError exit code 1."""


class Group(click.Group):
    """Commands in the order of use, with a did-you-mean for a wrong one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """As they are defined."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is named."""
        names = self.list_commands(ctx)
        if args[0] not in names:
            import difflib

            close = difflib.get_close_matches(args[0].lower(), names, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]}?" if close else f"{ctx.command_path} --help"
            raise UsageError(f"there is no command {args[0]!r}", help_text=hint)
        return super().resolve_command(ctx, args)


def command_of(verb: str) -> click.Command:
    """Import one verb of VERBS."""
    name = f"{verb}_command" if verb in _SHARED else "command"
    module = importlib.import_module(f"driftwatch.cli.{_SHARED.get(verb, verb)}")
    command: click.Command = getattr(module, name)
    return command


class _Verbs(Group):
    """The verbs, each imported when it is called. A pipe whose reader has gone is no error of
    driftwatch.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of use."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one; None where there is none of that name."""
        return command_of(cmd_name) if cmd_name in VERBS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List them without an import."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; what it returns is the exit code."""
        try:
            code = super().invoke(ctx)
        except (BrokenPipeError, DriftwatchError) as error:
            # a page on a closed output is a delivery that failed, see StdoutSender
            if isinstance(error, BrokenPipeError) or isinstance(error.__cause__, BrokenPipeError):
                raise OutputClosed from error
            raise
        ctx.exit(code if isinstance(code, int) else EXIT_ANSWERED)


@click.group(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="driftwatch")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Has a vLLM fleet's effective batch drifted from what it was tuned for, and why?"""
    ctx.obj = {"debug": debug}


def main() -> None:
    """Entry point: maps errors to one clear message and an exit code."""
    debug = "--debug" in sys.argv[1:]
    for stream in (sys.stdout, sys.stderr):
        if codecs.lookup(stream.encoding or "utf-8").name != "utf-8":
            from driftwatch.notify.layout import spelled

            codecs.register_error("spelled", spelled)
            stream.reconfigure(errors="spelled")  # type: ignore[union-attr]
    try:
        result = cli(standalone_mode=False)
    except OutputClosed:
        _drop_output()
        sys.exit(EXIT_BROKEN_PIPE)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        message = " ".join(error.format_message().split()).rstrip(".")
        hint = None if context is None else f"{context.command_path} --help"
        sys.exit(_report(UsageError(message[:1].lower() + message[1:], help_text=hint)))
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except DriftwatchError as error:
        if debug:
            import traceback

            traceback.print_exception(error)
        sys.exit(_report(error))
    except Exception as error:
        if debug:
            raise
        if isinstance(error, OSError):  # a full disk, a file that may not be written
            where = f"{error.filename}: " if error.filename else ""
            sys.exit(_report(DriftwatchError(f"{where}{error.strerror or error}")))
        reason = f"not expected: {type(error).__name__}: {error}"
        help_text = "report it with the output of --debug"
        sys.exit(_report(DriftwatchError(reason, help_text=help_text)))
    sys.exit(result if isinstance(result, int) else EXIT_ANSWERED)


def _report(error: DriftwatchError) -> int:
    """Print what went wrong and how to mend it; the exit code."""
    if isinstance(error, ConfigError):
        from driftwatch.rulebook.render import render_problems

        click.echo(render_problems(error.problems, terminal=sys.stderr.isatty()), err=True)
        return EXIT_USAGE
    unknown = isinstance(error, NoVerdict)
    # NO VERDICT is an answer, but not in JSON
    aside = not unknown or "--json" in sys.argv[1:]
    messages: tuple[str, ...] = (error.message,)
    if isinstance(error, ImpossibleConfiguration | WorkloadError):
        messages = error.problems  # each on its line
    for message in messages:
        _say(f"{'NO VERDICT' if unknown else 'error'}: {message}", err=aside)
    if error.help_text:
        _say(f"help: {error.help_text}", err=True)
    return EXIT_NO_VERDICT if unknown else EXIT_USAGE


def _say(text: str, *, err: bool) -> None:
    """In 80 columns on a terminal; piped whole."""
    from driftwatch.cli.printer import print_wrapped

    for line in text.splitlines():
        print_wrapped(line, err=err)


def _drop_output() -> None:
    """Nobody reads on: what is still buffered must not fail once more when Python ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
