"""Options of several verbs, their parsers, and the table of options that choose a history."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from driftwatch.cli.database import DATABASE_VARIABLE, DEFAULT_CONFIG, config_here
from driftwatch.clock import Clock, SystemClock
from driftwatch.database_place import Place, PostgresPlace, SqliteFile, place_of
from driftwatch.durations import parse_duration
from driftwatch.errors import StoreError, UsageError
from driftwatch.knobs import COLUMN_KNOBS, flag_of
from driftwatch.model import Slo

if TYPE_CHECKING:
    from driftwatch.pipeline.explain import Window

Command = TypeVar("Command", bound=Callable[..., Any])
Option = Callable[[Callable[..., Any]], Callable[..., Any]]


class Parsed(click.ParamType[Any]):
    """An option's type from a function of its text, whose ValueError is the message."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name, self._read = name, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Text to a value; a value stays as it is."""
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def parse_time(text: str, clock: Clock | None = None) -> datetime:
    """ISO 8601, unix seconds, a duration before now (``6h`` or ``-6h``) or ``now`` → aware UTC.

    Raises ValueError: it is none of them.
    """
    text = text.strip()
    with suppress(ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(float(text), UTC)
    with suppress(ValueError):
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    now = (clock or SystemClock()).now().replace(microsecond=0)
    if text == "now":
        return now
    with suppress(ValueError, OverflowError):
        if ago := timedelta(seconds=parse_duration(text.removeprefix("-"))):
            return now - ago
    raise ValueError(
        f"{text!r} is no time: write 2026-11-18T02:56Z, 6h (6 hours ago), now, or unix seconds"
    )


def _moment(text: str) -> datetime:
    """A time, or ``08:40`` of a day that the history decides (:func:`on_its_day`)."""
    if re.fullmatch(r"\d\d:\d\dZ?", text.strip()):
        with suppress(ValueError):
            clock = time.fromisoformat(text.strip().removesuffix("Z"))
            return datetime.combine(date.min, clock, UTC)
    return parse_time(text)


def on_its_day(at: datetime | None, last: datetime) -> datetime | None:
    """The moment; a time without a day is the newest such time up to ``last``."""
    if at is None or at.date() != date.min:
        return at
    that_day = last.replace(hour=at.hour, minute=at.minute, second=0, microsecond=0)
    return that_day if that_day <= last else that_day - timedelta(days=1)


def _database(text: str) -> Place:
    """A SQLite file, or a URL of PostgreSQL, which no message shows: it may hold a password."""
    try:
        place = place_of(text)
    except StoreError as error:
        raise ValueError("; ".join(filter(None, (error.message, error.help_text)))) from None
    if isinstance(place, SqliteFile) and place.path.is_dir():
        raise ValueError(f"File {str(place)!r} is a directory.")
    return place


def _span(text: str) -> Window:
    from driftwatch.pipeline.explain import Window

    first, dots, last = text.partition("..")
    try:
        window = Window(parse_time(first), parse_time(last if dots else ""))
    except ValueError:
        example = "2026-11-18T02:00Z..2026-11-18T03:00Z or -6h..-1h"
        raise ValueError(f"{text!r} is no FROM..TO, e.g. {example}") from None
    if window.start >= window.end:
        raise ValueError(f"{text!r} ends before it begins")
    return window


def _duration(text: str) -> timedelta:
    try:
        length = timedelta(seconds=parse_duration(text.strip()))
    except OverflowError:
        raise ValueError(f"{text} is too long") from None
    if not length:
        raise ValueError(f"a duration above zero is needed, not {text}")
    return length


_ABOVE = {"share": 1.0, "ttft": 3600.001, "tpot": 3600.001}  # no target is that large


def _slo(text: str) -> Slo:
    """Latency targets: ``ttft=1s,tpot=50ms,share=0.95``."""
    targets: dict[str, float] = {}
    example = "write --slo ttft=1s,tpot=50ms,share=0.95"
    for part in text.split(","):
        name, _, amount = (piece.strip() for piece in part.partition("="))
        if name not in _ABOVE:
            from driftwatch.yaml_models import near

            hint = near(name, _ABOVE)
            raise ValueError(f"no target {name!r}{f'; {hint}' if hint else ':'} {example}")
        try:
            number = float(amount) if name == "share" else _seconds(amount)
        except ValueError as error:
            raise ValueError(f"{part!r}: {error}; {example}") from None
        if name in targets or not 0 < number < _ABOVE[name]:
            why = "is given twice" if name in targets else "is out of range"
            raise ValueError(f"{part!r} {why}: {example}")
        targets[name] = number
    if not {"ttft", "tpot"} & set(targets):
        raise ValueError(f"neither ttft nor tpot: {example}")
    return Slo(targets.get("ttft"), targets.get("tpot"), targets.get("share", Slo().share))


def _seconds(text: str) -> float:
    """``50ms``, ``1s``, ``1m30s``; ``0.25s`` too, as people write targets with fractions."""
    for unit, length in (("ms", 0.001), ("s", 1.0)):
        number = text.removesuffix(unit)
        if "." in number and number.replace(".", "", 1).isdecimal():
            return float(number) * length
    return parse_duration(text)


TIME, SPAN = Parsed("time", parse_time), Parsed("from..to", _span)
MOMENT = Parsed("time", _moment)
DURATION, SLO = Parsed("duration", _duration), Parsed("targets", _slo)
DATABASE = Parsed("database", _database)
PATH = click.Path(path_type=Path)
FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)


