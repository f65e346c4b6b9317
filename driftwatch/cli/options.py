"""Options that several verbs share, and how their texts are read."""

from __future__ import annotations

import sys
import textwrap
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from driftwatch.clock import Clock, SystemClock
from driftwatch.durations import parse_duration
from driftwatch.errors import UsageError
from driftwatch.knobs import COLUMN_KNOBS, KNOBS, flag_of, refusal
from driftwatch.model import Fingerprint, Serving, Setting

if TYPE_CHECKING:
    from driftwatch.collect.schema import SourceProblem
    from driftwatch.pipeline.plan import Plan

Command = TypeVar("Command", bound=Callable[..., Any])


class Time(click.ParamType[datetime]):
    """An ISO 8601 time (UTC unless it says otherwise), unix seconds, ``-6h`` or ``now``."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Text to an aware datetime."""
        if isinstance(value, datetime):
            return value
        try:
            return parse_time(str(value))
        except ValueError:
            self.fail(
                f"{value!r} is no time: write 2026-11-18T02:56Z, -6h (6 hours ago), now, or unix "
                "seconds",
                param,
                ctx,
            )


class Span(click.ParamType[Any]):
    """Two times with two dots between: FROM..TO."""

    name = "from..to"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Text to a window."""
        from driftwatch.pipeline.explain import Window

        if isinstance(value, Window):
            return value
        first, dots, last = str(value).partition("..")
        try:
            window = Window(parse_time(first), parse_time(last))
        except ValueError:
            dots = ""
        if not dots:
            self.fail(
                f"{value!r} is no FROM..TO, e.g. 2026-11-18T02:00Z..2026-11-18T03:00Z or -6h..-1h",
                param,
                ctx,
            )
        if window.start >= window.end:
            self.fail(f"{value!r} ends before it begins", param, ctx)
        return window


class Duration(click.ParamType[timedelta]):
    """A Prometheus duration: 90s, 10m, 1h30m."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Text to a positive timedelta."""
        if isinstance(value, timedelta):
            return value
        try:
            seconds = parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if seconds <= 0:
            self.fail("a window must be longer than 0", param, ctx)
        return timedelta(seconds=seconds)


def parse_time(text: str, clock: Clock | None = None) -> datetime:
    """ISO 8601, unix seconds, a duration before now (``-6h``, ``-90s``) or ``now`` → aware UTC.

    Raises:
        ValueError: it is none of them.
    """
    text = text.strip()
    if text == "now" or (text.startswith("-") and text[-1:].isalpha()):
        now = (clock or SystemClock()).now().replace(microsecond=0)
        return now if text == "now" else now - timedelta(seconds=parse_duration(text[1:]))
    try:
        return datetime.fromtimestamp(float(text), UTC)
    except (ValueError, OverflowError, OSError):
        pass
    at = datetime.fromisoformat(text)
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


# the options below, as the command is given them
SERVING = (
    "config",
    *COLUMN_KNOBS,
    "startup_log",
    "arguments",
    "pid",
)


def serving_options(command: Command) -> Command:
    """Settings of the server that no metric shows."""
    for option in reversed(
        (
            click.option(
                "-c",
                "--config",
                type=click.Path(path_type=Path, dir_okay=False),
                help="Pools, SLOs and rules of this driftwatch.yaml.",
            ),
            *(
                click.option(flag, type=click.IntRange(min=1), help=f"vLLM's {flag}.")
                for flag in map(flag_of, COLUMN_KNOBS)
            ),
            click.option(
                "--startup-log",
                type=click.Path(path_type=Path, dir_okay=False),
                help="vLLM's start-up log, to read both from.",
            ),
            click.option(
                "--arguments", metavar="TEXT", help="vLLM's command line, to read both from."
            ),
            click.option(
                "--pid",
                type=click.IntRange(min=1),
                help="vLLM's process on this host, to read its command line.",
            ),
        )
    ):
        command = option(command)
    return command


def plan_from(
    config: Path | None,
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    startup_log: Path | None = None,
    arguments: str | None = None,
    pid: int | None = None,
    *,
    proc: Path = Path("/proc"),
) -> Plan:
    """Rules, trees and pools: of a configuration file, else the shipped rules and one pool.

    What the command line says of a server wins over the file.

    Raises:
        ConfigError: the configuration or a rule file has problems.
        UsageError: the start-up log or the process cannot be read, or B < S.
    """
    from driftwatch.service import configuration

    plan = configuration.plan_of_rules(()) if config is None else configuration.plan_of(config)
    typed = Serving(
        max_num_seqs=_from_option(max_num_seqs),
        max_num_batched_tokens=_from_option(max_num_batched_tokens),
    )
    words = _words_of_command_line(arguments, pid, proc)
    fingerprints = []
    servings = [typed]
    if words:
        from driftwatch.collect.fingerprint import fingerprint_from_arguments
        from driftwatch.collect.server_settings import from_arguments

        servings += [from_arguments(one) for one in words]
        fingerprints += [fingerprint_from_arguments(one) for one in words]
    if startup_log is not None:
        from driftwatch.collect.fingerprint import fingerprint_from_startup_log
        from driftwatch.collect.server_settings import from_startup_log

        try:
            text = startup_log.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise UsageError(f"{startup_log}: {error.strerror}") from error
        servings.append(from_startup_log(text, path=str(startup_log)))
        fingerprints.append(fingerprint_from_startup_log(text))
    return _telling(override(plan, servings), fingerprints)


