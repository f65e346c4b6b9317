"""Every source of a configuration read once, with how it answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

import polars as pl

from driftwatch.clock import Clock
from driftwatch.collect.dcgm.prometheus import DcgmPrometheusSource as GpusOfApi
from driftwatch.collect.doubles import read_once
from driftwatch.collect.gpus import empty_gpus
from driftwatch.collect.prometheus.names import scraped
from driftwatch.collect.prometheus.source import PrometheusSource as ServersOfApi
from driftwatch.collect.schema import Collected, Source, SourceProblem, empty_scrapes
from driftwatch.doctor.scrapes import SourceAnswer
from driftwatch.errors import SourceError
from driftwatch.model import Target, TargetKey
from driftwatch.service.configuration import sources_of
from driftwatch.service.probes import asker_of
from driftwatch.settings import (
    DcgmSource,
    NvmlSource,
    PagesSource,
    PrometheusSource,
    RecordingSource,
    Settings,
    SourceSettings,
)

_BACK = timedelta(minutes=5)
_WHERE_CHARACTERS = 100
_KINDS: Mapping[type, str] = {
    PrometheusSource: "prometheus",
    PagesSource: "pages",
    RecordingSource: "recording",
    DcgmSource: "dcgm",
    NvmlSource: "nvml",
}


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
    """Ask every source of a configuration for its last five minutes.

    ``settings``: whose sources; ``clock``: ours; ``progress``: told how many sources of how many
    are done.

    Raises ConfigError: a secret file cannot be read; UsageError: a source that cannot be, or none.
    """
    for source in sources_of(settings, clock):  # together: two servers of one name are an error
        source.close()
    answers = Answers()
    brought: list[Collected] = []
    for number, setting in enumerate(settings.sources):
        if progress is not None:
            progress(number, len(settings.sources))
        for source in sources_of(settings.model_copy(update={"sources": (setting,)}), clock):
            try:
                answer, collected = _answer_of(source, settings, clock)
            finally:
                source.close()
            brought.append(collected)
            answer = replace(answer, setting=("sources", number))
            answers.sources.append(_named(answer, setting, number, settings, clock))
    names = [answer.name for answer in answers.sources]
    once = read_once(brought, names, {}, {}, empty_scrapes())
    for number, (before, collected) in enumerate(zip(brought, once, strict=True)):
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


def _answer_of(source: Source, settings: Settings, clock: Clock) -> tuple[SourceAnswer, Collected]:
    """One source asked for five minutes, then for what a tick asks."""
    span = getattr(source, "span", None)
    until = clock.now()
    began = time.monotonic()
    collected = source.collect(*(span() if span is not None else (until - _BACK, until)))
    seconds: float | None = time.monotonic() - began
    if isinstance(source, ServersOfApi | GpusOfApi):
        began = time.monotonic()
        source.collect(until - timedelta(seconds=settings.interval), until)
        seconds = time.monotonic() - began
    elif span is not None:
        seconds = None  # a file is not asked again and again
    answer = SourceAnswer(
        source.name,
        "dcgm" if isinstance(source, GpusOfApi) else "",
        instances=frozenset(key.instance for key in collected.targets)
        | frozenset(collected.scrapes["instance"].unique()),
        settle_seconds=source.settle_seconds,
        asked_seconds=seconds,
        problems=tuple(_in_words(problem, source.name) for problem in collected.problems),
        gpus=collected.gpus.height,
    )
    return answer, collected


def _in_words(problem: SourceProblem, source: str) -> str:
    """The reason first: where may be a long query."""
    if problem.where == source:
        return problem.reason
    where = problem.where
    cut = where if len(where) <= _WHERE_CHARACTERS else f"{where[:_WHERE_CHARACTERS]}…"
    return f"{problem.reason} ({cut})"


def _named(
    answer: SourceAnswer, source: SourceSettings, number: int, settings: Settings, clock: Clock
) -> SourceAnswer:
    """With its own name, and what can be known of how often it is scraped."""
    name = f"{_KINDS[type(source)]} {number}"
    if isinstance(source, PrometheusSource):
        answer = replace(answer, budget_seconds=source.budget)
        if answer.kind == "dcgm":
            return answer
        answer = replace(answer, kind="prometheus")
        intervals, listed, problem = _intervals(source, clock)
        problems = answer.problems if problem is None else (*answer.problems, problem)
        if problems:
            listed = None  # an answer of which some is missing does not say who left
        return replace(answer, intervals=intervals, problems=problems, listed=listed)
    if isinstance(source, PagesSource):
        return replace(answer, name=name, kind="pages", every_seconds=settings.interval)
    return replace(answer, name=name, kind=_KINDS[type(source)])


def _intervals(
    source: PrometheusSource, clock: Clock
) -> tuple[dict[str, float], frozenset[str] | None, str | None]:
    """Instance → true scrape interval, the instances listed now, and why they are not known."""
    asker = asker_of(source)
    try:
        targets = scraped(asker, source.match, clock.now())
    except SourceError as error:
        return {}, None, f"scrape intervals: {error.message}"
    finally:
        asker.close()
    intervals = {
        target.labels["instance"]: target.interval_seconds
        for target in targets
        if target.interval_seconds is not None and target.labels.get("instance")
    }
    listed = frozenset(target.labels.get("instance", "") for target in targets)
    return intervals, listed, None