def option(names: str, kind: Any = None, text: str = "", **more: Any) -> Option:
    """An option that shows its default; ``names``: its flags and the name of its argument."""
    default = more.get("default")
    shown = bool(default) and not callable(default)
    return click.option(*names.split(), type=kind, help=text, show_default=shown, **more)


def flag(names: str, text: str) -> Option:
    """An option without a value."""
    return click.option(*names.split(), is_flag=True, help=text)


_OPTIONS: dict[str, tuple[Option, ...]] = {
    "at": (
        option("--at", MOMENT, "The moment: 2026-01-31T14:05Z or 24h (ago); default: the newest "
               "scrape."),
    ),
    "recordings": (
        option("--recording recordings", PATH, "Read this recording; may be repeated.",
               multiple=True),
    ),
    "prometheus": (
        option("--prometheus", str, "Read history from a Prometheus API, --from to --to.",
               metavar="URL"),
        option("--match selector", str, "With --prometheus: only series with this label value; "
               "repeat it with the same label for several values.", multiple=True,
               metavar="LABEL=VALUE"),
    ),
    "span": (
        option("--from since", TIME, "Start: 2026-01-31T14:05Z or 24h (ago)."),
        option("--to until", TIME, "End, in the same forms."),
    ),
    "baseline": (
        option("--baseline", SPAN, "Window to compare lengths, rates and speed with."),
    ),
    "db": (
        option("--db", DATABASE, "SQLite file or postgresql://USER@HOST/NAME; default: "
               f"${DATABASE_VARIABLE}, else the configuration's, else ./driftwatch.db.",
               metavar="DATABASE"),
    ),
    "config": (
        option("-c --config", FILE, "Configuration with pools and database; default: "
               f"./{DEFAULT_CONFIG}.", default=config_here),
    ),
    "pools": (
        option("-c --config", FILE, "Configuration with pools, latency targets and rules; default "
               f"where a database is read: ./{DEFAULT_CONFIG}."),
    ),
    "serving": (
        *(
            option(name, click.IntRange(min=1), "What every server runs with; overrides the "
                   "configuration.", metavar="N")
            for name in map(flag_of, COLUMN_KNOBS)
        ),
        option("--startup-log", FILE, "Read both settings from vLLM's start-up log."),
    ),
}  # fmt: skip
# of a command that looks at one window of a target
WINDOW_OPTIONS = ("at", "recordings", "baseline", "db", "pools", "serving")
_SERVING_NAMES = (*COLUMN_KNOBS, "startup_log")
_NAMES = (
    *("recordings", "prometheus", "selector", "since", "until", "at", "baseline", "db", "config"),
    *_SERVING_NAMES,
)
# what a command that opens the database of incidents does not take
NOT_OF_INCIDENTS = tuple(name for name in _NAMES if name not in ("db", "config"))


