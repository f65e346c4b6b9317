"""Whether the scrapes are fresh, often enough, and of a clock that agrees with ours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import polars as pl

from driftwatch.doctor.checks import Check, Seen
from driftwatch.model import Target, TargetKey

_COARSE_SECONDS = 30.0  # 20 scrapes in the ten minutes of a share
_BLIND_SECONDS = 60.0  # a minute without two scrapes has no rates
_SKEW_SECONDS = 5.0
_WRONG_SKEW_SECONDS = 60.0
_FUTURE_SECONDS = 2.0  # a clock's rounding


@dataclass(frozen=True, slots=True)
class SourceSeen:
    """One source as it was met.

    Attributes:
        name: the source's.
        kind: prometheus, pages, dcgm, nvml or recording.
        setting: its place in the configuration; empty where there is none.
        instances: whom it brought.
        settle_seconds: how old a scrape is before the source has it.
        step_seconds: distance of the points asked for; None where it scrapes itself.
        every_seconds: how often it scrapes, where it does that itself.
        intervals: instance → true time between two scrapes, where the source can tell.
        clock_seconds: its clock ahead of ours (instance → seconds for pages); None = not known.
        asked_seconds: how long the questions of one tick took; None = not measured.
        budget_seconds: what they may take; None = no such bound.
        problems: what it could not read, in words.
        listed: instances that it lists now, well or not; None = it does not say.
        gpus: GPU readings it brought.
    """

    name: str
    kind: str
    setting: tuple[str | int, ...] = ()
    instances: frozenset[str] = frozenset()
    settle_seconds: float = 0.0
    step_seconds: float | None = None
    every_seconds: float | None = None
    intervals: Mapping[str, float] = field(default_factory=dict)
    clock_seconds: float | Mapping[str, float] | None = None
    asked_seconds: float | None = None
    budget_seconds: float | None = None
    problems: tuple[str, ...] = ()
    listed: frozenset[str] | None = None
    gpus: int = 0


def departed(
    newest: Mapping[TargetKey, datetime], sources: Iterable[SourceSeen], now: datetime
) -> dict[TargetKey, Seen]:
    """Stale targets whose source lists them no more, while it lists others that it brought.

    Nobody can tell a scale-down from lost service discovery here, so it is a warning. Where a
    source lists none of its servers, it is no scale-down that may pass: they stay stale.
    """
    of = {instance: source for source in sources for instance in source.instances}
    found: dict[TargetKey, Seen] = {}
    for key, at in sorted(newest.items()):
        source = of.get(key.instance)
        if source is None or source.listed is None or key.instance in source.listed:
            continue
        age = (now - at).total_seconds()
        if source.listed & source.instances and _is_stale(age, _spacing(key, source), source):
            found[key] = Seen(
                key,
                "WARNING",
                "left",
                f"not listed by {source.name} for {age:,.0f} s",
                (),
                "scaled down: nothing to do; else service discovery",
                age,
            )
    return found


def fresh(key: TargetKey, newest: datetime, source: SourceSeen, now: datetime) -> Iterator[Seen]:
    """Age of the newest scrape against how often there should be one."""
    true = _every(key, source)
    age = (now - newest).total_seconds()
    if age < -_FUTURE_SECONDS:
        yield Seen(
            key,
            "WRONG",
            "future",
            f"its newest scrape is {-age:,.0f} s in the future",
            ("every rule: its minutes are not yet over",),
            "set the clocks (NTP) of this machine and of the one that scrapes",
            -age,
        )
    elif _is_stale(age, _spacing(key, source), source):
        listed = source.listed is None or key.instance in source.listed
        usual = f", though there is one every {true:g} s" if true else ""
        yield Seen(
            key,
            "MISSING",
            "stale",
            f"no scrape for {age:,.0f} s{usual}"
            + ("" if listed else f"; {source.name} lists none of its servers now"),
            ("every rule",),
            "look at the scraper's targets page: it lists the server but no scrape arrives"
            if listed
            else "look at the scraper and its service discovery",
            age,
        )
    else:
        what = "newest scrape is fresh" + (f", one every {true:g} s" if true else "")
        yield Seen(key, "ok", what, what)


def often(key: TargetKey, source: SourceSeen) -> Iterator[Seen]:
    """Whether there are scrapes enough for minutes and for shares of ten minutes."""
    true, step = source.intervals.get(key.instance), source.step_seconds
    every = max((s for s in (_every(key, source), step) if s is not None), default=None)
    if every is not None and every > _BLIND_SECONDS:
        yield Seen(
            key,
            "MISSING",
            "blind",
            f"a scrape every {every:g} s: most minutes have no two of them, and no rates",
            ("every rule",),
            _often_fix(source),
            every,
            _often_setting(source),
        )
    elif every is not None and every > _COARSE_SECONDS:
        yield Seen(
            key,
            "WARNING",
            "coarse",
            f"a scrape every {every:g} s: shares of 10 min stand on {600 / every:.0f} scrapes",
            ("the ten-minute shares are coarse: a limit that binds shortly is not seen",),
            _often_fix(source),
            every,
            _often_setting(source),
        )
    if true is not None and step is not None and step > true * 1.05:
        yield Seen(
            key,
            "WARNING",
            f"step {step:g} of {true:g}",
            f"scraped every {true:g} s, asked for every {step:g} s: {1 - true / step:.0%} of its "
            "scrapes are not read",
            ("gauges and shares stand on fewer scrapes than there are",),
            f"step: {true:g}s",
            step,
            (*source.setting, "step"),
        )


def alike(sources: Sequence[SourceSeen], targets: Mapping[TargetKey, Target]) -> Iterator[Check]:
    """Servers of one pool that are scraped at different intervals."""
    of: dict[str, dict[float, list[str]]] = {}
    for source in sources:
        for key in targets:
            every = _every(key, source) if key.instance in source.instances else None
            if every is not None:
                seen = of.setdefault(targets[key].pool or "", {}).setdefault(every, [])
                seen.append(key.instance)
    for pool, intervals in sorted(of.items()):
        low, high = min(intervals), max(intervals)
        if high > low * 1.2:
            yield Check(
                "WARNING",
                pool,
                f"scraped at different intervals: every {low:g} s ({min(intervals[low])}) to every "
                f"{high:g} s ({min(intervals[high])})",
                ("its servers are judged on different numbers of scrapes",),
                "scrape all of a pool alike",
            )


def clocks(sources: Iterable[SourceSeen]) -> Iterator[Check]:
    """Other machines' clocks against ours."""
    for source in sources:
        said = source.clock_seconds
        if said is None or (isinstance(said, Mapping) and not said):
            continue
        if isinstance(said, Mapping):
            whose, ahead = max(said.items(), key=lambda item: (abs(item[1]), item[0]))
            off = sum(abs(seconds) > _SKEW_SECONDS for seconds in said.values())
            name = whose if len(said) == 1 else f"{off} of {len(said)} servers, at worst {whose}"
            costs = "start times and restarts are read wrong"
        else:
            ahead, name, costs = said, "its clock", "what is asked for is not what is there"
        if abs(ahead) <= _SKEW_SECONDS:
            yield Check("ok", source.name, "clocks agree within 5 s")
            continue
        way = "ahead of" if ahead > 0 else "behind"
        wrong = abs(ahead) > _WRONG_SKEW_SECONDS and not isinstance(said, Mapping)
        yield Check(
            "WRONG" if wrong else "WARNING",
            source.name,
            f"{name} is {abs(ahead):,.0f} s {way} this machine's",
            (costs,),
            "set the clocks (NTP)",
        )


def newest_times(scrapes: pl.DataFrame) -> dict[TargetKey, datetime]:
    """When each target was last scraped, well or not."""
    last = scrapes.group_by("instance", "engine").agg(pl.col("time").max())
    return {TargetKey(i, e): at for i, e, at in last.iter_rows()}


def _spacing(key: TargetKey, source: SourceSeen) -> float:
    """Seconds between two of its scrapes, guessed where nobody says."""
    return _every(key, source) or source.step_seconds or _BLIND_SECONDS


def _is_stale(age: float, every: float, source: SourceSeen) -> bool:
    return age > source.settle_seconds + 3 * every


def _every(key: TargetKey, source: SourceSeen) -> float | None:
    return source.intervals.get(key.instance, source.every_seconds)


def _often_fix(source: SourceSeen) -> str:
    if source.every_seconds is not None:
        return "interval: 15s"
    return "scrape_interval: 15s of its job, and step of the source"


def _often_setting(source: SourceSeen) -> tuple[str | int, ...]:
    return ("interval",) if source.every_seconds is not None else (*source.setting, "step")
