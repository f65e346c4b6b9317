"""``driftwatch doctor``: what can fire, what is missing, and the line that fixes it."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftwatch.cli.history import History, plan_from
from driftwatch.cli.main import EXIT_ANSWERED, EXIT_NO_VERDICT, EXIT_PROBLEM, EXIT_USAGE
from driftwatch.cli.options import flag, history_options, json_option, option, refuse_file
from driftwatch.cli.printer import Progress, print_json, print_wrapped
from driftwatch.cli.watch import hosts_with_own_gpus
from driftwatch.clock import SystemClock
from driftwatch.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from driftwatch.doctor.rules import Check, Checkup
    from driftwatch.doctor.sources import SourceAnswer
    from driftwatch.pipeline.plan import Plan
    from driftwatch.settings import Settings


_EXAMPLE = "driftwatch doctor http://host:8000/metrics"
_LIST = "driftwatch baseline list"
_ORDER = ("MISSING", "WRONG", "WARNING", "LEARNING", "OFF", "ok")


@click.command(name="doctor")
@click.argument("urls", nargs=-1, metavar="[URL]...")
@flag("--all show_all", "Print every check by itself, and all that each trouble costs.")
@option(
    "--send-test",
    str,
    "Only send RECEIVER a page that is marked as a test. Exit code 0: it took the page; 1: it did "
    "not, and why.",
    metavar="RECEIVER",
)
@flag("--resolve", "With --send-test: send the page's resolve as well.")
@json_option
@history_options("db", "recordings", "baseline", "pools", "serving")
def command(
    urls: tuple[str, ...],
    show_all: bool,
    send_test: str | None,
    resolve: bool,
    as_json: bool,
    history: History,
) -> int:
    """Check every input of every rule: at /metrics (URL), in a recording, or of --config.

    Default: of ./driftwatch.yaml. Line 1 counts the rules that can fire, line 2 names them; then
    follows a line for each reason why others cannot, with its fix. MISSING: an input is not there.
    WRONG: an input is in another unit, or contradicts another. WARNING: a rule fires with less.
    LEARNING: a rule waits for a baseline or history. OFF: the pool has too few servers, the engine
    no such metric, or somebody switched the rule off. Exit code 0: nothing is MISSING or WRONG; 1:
    something is; 4: no source has a vLLM server.
    """
    if resolve or send_test is not None:
        if urls or history.recordings or as_json or show_all:
            raise UsageError("--send-test goes with --config and --resolve only")
        if send_test is None:
            raise UsageError("--resolve needs --send-test RECEIVER")
        from driftwatch.cli.send_test import send_test_page

        of = history.config or Path("driftwatch.yaml")
        return send_test_page(send_test, of, resolve=resolve)
    try:
        return _examined(urls, history, show_all=show_all, as_json=as_json)
    except ConfigError:
        from driftwatch.cli.check import command as check

        # the file's problems, all at once; in JSON those that were met first
        again = click.get_current_context().invoke
        if as_json or again(check, config=history.config_file) not in (EXIT_PROBLEM, EXIT_USAGE):
            raise
        return EXIT_USAGE


def _examined(urls: tuple[str, ...], history: History, *, show_all: bool, as_json: bool) -> int:
    """Print the checkup; its exit code.

    Raises ConfigError: the configuration or the rules have errors.
    """
    import polars as pl

    from driftwatch.doctor.checkup import Inputs, checkup
    from driftwatch.doctor.sources import read_sources
    from driftwatch.service.configuration import started_with
    from driftwatch.settings import RecordingSource, load_settings

    of_config = not urls and history.is_stored
    if history.db is not None and not of_config:
        raise UsageError("--db goes with --config, without URL and --recording")
    config = history.config_file if of_config else history.config
    plan = plan_from(config, **history.serving)
    clock = SystemClock()
    configured = None if config is None else load_settings(config)
    plan = replace(plan, own_hosts=hosts_with_own_gpus(urls))
    settings = _settings(urls, history.recordings, config, configured, nvml=bool(plan.own_hosts))
    # a recording is judged at its own end
    is_past = all(isinstance(source, RecordingSource) for source in settings.sources)
    progress = Progress("asking")
    reading = read_sources(settings, clock, progress)
    progress.close()
    pools = settings.pools if of_config else ()
    inputs, stored = _stored(history, clock.now()) if of_config else ({}, ())
    result = checkup(
        pl.concat(reading.scrapes),
        plan.assign(reading.targets),
        plan,
        Inputs(
            has_baseline=history.baseline is not None,
            now=None if is_past else clock.now(),
            sources=reading.sources,
            gpus=pl.concat(reading.gpus),
            places={
                pool.name: [one.serving for one in started_with(pool.serving)] for pool in pools
            },
            **inputs,
        ),
    )
    if configured is not None:
        result = result.with_checks([*_paging(configured, plan), *stored])
    place = _places(config, settings) if of_config and config is not None else None
    if as_json:
        _print_json(result, reading.sources, place)
    else:
        named = f" -c {shlex.quote(str(history.config))}" if of_config and history.config else ""
        _print(result, show_all, place, named)
    if not result.targets:
        return EXIT_NO_VERDICT
    return EXIT_ANSWERED if result.ready else EXIT_PROBLEM


def _paging(configured: Settings, plan: Plan) -> Iterator[Check]:
    """Whether receivers can be used, and whether pages reach one."""
    from driftwatch.doctor.paging import receiver_checks, route_checks, secret_file_checks
    from driftwatch.receivers.registry import subscriptions_of
    from driftwatch.service.configuration import unreadable_secrets
    from driftwatch.settings.problems import secret_files

    yield from receiver_checks(unreadable_secrets(configured))
    yield from secret_file_checks(secret_files(configured))
    if subscriptions := subscriptions_of(configured):
        yield from route_checks(plan.routes_to(subscriptions), plan.enabled)


def _settings(
    urls: Sequence[str],
    recordings: Sequence[Path],
    config: Path | None,
    configured: Settings | None,
    *,
    nvml: bool,
) -> Settings:
    """The sources to read: those of the command line, else of the configuration.

    ``nvml``: this machine's GPUs too, as ``watch`` does.

    Raises ConfigError: files of these sources cannot be read, all at once; those of receivers are
    checks.
    """
    from driftwatch.service.configuration import unmet
    from driftwatch.settings import NvmlSource, PagesSource, RecordingSource, Settings

    if urls and recordings:
        raise UsageError("give URLs or --recording, not both", help_text=_EXAMPLE)
    for url in urls:
        refuse_file(url, "URL")
    sources: list[Any] = [
        RecordingSource.model_construct(recording=path, labels={}) for path in recordings
    ]
    if urls:
        sources.append(PagesSource.model_construct(pages=tuple(urls), labels={}))
    if nvml:
        sources.append(NvmlSource(nvml=True))
    if sources:
        return Settings.model_validate({}).model_copy(update={"sources": tuple(sources)})
    if configured is None or config is None:
        raise UsageError(
            "there is no ./driftwatch.yaml, and no URL, --recording or --config is given",
            help_text=f"driftwatch init writes one; or: {_EXAMPLE}",
        )
    without = configured.model_copy(update={"receivers": ()})
    if wrong := tuple(p for p in unmet(without, config) if p.severity == "error"):
        raise ConfigError(wrong)
    return configured


def _stored(history: History, now: datetime) -> tuple[dict[str, Any], Sequence[Check]]:
    """Inputs from the database of the service, and checks of it; both empty without one."""
    from driftwatch.doctor.paging import database_checks, speed_waits
    from driftwatch.doctor.rules import Check
    from driftwatch.errors import DriftwatchError, StoreError

    try:
        with history.store() as store:
            first, _ = store.minutes_reach() or (now, now)
            found = {"waits": speed_waits(store), "baselines": store.baselines()}
            return {**found, "past": now - first}, tuple(database_checks(store, now))
    except StoreError as error:
        if error.code == "missing" and history.db is None:
            return {}, ()
        return {}, (Check("MISSING", "database", error.message, ("every rule",), error.help_text),)
    except DriftwatchError:  # it holds no scrape
        return {}, ()


def _places(config: Path, settings: Settings) -> Callable[[Check], str]:
    """Where in the file a check is mended: ``file:line``, "" where that is no line of it."""
    from driftwatch.yaml_models import place_of
    from driftwatch.yaml_positions import Entries, read_yaml

    root = read_yaml(config).root
    numbers = {pool.name: number for number, pool in enumerate(settings.pools)}

    def place(check: Check) -> str:
        location = check.setting
        if check.pool is not None:
            if check.pool not in numbers:
                return "pools[]:"
            location = ("pools", numbers[check.pool], *location)
        if not location or not isinstance(root, Entries):
            return ""
        if isinstance(location[0], str) and location[0] not in root.entries:
            return f"{config}:"
        return f"{config}:{place_of(root, location).line}"

    return place


def _print_json(
    result: Checkup, sources: Sequence[SourceAnswer], place: Callable[[Check], str] | None
) -> None:
    """Everything, as one document."""
    places = [(place(one) or None) if place else None for one in result.checks]
    checks = [{**asdict(one), "place": at} for one, at in zip(result.checks, places, strict=True)]
    document = {**asdict(result), "checks": checks, "ready": result.ready}
    print_json({"schema_version": 3, **document, "sources": list(map(asdict, sources))})


def _print(
    result: Checkup, show_all: bool, place: Callable[[Check], str] | None, named: str
) -> None:
    """The answer, then a reason each with its fix, worst first.

    ``show_all``: every check by itself, with all that it costs; ``named``: -c of the commands that
    mend it.
    """
    checks = _ordered(result)
    _wrapped(_verdict(result, checks), 1)
    if able := [rule for rule, can in result.rules.items() if can]:
        _wrapped(f"can fire {_names(able, result)}", 9)
    for route in (one for one in checks if (one.where, one.status) == ("routes", "ok")):
        _wrapped(f"{route.where:<8} {route.what}", 9)
    for group in [[one] for one in checks] if show_all else _reasons(result, checks):
        for text in _texts(result, group, show_all, place):
            _wrapped(text.replace(_LIST, f"{_LIST}{named}"), 9)
    if not show_all:
        passed = sum(check.status == "ok" for check in checks)
        click.echo(f"ok       {passed} checks; --all lists them, and what each trouble costs")


def _ordered(result: Checkup) -> list[Check]:
    """The checks, worst first; of those that are MISSING what costs every rule or page, then what
    costs most rules.
    """

    def order(check: Check) -> tuple[int, bool, int]:
        if check.status != "MISSING":
            return _ORDER.index(check.status), False, 0
        is_some = not any(one.startswith("every ") for one in check.disables)
        return 0, is_some, -len(check.disables)

    return sorted(result.checks, key=order)


def _reasons(result: Checkup, checks: Sequence[Check]) -> list[list[Check]]:
    """The troubles: checks of several pools together where they are the same."""
    groups: dict[object, list[Check]] = {}
    for check in checks:
        lost = tuple(_lost(result, check))
        # what waits, or is off, is a trouble only where it costs a rule
        if check.status in ("MISSING", "WRONG", "WARNING") or lost:
            groups.setdefault((check.status, check.what, check.fix, lost), []).append(check)
    return list(groups.values())


def _verdict(result: Checkup, checks: Sequence[Check]) -> str:
    """``NOT READY: 22 of 24 rules can fire on every server; 2 cannot (MISSING)``."""
    if not result.targets:
        return "NO VERDICT: no source has a vLLM server"
    able, learning, off = sum(result.rules.values()), len(result.learning), len(result.off)
    # each enabled rule in one state; the numbers add up
    states = {"cannot (MISSING)": len(result.rules) - able - learning - off}
    states |= {"cannot yet (LEARNING)": learning, "cannot here (OFF)": off}
    text = f"{able} of {len(result.rules)} rules can fire"
    text += " on every server" if result.targets > 1 else ""
    others = ", ".join(f"{number} {state}" for state, number in states.items() if number)
    text += f"; {others}" if others else ""
    found = Counter(check.status for check in checks if not _lost(result, check))
    beside = [f"{found[one]} {one}" for one in ("MISSING", "WRONG") if found[one]]
    word = "READY" if result.ready else "NOT READY"
    return f"{word}: {text}" + (f"; other checks: {', '.join(beside)}" if beside else "")


def _lost(result: Checkup, check: Check) -> list[str]:
    """The rules that cannot fire because of it, in their order."""
    if check.status not in ("MISSING", "LEARNING", "OFF"):
        return []
    later = {"LEARNING": result.learning, "OFF": result.off}.get(check.status)
    rules = result.rules if later is None else later
    is_every = "every rule" in check.disables
    return [one for one in result.rules if one in rules and (is_every or one in check.disables)]


def _names(rules: Sequence[str], result: Checkup) -> str:
    """Their alerts, each once; where an alert has other rules too: ``QueueSpike (page)``."""
    every, here = (Counter(r.partition("{")[0] for r in some) for some in (result.rules, rules))
    texts = []
    for rule in rules:
        alert = rule.partition("{")[0]
        labels = ", ".join(re.findall(r'"(.*?)"', rule))
        more = f" ({here[alert]} rules)" if here[alert] > 1 else ""
        texts.append(f"{alert} ({labels})" if every[alert] > here[alert] else f"{alert}{more}")
    return ", ".join(dict.fromkeys(texts))


def _texts(
    result: Checkup,
    group: Sequence[Check],
    show_all: bool,
    place: Callable[[Check], str] | None,
) -> Iterator[str]:
    """What is wrong and which rules it costs, what else it costs, how to mend it."""
    check, lost = group[0], _lost(result, group[0])
    text = f"{check.status:<8} {_first(one.where for one in group)}: {check.what}"
    if lost:
        text += ": every rule" if "every rule" in check.disables else f": {_names(lost, result)}"
    yield text
    costs = [one for one in check.disables if one not in (*lost, "every rule")]
    if costs and (show_all or check.status == "WRONG"):
        yield f"         costs: {_names(costs, result)}"
    if check.fix is None:
        return
    if place is not None:
        at = _first(filter(None, map(place, group)))
    else:
        at = f"{check.flags}; or in the configuration, " if check.flags else ""
        at += "pools[]:" if check.pool is not None else ""
    yield f"         fix: {f'{at} {check.fix}'.strip()}"


def _first(texts: Iterable[str]) -> str:
    """The first three, the rest counted."""
    every = list(dict.fromkeys(texts))
    more = f" and {len(every) - 3} more" if len(every) > 3 else ""
    return ", ".join(every[:3]) + more


def _wrapped(text: str, indent: int) -> None:
    print_wrapped(text, " " * indent, piped_too=True)
