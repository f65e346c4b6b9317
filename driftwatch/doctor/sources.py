"""Do the sources answer, and are their scrapes fresh and often enough?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import polars as pl

from driftwatch.clock import Clock
from driftwatch.collect.dcgm_sources import DcgmPrometheusSource as GpusOfApi
from driftwatch.collect.doubles import with_own_names
from driftwatch.collect.gpus import empty_gpus
from driftwatch.collect.http import what_to_check
from driftwatch.collect.prometheus.query import matchers, select
from driftwatch.collect.schema import Collected, Source, empty_scrapes
from driftwatch.doctor.rules import Check, Setting, Status, TargetCheck
from driftwatch.errors import SourceError
from driftwatch.model import Target, TargetKey
from driftwatch.numbers import cut, duration
from driftwatch.service.configuration import sources_of
from driftwatch.service.probes import asker_of
from driftwatch.settings import PagesSource, PrometheusSource, Settings, SourceSettings
from driftwatch.settings.sources import SOURCE_KINDS

_BACK = timedelta(minutes=5)
_WHERE_CHARACTERS, _CHARACTERS = 100, 300
_SHOWN_PROBLEMS = 3  # of a source; the rest is counted
_COARSE_SECONDS = 30.0  # 20 scrapes in the ten minutes of a share
_USUAL_SECONDS = 15.0  # between two scrapes of a target whose interval is unknown
_BLIND_SECONDS = 60.0  # a minute without two scrapes has no rates
_MINUTES_FROM = 600.0  # seconds; a shorter age is printed in seconds
_FUTURE_SECONDS = 2.0  # a clock's rounding
# of a process that is read by another way: nothing of it is missing
_TWICE = "read once"


@dataclass(frozen=True, slots=True)
class SourceAnswer:
    """How one source answered."""

    name: str  # the source's
    kind: str  # prometheus, pages, dcgm, nvml or recording
    setting: Setting = ()  # its place in the configuration; empty where there is none
    instances: frozenset[str] = frozenset()  # the servers it brought
    settle_seconds: float = 0.0  # how old a scrape is before the source has it
    every_seconds: float | None = None  # how often it scrapes, where it does that itself
    # instance → true time between two scrapes, where the source can tell
    intervals: Mapping[str, float] = field(default_factory=dict)
    problems: tuple[str, ...] = ()  # what it could not read
    fix: str | None = None  # what mends that it brings nothing
    # instances that it lists now, well or not; None = it does not say
    listed: frozenset[str] | None = None
    gpus: int = 0  # GPU readings it brought

    def every(self, key: TargetKey) -> float | None:
        """Seconds between two scrapes of a target; None = unknown."""
        return self.intervals.get(key.instance, self.every_seconds)

    def is_stale(self, key: TargetKey, age: float) -> bool:
        """Whether there should have been another scrape by now."""
        usual = _USUAL_SECONDS if self.kind == "prometheus" else _BLIND_SECONDS
        return age > self.settle_seconds + 3 * (self.every(key) or usual)


@dataclass(slots=True)
class Answers:
    """What all sources brought."""

    scrapes: list[pl.DataFrame] = field(default_factory=lambda: [empty_scrapes()])  # scrape tables
    gpus: list[pl.DataFrame] = field(default_factory=lambda: [empty_gpus()])  # GPU tables
    targets: dict[TargetKey, Target] = field(default_factory=dict)  # with their labels
    sources: list[SourceAnswer] = field(default_factory=list)  # how each answered


def read_sources(
    settings: Settings, clock: Clock, progress: Callable[[float, float], None] | None = None
) -> Answers:
    """Ask every source of a configuration for its last five minutes, a recording for all it has.

    ``progress``: called with the sources done and the sources in all.

    Raises ConfigError: a secret file cannot be read; UsageError: a source that cannot be, or none.
    """
    for source in sources_of(settings, clock):  # together: two servers of one name are an error
        source.close()
    answers = Answers()
    brought: list[Collected] = []
    until = clock.now()
    for number, setting in enumerate(settings.sources):
        if progress is not None:
            progress(number, len(settings.sources))
        for source in sources_of(settings.model_copy(update={"sources": (setting,)}), clock):
            span = getattr(source, "span", None)
            try:
                brought.append(source.collect(*(span() if span else (until - _BACK, until))))
            finally:
                source.close()
            answer = _answer_of(source, brought[-1], setting, number)
            if isinstance(setting, PagesSource):
                answer = replace(answer, every_seconds=settings.interval)
            elif isinstance(setting, PrometheusSource) and answer.kind == "prometheus":
                is_dead = answer.problems and not answer.instances
                answer = (
                    _mended(answer, setting)
                    if is_dead
                    else _timed(answer, brought[-1], setting, clock)
                )
            answers.sources.append(answer)
    named = with_own_names(brought, [one.name for one in answers.sources], {}, {})
    for number, (before, collected) in enumerate(zip(brought, named, strict=True)):
        answers.scrapes.append(collected.scrapes)
        answers.gpus.append(collected.gpus)
        twice = [problem.reason for problem in collected.problems[len(before.problems) :]]
        if same := sorted(answers.targets.keys() & collected.targets.keys()):
            more = f" and {len(same) - 1} more" if len(same) > 1 else ""
            twice.append(f"{same[0].text}{more}: another source shows it too, read once")
        answers.targets |= collected.targets
        answer = answers.sources[number]
        answers.sources[number] = replace(answer, problems=(*answer.problems, *twice))
    return answers


def _answer_of(
    source: Source, collected: Collected, setting: SourceSettings, number: int
) -> SourceAnswer:
    """How one source answered, under its own name."""
    problems = (  # the reason first: where may be a long query
        p.reason if p.where == source.name else f"{p.reason} ({cut(p.where, _WHERE_CHARACTERS)})"
        for p in collected.problems
    )
    kind = next(kind for kind, model in SOURCE_KINDS.items() if isinstance(setting, model))
    name = source.name
    if kind != "prometheus":
        name = f"{kind} {number}"
    return SourceAnswer(
        name,
        "dcgm" if isinstance(source, GpusOfApi) else kind,
        ("sources", number),
        frozenset(key.instance for key in collected.targets)
        | frozenset(collected.scrapes["instance"].unique()),
        source.settle_seconds,
        problems=tuple(problems),
        gpus=collected.gpus.height,
    )


def _mended(answer: SourceAnswer, source: PrometheusSource) -> SourceAnswer:
    """An API that brought nothing, with what mends the first reason."""
    kind, _, reason = answer.problems[0].partition(": ")
    fixes = {
        "Unavailable": what_to_check(source.prometheus),
        "AuthFailed": "bearer_token_file, basic_auth or tenant of this source",
    }
    if (fix := fixes.get(kind)) is None:
        return answer
    return replace(answer, problems=(reason, *answer.problems[1:]), fix=fix)


def _timed(
    answer: SourceAnswer, collected: Collected, source: PrometheusSource, clock: Clock
) -> SourceAnswer:
    """With true scrape intervals, and the instances that are listed now or why they are unknown."""
    answer = replace(answer, intervals=_intervals(collected.scrapes))
    asker = asker_of(source)
    try:
        up = asker.instant(select(("up",), matchers(source.match)), clock.now())
    except SourceError as error:
        return replace(answer, problems=(*answer.problems, f"targets: {error.message}"))
    finally:
        asker.close()
    # an answer of which some is missing does not say who left
    listed = None if answer.problems else frozenset(one.get("instance", "") for one, _ in up)
    return replace(answer, listed=listed)


def _intervals(scrapes: pl.DataFrame) -> dict[str, float]:
    """Instance → seconds between two of its scrapes, to a tenth; those with one are left out."""
    at = pl.col("time").dt.epoch("us")
    each = scrapes.group_by("instance").agg(first=at.min(), last=at.max(), number=at.n_unique())
    every = (pl.col("last") - pl.col("first")) / 1e6 / (pl.col("number") - 1)
    return dict(each.filter(pl.col("number") > 1).select("instance", every.round(1)).iter_rows())


def source_checks(sources: Iterable[SourceAnswer]) -> Iterator[Check]:
    """One check per source, and one for each of its first problems; the GPUs of an API that brings
    nothing are not looked at.
    """
    dead = set()
    for source in sources:
        is_gpu = source.kind in ("dcgm", "nvml")
        brings = "GPU readings" if is_gpu else "scrapes"
        empty = not source.instances and not source.gpus
        lost: tuple[str, ...] = () if is_gpu else ("every rule",)
        problems = [problem[:_CHARACTERS] for problem in source.problems]
        if is_gpu and source.setting in dead:
            continue
        if problems and empty:
            dead.add(source.setting)
            status: Status = "WARNING" if is_gpu else "MISSING"
            what = f"no {brings}: {problems.pop(0)}"
            yield Check(status, source.name, what, lost, source.fix, setting=source.setting)
        elif empty and not is_gpu:
            what = "answers, but has no vLLM server with the labels of match"
            setting = (*source.setting, "match")
            yield Check("MISSING", source.name, what, lost, "match: {}", setting=setting)
        elif not problems:
            yield Check("ok", source.name, "answers" if empty else f"brings {brings}")
        twice = [problem for problem in problems if _TWICE in problem]
        if twice:
            more = f"; {len(twice) - 1} more such (--json)" if len(twice) > 1 else ""
            fix = "take one of the two scrapes or sources out"
            yield Check("WARNING", source.name, f"{twice[0]}{more}", fix=fix)
        rest = [problem for problem in problems if _TWICE not in problem]
        shown = rest[:_SHOWN_PROBLEMS]
        if len(rest) > len(shown):
            shown.append(f"{len(rest) - len(shown)} more (--json)")
        for problem in shown:
            yield Check("WARNING", source.name, f"not read: {problem}")


def departed(
    newest: Mapping[TargetKey, datetime], sources: Iterable[SourceAnswer], now: datetime
) -> dict[TargetKey, TargetCheck]:
    """Stale targets that their source no longer lists, while it lists others.

    This is a scale-down or lost service discovery, so it is a warning. Where a source lists none of
    its servers, they stay stale.
    """
    of = {instance: source for source in sources for instance in source.instances}
    checks: dict[TargetKey, TargetCheck] = {}
    for key, at in sorted(newest.items()):
        source = of.get(key.instance)
        if source is None or source.listed is None or key.instance in source.listed:
            continue
        age = (now - at).total_seconds()
        if source.listed & source.instances and source.is_stale(key, age):
            what = f"not listed by {source.name} for {age:,.0f} s"
            fix = "scaled down: nothing to do; else service discovery"
            checks[key] = TargetCheck(key, "WARNING", what, (), fix, kind="left", weight=age)
    return checks


def in_time(
    newest: Mapping[TargetKey, datetime], sources: Iterable[SourceAnswer], now: datetime
) -> Iterator[TargetCheck]:
    """Whether each target of a living source is still scraped, and often enough.

    ``newest``: target → time of its newest scrape.
    """
    of = {instance: source for source in sources for instance in source.instances}
    for key, at in sorted(newest.items()):
        source = of.get(key.instance)
        if source is not None and source.kind != "recording":
            yield _fresh(key, (now - at).total_seconds(), source)
            yield from _often(key, source)


def _fresh(key: TargetKey, age: float, source: SourceAnswer) -> TargetCheck:
    """Age of the newest scrape against how often there should be one."""
    every = source.every(key)
    if age < -_FUTURE_SECONDS:
        what = f"its newest scrape is {-age:,.0f} s in the future"
        lost = ("every rule: its minutes are not yet over",)
        fix = "set the clocks (NTP) of this machine and of the one that scrapes"
        return TargetCheck(key, "WRONG", what, lost, fix, kind="future", weight=-age)
    if not source.is_stale(key, age):
        often = f", one every {every:g} s" if every else ""
        return TargetCheck(key, "ok", f"newest scrape is fresh{often}", kind="fresh")
    ago = f"{age:.0f} s" if age < _MINUTES_FROM else duration(age)
    usual = f", though there is one every {every:g} s" if every else ""
    none, fix = "", "look at the scraper's targets page: it lists the server but no scrape arrives"
    if source.listed is not None and key.instance not in source.listed:
        none = f"; {source.name} lists none of its servers now"
        fix = "look at the scraper and its service discovery"
    what = f"no scrape for {ago}{usual}{none}"
    return TargetCheck(key, "MISSING", what, ("every rule",), fix, kind="stale", weight=age)


def _often(key: TargetKey, source: SourceAnswer) -> Iterator[TargetCheck]:
    """Whether there are scrapes enough for minutes and for shares of ten minutes."""
    every = source.every(key) or 0.0
    fix, setting = "scrape_interval: 15s of its job", source.setting
    if source.every_seconds is not None:
        fix, setting = "interval: 15s", ("interval",)
    if every > _BLIND_SECONDS:
        what = f"a scrape every {every:g} s: most minutes have no two of them, and no rates"
        yield TargetCheck(key, "MISSING", what, ("every rule",), fix, setting, "blind", every)
    elif every > _COARSE_SECONDS:
        what = f"a scrape every {every:g} s: shares of 10 min stand on {600 / every:.0f} scrapes"
        costs = ("the ten-minute shares are coarse: a limit that is full shortly is missed",)
        yield TargetCheck(key, "WARNING", what, costs, fix, setting, "coarse", every)
