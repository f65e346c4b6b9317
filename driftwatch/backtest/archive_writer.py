"""Computing evidence and keeping it: day after day, gone on with where it was interrupted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from driftwatch.backtest.archive import (
    MANIFEST,
    Archive,
    ArchivedDay,
    archived_days,
    days_of,
    file_of,
    put_down,
    read_manifest,
    write_frame,
)
from driftwatch.backtest.archive_identity import differing, identity_of, inputs_of, name_of
from driftwatch.backtest.archive_lock import locked
from driftwatch.backtest.archive_state import packed, unpacked
from driftwatch.backtest.day_writer import DayWriter
from driftwatch.clock import SystemClock
from driftwatch.collect.schema import Recording, Source
from driftwatch.detect.baselines import Baselines
from driftwatch.detect.reference import no_reference
from driftwatch.errors import DocumentError, NoVerdict, Unavailable
from driftwatch.notify.numbers import utc_text
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.state import State
from driftwatch.service.replay import DAY, Ticks, midnight
from driftwatch.store.store import Store

Report = Callable[[float, float], None]
_OF_COVERAGE = "coverage_missing_seconds"
_MOST_NAMES = 5  # of metrics in a note


def keep(
    sources: Sequence[Source],
    span: tuple[datetime, datetime],
    plan: Plan,
    folder: Path,
    *,
    baselines: Baselines | None = None,
    reference: pl.DataFrame | None = None,
    progress: Report | None = None,
    stride: timedelta | None = None,
) -> Archive:
    """Evidence of a span: what the folder has of it, and the rest computed and kept there.

    It begins with the UTC day that the span begins in, so that the same folder serves every span of
    the same days.

    Args:
        folder: of all kept evidence; each identity has a folder in it.
        progress: told how many seconds of how many are done.
        stride: how much is evaluated at once; None = by how many targets there are.

    Raises:
        NoVerdict: the sources hold no usable scrape of the span.
        Unavailable: a source stopped answering; the days before are kept.
        UsageError: the folder cannot be written.
    """
    rules, plan = plan.enabled, plan.without_rules()
    job = _Job(
        sources,
        (midnight(span[0]), span[1].replace(second=0, microsecond=0)),
        plan,
        baselines or Baselines(),
        no_reference() if reference is None else reference,
        stride,
    )
    if job.span[0] >= job.span[1]:
        raise NoVerdict(f"no whole minute lies before {utc_text(span[1])}")
    identity = identity_of(sources, job.span[0], plan, job.baselines, job.reference)
    here = folder / name_of(identity)
    notes = _others(folder, here, identity)
    days = archived_days(here)
    inputs = _inputs_there(here) if days else plan.inputs
    if inputs != plan.inputs:
        # one folder counts the loss of the same metrics throughout
        job = replace(job, plan=replace(plan, expected=inputs))
        identity = identity_of(sources, job.span[0], job.plan, job.baselines, job.reference)
        if any(_OF_COVERAGE in rule.columns for rule in rules):
            notes.append(_of_other_inputs(here, set(inputs) ^ set(plan.inputs)))
    if job.missing(days):
        with locked(here):
            days = archived_days(here)
            job.run(here, identity, days, progress)
    first, last = span[0].replace(second=0, microsecond=0), job.span[1]
    inside = [day for when, day in sorted(days.items()) if first.date() <= when <= last.date()]
    archive = Archive(here, (first, last), inside, tuple(notes))
    if not archive.has_data:
        raise _nothing(sources, (first, last), inside)
    return archive


@dataclass(frozen=True)
class _Job:
    """What is computed; days begin at midnight."""

    sources: Sequence[Source]
    span: tuple[datetime, datetime]
    plan: Plan
    baselines: Baselines
    reference: pl.DataFrame
    stride: timedelta | None

    def missing(self, days: Mapping[Any, ArchivedDay]) -> list[datetime]:
        """Midnights of the days that are not there as far as they are wanted."""
        return [day for day, until in days_of(*self.span) if not _reaches(days, day, until)]

    def run(
        self,
        folder: Path,
        identity: Mapping[str, Any],
        days: dict[Any, ArchivedDay],
        progress: Report | None,
    ) -> None:
        """Compute the days that are not there, each after the one before."""
        start, end = self.span
        wanted = list(days_of(start, end))
        missing = self.missing(days)
        if not missing:
            return
        first = min(missing)
        resumed = self._state_before(folder, first, days)
        if resumed is None:
            first, resumed = start, (self._fresh(), start)
        for day in [one for one in days if one >= first.date()]:
            del days[day]
        store = Store.in_memory()
        ticks = Ticks(self.sources, self.plan, store, start)
        ticks.state, now = resumed
        for day, until in wanted:
            if day < first:
                continue
            writer = DayWriter(folder, day)
            try:
                for now, outcome in ticks.over(now, until, self.stride):  # noqa: B020
                    writer.add(outcome)
                    if progress is not None:
                        progress((now - start).total_seconds(), (end - start).total_seconds())
                days[day.date()] = writer.close(until)
            except Unavailable as error:
                raise _lost(error, days) from error
            finally:
                writer.forget()
            if until == day + DAY:
                write_frame(file_of(folder, day.date(), "state"), packed(ticks.state, now))
                put_down(folder, identity, days)
                file_of(folder, (day - DAY).date(), "state").unlink(missing_ok=True)
        store.close()
        put_down(folder, identity, days)

    def _fresh(self) -> State:
        return State(
            collected_until={source.name: self.span[0] for source in self.sources},
            baselines=self.baselines,
            reference=self.reference,
        )

    def _state_before(
        self, folder: Path, day: datetime, days: Mapping[Any, ArchivedDay]
    ) -> tuple[State, datetime] | None:
        """The state at a midnight; None where nobody kept it."""
        path = file_of(folder, (day - DAY).date(), "state")
        if (day - DAY).date() not in days or not path.exists():
            return None
        try:
            return unpacked(pl.read_parquet(path), self.plan, self.baselines, self.reference)
        except (pl.exceptions.PolarsError, KeyError, ValueError):
            return None  # damaged: computed again from the beginning


def _reaches(days: Mapping[Any, ArchivedDay], day: datetime, until: datetime) -> bool:
    there = days.get(day.date())
    return there is not None and there.end >= until


def _others(folder: Path, here: Path, identity: Mapping[str, Any]) -> list[str]:
    """Why the newest evidence that is kept of the same sources is not used."""
    if (here / MANIFEST).exists() or not folder.is_dir():
        return []
    manifests = folder.glob(f"evidence-*/{MANIFEST}")
    for other in sorted(manifests, key=lambda path: path.stat().st_mtime, reverse=True):
        try:
            manifest = read_manifest(other.parent)
        except DocumentError:
            continue
        if manifest is None or manifest[0].get("sources") != identity["sources"]:
            continue
        what = ", ".join(differing(manifest[0], identity))
        return [f"evidence in {other.parent} differs in {what}: driftwatch computes it again"]
    return []


def _inputs_there(folder: Path) -> tuple[str, ...]:
    manifest = read_manifest(folder)
    return inputs_of(manifest[0]) if manifest is not None else ()


def _of_other_inputs(folder: Path, names: Collection[str]) -> str:
    first = sorted(names)[:_MOST_NAMES]
    more = f" and {len(names) - len(first)} more metrics" if len(names) > len(first) else ""
    return (
        f"rules on {_OF_COVERAGE} miss the metrics of the rules that {folder} was computed for; "
        f"these rules differ in {', '.join(first)}{more}; remove the folder to compute it again"
    )


def _lost(error: Unavailable, days: Mapping[Any, ArchivedDay]) -> Unavailable:
    """That a source stopped answering, and what is kept of it."""
    if not days:
        return error
    count = f"{len(days)} days are kept" if len(days) != 1 else "1 day is kept"
    return Unavailable(
        f"{error.message}; {count}",
        help_text=error.help_text or "the same command goes on with the first day that is not kept",
    )


def _nothing(
    sources: Sequence[Source], span: tuple[datetime, datetime], days: Sequence[ArchivedDay]
) -> NoVerdict:
    """That there is no usable scrape, and where there would be some."""
    reason = next((day.reason for day in days if day.reason), None)
    problem = next((day.problems[0].reason for day in days if day.problems), None)
    why = reason or problem or "there is no scrape at all"
    reaches = [one for source in sources if (one := _reach(source)) is not None]
    help_text = None
    if reaches:
        first, last = min(a for a, _ in reaches), max(b for _, b in reaches)
        help_text = f"scrapes reach from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"
    return NoVerdict(
        f"no usable scrape between {span[0]:%Y-%m-%d %H:%M} and {span[1]:%Y-%m-%d %H:%M} UTC: "
        f"{why}",
        help_text=help_text,
    )


def _reach(source: Source) -> tuple[datetime, datetime] | None:
    """From when to when a source has scrapes; None = of none, or nobody can say."""
    if isinstance(source, Recording):
        return source.span()
    look = getattr(source, "reach", None)
    return None if look is None else look(SystemClock().now())
