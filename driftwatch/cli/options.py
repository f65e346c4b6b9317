"""Options that several verbs share, and how their texts are read."""

from __future__ import annotations

import difflib
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.printer import print_warning
from driftwatch.clock import Clock, SystemClock
from driftwatch.database_place import SqliteFile, place_of
from driftwatch.durations import parse_duration
from driftwatch.errors import StoreError, UsageError
from driftwatch.knobs import KNOBS, refusal
from driftwatch.model import Serving, Setting, Slo

if TYPE_CHECKING:
    from driftwatch.pipeline.plan import Plan


class Time(click.ParamType[datetime]):
    """An ISO 8601 time (UTC unless it says otherwise), unix seconds, ``6h`` ago or ``now``."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Text to an aware datetime."""
        if isinstance(value, datetime):
            return value
        try:
            return parse_time(str(value))
        except ValueError:
            self.fail(
                f"{value!r} is no time: write 2026-11-18T02:56Z, 6h (6 hours ago), now, or unix "
                "seconds",
                param,
                ctx,
            )


class Database(click.ParamType[Any]):
    """A SQLite file, or a URL of PostgreSQL."""

    name = "database"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Text to a place; a message never shows the URL, which may hold a password."""
        try:
            place = place_of(value)
        except StoreError as error:
            self.fail("; ".join(filter(None, (error.message, error.help_text))), param, ctx)
        if isinstance(place, SqliteFile) and place.path.is_dir():
            self.fail(f"File {str(place)!r} is a directory.", param, ctx)
        return place


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
            length = timedelta(seconds=parse_duration(str(value).strip()))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        except OverflowError:
            self.fail(f"{value} is too long", param, ctx)
        if not length:
            self.fail(f"a duration above zero is needed, not {value}", param, ctx)
        return length


_SLO_EXAMPLE = "--slo ttft=1s,tpot=50ms,share=0.95"
_ABOVE = {"share": 1.0, "ttft": 3600.001, "tpot": 3600.001}  # no target is that large


class SloText(click.ParamType[Slo]):
    """Latency targets: ``ttft=1s,tpot=50ms,share=0.95``."""

    name = "targets"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Text to targets."""
        if isinstance(value, Slo):
            return value
        targets: dict[str, float] = {}
        for part in str(value).split(","):
            name, _, amount = (piece.strip() for piece in part.partition("="))
            if name not in _ABOVE:
                close = difflib.get_close_matches(name, _ABOVE, n=1)
                hint = f"; did you mean {close[0]}?" if close else ":"
                self.fail(f"no target {name!r}{hint} write {_SLO_EXAMPLE}", param, ctx)
            try:
                number = float(amount) if name == "share" else _seconds(amount)
            except ValueError as error:
                self.fail(f"{part!r}: {error}; write {_SLO_EXAMPLE}", param, ctx)
            if name in targets or not 0 < number < _ABOVE[name]:
                why = "is given twice" if name in targets else "is out of range"
                self.fail(f"{part!r} {why}: write {_SLO_EXAMPLE}", param, ctx)
            targets[name] = number
        if not {"ttft", "tpot"} & set(targets):
            self.fail(f"neither ttft nor tpot: write {_SLO_EXAMPLE}", param, ctx)
        return Slo(targets.get("ttft"), targets.get("tpot"), targets.get("share", Slo().share))


def _seconds(text: str) -> float:
    """``50ms``, ``1s``, ``1m30s``; ``0.25s`` too, as people write targets with fractions."""
    for unit, length in (("ms", 0.001), ("s", 1.0)):
        number = text.removesuffix(unit)
        if "." in number and number.replace(".", "", 1).isdecimal():
            return float(number) * length
    return parse_duration(text)


def parse_time(text: str, clock: Clock | None = None) -> datetime:
    """ISO 8601, unix seconds, a duration before now (``6h`` or ``-6h``) or ``now`` → aware UTC.

    Raises:
        ValueError: it is none of them.
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
    try:
        ago = timedelta(seconds=parse_duration(text.removeprefix("-")))
        if ago:
            return now - ago
    except OverflowError:
        pass
    raise ValueError(f"{text!r} is no time")


def plan_from(
    config: Path | None,
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    startup_log: Path | None = None,
) -> Plan:
    """Rules, trees and pools: of a configuration file, else the shipped rules and one pool.

    What the command line says of a server wins over the file.

    Raises:
        ConfigError: the configuration or a rule file has problems.
        UsageError: the start-up log cannot be read, or B < S.
    """
    from driftwatch.collect import startup
    from driftwatch.collect.fingerprint import merged
    from driftwatch.service import configuration

    plan = configuration.plan_of_rules(()) if config is None else configuration.plan_of(config)
    servings, reports = [Serving(_typed(max_num_seqs), _typed(max_num_batched_tokens))], []
    if startup_log is not None:
        try:
            text = startup_log.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise UsageError(f"{startup_log}: {error.strerror}") from error
        started = startup.from_startup_log(text, path=str(startup_log))
        servings.append(started.serving)
        reports.append(started.fingerprint)
    for sentence in startup.contradictions(*servings):
        print_warning(sentence)
    stated = startup.merge(*servings)
    values = {name: one.value for name in KNOBS if (one := stated.setting(name)) is not None}
    if (why := refusal(values)) is not None:
        raise UsageError(why)
    pools = tuple(
        replace(
            pool,
            serving=startup.merge(stated, pool.serving),
            reported=merged(*reports, pool.reported),
        )
        for pool in plan.pools
    )
    return replace(
        plan,
        pools=pools,
        default_serving=startup.merge(stated, plan.default_serving),
        default_reported=merged(*reports, plan.default_reported),
    )


def _typed(value: int | None) -> Setting | None:
    return None if value is None else Setting(float(value), "command line")
