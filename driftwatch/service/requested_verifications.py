"""Verifications that a person asks for: of a recording, of two named stretches, of two servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby

import polars as pl

from driftwatch.collect.schema import Source
from driftwatch.detect.baselines import Baselines
from driftwatch.errors import NoVerdict
from driftwatch.model import Fingerprint, Incident, Slo, Target, TargetKey
from driftwatch.pipeline.explain import Window
from driftwatch.pipeline.minutes import MinutesInMemory, PastMinutes
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.replay import replay
from driftwatch.pipeline.stored_state import advice_rows
from driftwatch.service.stored_verifications import answers_for, paged_for, surroundings
from driftwatch.service.verifications import PastAdvice, VerificationState, step, with_peaks
from driftwatch.signals.minutes import MINUTE_SCHEMA
from driftwatch.store.advice import AdviceRow
from driftwatch.store.minute_columns import STORED_SCHEMA, stored_rows
from driftwatch.verify.changes import changed, running, verification_id
from driftwatch.verify.verdict import (
    Stretch,
    minutes_of_change,
    minutes_of_stretches,
    verified,
)
from driftwatch.verify.verification import Change, Verification

# Two servers are compared over a day at most, as a change looks back a day.
AGAINST = timedelta(hours=24)


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """What a recording holds."""

    # :data:`driftwatch.store.minute_columns.STORED_SCHEMA`, every minute of every target
    rows: pl.DataFrame
    targets: Mapping[TargetKey, Target]
    verifications: tuple[Verification, ...] = ()

    @property
    def past(self) -> PastMinutes:
        """Its minutes."""
        return MinutesInMemory(self.rows.select(*MINUTE_SCHEMA))


def recorded(
    sources: Sequence[Source],
    span: tuple[datetime, datetime],
    plan: Plan,
    *,
    advise: bool = True,
    baseline: Window | None = None,
    baselines: Baselines | None = None,
    progress: Callable[[datetime], None] | None = None,
) -> Recorded:
    """A recording through the whole pipeline, with the verifications of the changes in it."""
    if not advise:
        plan = replace(plan, rules=())
    frames, peaks = list[pl.DataFrame](), list[pl.DataFrame]()
    labelled = list[Mapping[TargetKey, Target]]()
    advices, incidents = list[AdviceRow](), list[Incident]()
    targets: dict[TargetKey, Target] = {}
    outcomes = replay(
        sources, span, plan, baseline=baseline, baselines=baselines, progress=progress
    )
    for outcome in outcomes:
        frames.append(stored_rows(outcome.rows))
        peaks.append(with_peaks(frames[-1], outcome.scrapes))
        targets |= outcome.targets
        labelled.append(dict(targets))
        advices += advice_rows(outcome.advices)
        incidents += [t.incident for t in outcome.transitions if t.event == "firing"]
    rows = pl.concat([pl.DataFrame(schema=STORED_SCHEMA), *frames])
    there = Recorded(rows, targets)
    if not advise or rows.is_empty():
        return there

    def advised(key: TargetKey, pool: str, since: datetime, until: datetime) -> list[PastAdvice]:
        fitting = [one for one in advices if since <= one.at < until]
        return answers_for(fitting, key, pool) or paged_for(incidents, key, pool, since, until)

    around = surroundings(plan, targets, there.past, advised)
    state, fitting = VerificationState(), dict[str, Verification]()
    for labels, stretch in _alike(labelled, peaks):
        # a release that only labels tell is what they said in those minutes
        state, new = step(state, stretch, replace(around, targets=labels))
        fitting |= {one.id: one for one in new}
    for key, opened in state.opened.items():
        one = opened.verification
        target = targets[key]
        fitting[one.id] = asked_now(one, there.past, span[1], around.slo_of(target))
    return replace(there, verifications=tuple(fitting.values()))


def _alike(
    labelled: Sequence[Mapping[TargetKey, Target]], frames: Sequence[pl.DataFrame]
) -> Iterator[tuple[Mapping[TargetKey, Target], pl.DataFrame]]:
    """Neighbouring ticks together in which every target has the same labels."""
    for labels, ticks in groupby(zip(labelled, frames, strict=True), key=lambda one: one[0]):
        yield labels, pl.concat([frame for _, frame in ticks], how="diagonal")


def asked_now(
    opened: Verification, past: PastMinutes, at: datetime, slo: Slo | None
) -> Verification:
    """An open verification, judged by all that there is now.

    Args:
        slo: latency targets; None = none are known.
    """
    key = TargetKey(opened.instance, opened.engine)
    # far enough back that the stretch before can be cut at an earlier change
    minutes = past.minutes(key, opened.change.at - AGAINST, at)
    before, after = minutes_of_change(minutes, opened.change.at, at)
    return verified(opened, before, after, at, slo=slo)


def of_stretches(
    target: Target,
    past: PastMinutes,
    before: Window,
    after: Window,
    slo: Slo | None,
    *,
    rows: pl.DataFrame | None = None,
) -> Verification:
    """Two named stretches of one target.

    Args:
        slo: latency targets; None = none are known.
        rows: stored rows of it, to say what changed; None = that is not told.

    Raises:
        NoVerdict: nothing is known of one of them.
    """
    minutes = [past.minutes(target.key, one.start, one.end) for one in (before, after)]
    for window, frame in zip((before, after), minutes, strict=True):
        _something(target.key, frame, window)
    change = _between(minutes[0], minutes[1], rows) or Change("knobs", after.start, {})
    return verified(
        _opened(target, change, after.start),
        *minutes_of_stretches(
            minutes[0],
            minutes[1],
            Stretch(before.start, before.end),
            Stretch(after.start, after.end),
        ),
        after.end,
        slo=slo,
    )


def of_servers(
    target: Target,
    other: Target,
    past: PastMinutes,
    window: Window,
    slo: Slo | None,
    *,
    rows: pl.DataFrame | None = None,
) -> Verification:
    """Two servers in the same stretch: the other one is "before", the target "after".

    Args:
        slo: latency targets; None = none are known.
        rows: stored rows of both, to say what differs; None = that is not told.

    Raises:
        NoVerdict: nothing is known of one of them.
    """
    minutes = [past.minutes(one.key, window.start, window.end) for one in (other, target)]
    for one, frame in zip((other, target), minutes, strict=True):
        _something(one.key, frame, window)
    difference = _between(minutes[0], minutes[1], rows)
    change = Change("A/B", window.end, {} if difference is None else difference.what)
    stretch = Stretch(window.start, window.end)
    return verified(
        _opened(target, change, window.end, other.key.text),
        *minutes_of_stretches(minutes[0], minutes[1], stretch, stretch),
        window.end,
        slo=slo,
    )


def _opened(
    target: Target, change: Change, at: datetime, against: str | None = None
) -> Verification:
    return Verification(
        id=verification_id(target.key, change, against),
        instance=target.key.instance,
        engine=target.key.engine,
        pool=target.pool or "default",
        change=change,
        opened_at=at,
        against=against,
    )


def _something(key: TargetKey, minutes: pl.DataFrame, window: Window) -> None:
    if minutes.is_empty() or not (minutes["scrapes"] > 0).any():
        raise NoVerdict(
            f"{key.text}: no minute with a usable scrape from "
            f"{window.start:%Y-%m-%d %H:%M} to {window.end:%Y-%m-%d %H:%M} UTC"
        )


def _between(before: pl.DataFrame, after: pl.DataFrame, rows: pl.DataFrame | None) -> Change | None:
    """What ran differently, as far as the minutes of both stretches tell."""
    at = after["end"][0]
    one, other = (_last(frame, rows) for frame in (before, after))
    most = after["running_requests"].max()
    return changed(
        running(one, Fingerprint()),
        running(other, Fingerprint()),
        at,
        float(most) if isinstance(most, float) else None,
    )


def _last(frame: pl.DataFrame, rows: pl.DataFrame | None) -> dict[str, object]:
    """The last minute that was seen, with its ``cache_config`` where rows have it."""
    scraped = frame.filter(pl.col("scrapes") > 0).tail(1)
    newest = (
        scraped
        if rows is None
        else scraped.join(
            rows.select("instance", "engine", "end", "cache_config"),
            on=["instance", "engine", "end"],
            how="left",
        )
    )
    return newest.row(0, named=True)