def _telling(plan: Plan, fingerprints: Sequence[Fingerprint]) -> Plan:
    """The plan with what the command line says that runs."""
    if not fingerprints:
        return plan
    from driftwatch.detect.fingerprints import merged

    pools = tuple(replace(p, reported=merged(*fingerprints, p.reported)) for p in plan.pools)
    return replace(plan, pools=pools, default_reported=merged(*fingerprints, plan.default_reported))


def _words_of_command_line(arguments: str | None, pid: int | None, proc: Path) -> list[list[str]]:
    """vLLM's own arguments, as text or of a process on this host."""
    command_lines = []
    if arguments is not None:
        import shlex

        try:
            command_lines.append(shlex.split(arguments))
        except ValueError as error:
            raise UsageError(f"--arguments: {error}") from error
    if pid is not None:
        try:
            raw = (proc / str(pid) / "cmdline").read_bytes()
        except OSError as error:
            raise UsageError(f"--pid {pid}: {error.strerror}") from error
        command_lines.append([word.decode(errors="replace") for word in raw.split(b"\0")])
    return command_lines


def _from_option(value: int | None) -> Setting | None:
    return None if value is None else Setting(float(value), "command line")


def override(plan: Plan, servings: Sequence[Serving]) -> Plan:
    """The plan with what the command line says of every server."""
    from driftwatch.collect.server_settings import contradictions, merge

    for sentence in contradictions(*servings):
        click.echo(f"warning: {sentence}", err=True)
    typed = merge(*servings)
    if typed == Serving():
        return plan
    values = {name: one.value for name in KNOBS if (one := typed.setting(name)) is not None}
    if (why := refusal(values)) is not None:
        raise UsageError(why)
    pools = tuple(replace(p, serving=merge(typed, p.serving)) for p in plan.pools)
    return replace(plan, pools=pools, default_serving=merge(typed, plan.default_serving))


def print_problems(problems: Sequence[SourceProblem], limit: int = 20) -> None:
    """What could not be read, on stderr; the rest is counted."""
    for problem in problems[:limit]:
        click.echo(f"warning: {problem.where}: {problem.reason}", err=True)
    if len(problems) > limit:
        click.echo(f"warning: and {len(problems) - limit} more", err=True)


def print_note(note: str) -> None:
    """What was assumed because nobody said it: on stderr, in 80 columns on a terminal."""
    text = f"note: {note}"
    wrapped = textwrap.wrap(text, 80, subsequent_indent="  ") if sys.stderr.isatty() else [text]
    for line in wrapped:
        click.echo(line, err=True)


class Progress:
    """Progress on stderr: a bar after one second, piped a line every 30 seconds.

    Whatever is counted anew (the next file, the next step) begins a new estimate; there is none
    before a twentieth is done.
    """

    def __init__(
        self, label: str, monotonic: Callable[[], float] = time.monotonic, every: float = 30.0
    ) -> None:
        self._label = label
        self._clock = monotonic
        self._began = self._last = monotonic()
        self._share = 0.0
        self._shown = False
        self._closed = threading.Event()
        if not sys.stderr.isatty():
            threading.Thread(target=self._repeat, args=(every,), daemon=True).start()

    def __call__(self, done: float, total: float) -> None:
        """Say how far it is."""
        if total <= 0:
            return
        now, share = self._clock(), min(1.0, done / total)
        if share < self._share:
            self._began = now
        self._share = share
        if sys.stderr.isatty() and now - self._began >= 1 and now - self._last >= 0.1:
            self._last, self._shown = now, True
            filled = int(30 * share)
            text = f"\r{self._label} [{'#' * filled}{'.' * (30 - filled)}] {self._text(now)}"
            click.echo(text.ljust(79), nl=False, err=True)

    def begin(self, label: str) -> None:
        """Another step begins, with an estimate of its own."""
        self._label, self._share, self._began = label, 0.0, self._clock()

    def close(self) -> None:
        """Take the bar away."""
        self._closed.set()
        if self._shown:
            click.echo("\r" + " " * 78 + "\r", nl=False, err=True)

    def _text(self, now: float) -> str:
        """``62 %, 107 s left``."""
        text = f"{100 * self._share:3.0f} %"
        if self._share < _ESTIMATED_FROM:
            return text
        return f"{text}, {(now - self._began) * (1 - self._share) / self._share:.0f} s left"

    def _repeat(self, every: float) -> None:
        """In a pipe: also while a step takes long."""
        while not self._closed.wait(every):
            click.echo(f"{self._label}: {self._text(self._clock()).strip()}", err=True)


_ESTIMATED_FROM = 0.05