def history_options(*groups: str) -> Callable[[Command], Command]:
    """Options of these groups of the table; the command gets them as ``history``."""

    def add(command: Command) -> Command:
        @functools.wraps(command)
        def with_history(**options: Any) -> Any:
            from driftwatch.cli.history import History

            named = {name: options.pop(name) for name in _NAMES if name in options}
            serving = {name: named.pop(name) for name in _SERVING_NAMES if name in named}
            return command(history=History(serving=serving, **named), **options)

        decorated: Any = with_history
        for group in reversed(groups):
            for option in reversed(_OPTIONS[group]):
                decorated = option(decorated)
        return decorated  # type: ignore[no-any-return]

    return add


def config_option(help_text: str) -> Option:
    """``-c FILE`` of a command that reads no history."""
    return option("-c --config", PATH, help_text, metavar="FILE")


json_option: Option = flag("--json as_json", "Print one JSON document.")


def repeat_options(*, at: datetime | None = None, without: Collection[str] = ()) -> str:
    """The history options as they were typed, a blank before each, for the next command.

    Args:
        at: the moment that was looked at; None = the next command chooses.
        without: names of History that the next command does not take.
    """
    context = click.get_current_context()
    words = [] if at is None else [f" --at {typed(at)}"]
    for option in context.command.params:
        name = option.name or ""
        if name not in _NAMES or name == "at" or name in without:
            continue
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            values = context.params[name]
            for value in values if isinstance(values, tuple) else (values,):
                flag = min(option.opts, key=len) if isinstance(option, click.Option) else None
                flag = flag or "--recording"  # replay takes recordings as arguments
                words.append(f" {flag} {shlex.quote(typed(value))}")
    return "".join(words)


def typed(value: object) -> str:
    """The text to type for a value: times in UTC to the microsecond, a window as FROM..TO."""
    from driftwatch.pipeline.explain import Window

    if isinstance(value, Window):
        return f"{typed(value.start)}..{typed(value.end)}"
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return value.typed if isinstance(value, SqliteFile | PostgresPlace) else str(value)


def labels_of(texts: Sequence[str]) -> dict[str, list[str]]:
    """``--match`` texts as label → values.

    Raises UsageError: one is not LABEL=VALUE.
    """
    labels: dict[str, list[str]] = {}
    for text in texts:
        label, equals, value = text.partition("=")
        if not equals or not label:
            raise UsageError(f"--match {text!r} is not LABEL=VALUE")
        labels.setdefault(label, []).append(value)
    return labels


def refuse_file(text: str, what: str) -> None:
    """Refuse a file in the place of a server (``what``). Raises UsageError: it is one."""
    path, name = Path(text), shlex.quote(text)
    is_named_so = path.suffix in (".yaml", ".yml", ".db", ".sqlite")
    if "://" in text or not (is_named_so or path.exists()):
        return
    context = click.get_current_context()
    flags = {flag for one in context.command.params for flag in one.opts}
    option = f"--recording {name}"
    if path.suffix in (".yaml", ".yml"):
        option = f"-c {name}"
    elif is_named_so:
        of = f"-c driftwatch.yaml, whose database {name} is"
        option = f"--db {name}" if "--db" in flags else of
    verb = context.info_name if option.split()[0] in flags else "doctor"
    raise UsageError(f"{text} is a file, not a {what}", help_text=f"driftwatch {verb} {option}")
