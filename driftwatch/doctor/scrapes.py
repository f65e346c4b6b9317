"""What the sources answer: whether scrapes are fresh and often enough, a tick's time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from driftwatch.doctor.checks import Check, Status, TargetCheck
from driftwatch.model import TargetKey
from driftwatch.numbers import duration

_COARSE_SECONDS = 30.0  # 20 scrapes in the ten minutes of a share
_USUAL_SECONDS = 15.0  # between two scrapes of a target whose interval is not known
_BLIND_SECONDS = 60.0  # a minute without two scrapes has no rates
_MINUTES_FROM = 600.0  # seconds; an age below it is told in seconds
_FUTURE_SECONDS = 2.0  # a clock's rounding
_SHOWN_PROBLEMS = 3  # of a source; the rest is counted
_CHARACTERS = 300
# of a process that is read by another way: nothing of it is missing
_TWICE = "read once"


@dataclass(frozen=True, slots=True)
class SourceAnswer:
    """How one source answered."""

    name: str  # the source's
    kind: str  # prometheus, pages, dcgm, nvml or recording
    setting: tuple[str | int, ...] = ()  # its place in the configuration; empty where there is none
    instances: frozenset[str] = frozenset()  # whom it brought
    settle_seconds: float = 0.0  # how old a scrape is before the source has it
    every_seconds: float | None = None  # how often it scrapes, where it does that itself
    # instance → true time between two scrapes, where the source can tell
    intervals: Mapping[str, float] = field(default_factory=dict)
    # how long the questions of one tick took; None = not measured
    asked_seconds: float | None = None
    budget_seconds: float | None = None  # what they may take; None = no such bound
    problems: tuple[str, ...] = ()  # what it could not read, in words
    # instances that it lists now, well or not; None = it does not say
    listed: frozenset[str] | None = None
    gpus: int = 0  # GPU readings it brought

    def every(self, key: TargetKey) -> float | None:
        """Seconds between two scrapes of a target; None = not known."""
        return self.intervals.get(key.instance, self.every_seconds)

    def is_stale(self, key: TargetKey, age: float) -> bool:
        """Whether there should have been another scrape by now."""
        usual = _USUAL_SECONDS if self.kind == "prometheus" else _BLIND_SECONDS
        spacing = self.every(key) or usual
        return age > self.settle_seconds + 3 * spacing


def answers(sources: Iterable[SourceAnswer], interval_seconds: float) -> Iterator[Check]:
    """One check per source, one for each of its first problems, one for the time a tick takes."""
    for source in sources:
        is_gpu = source.kind in ("dcgm", "nvml")
        brings = "GPU readings" if is_gpu else "scrapes"
        empty = not source.instances and not source.gpus
        problems = source.problems
        if problems and empty:
            status: Status = "WARNING" if is_gpu else "MISSING"
            what = f"no {brings}: {problems[0][:_CHARACTERS]}"
            disables = () if is_gpu else ("every rule",)
            yield Check(status, source.name, what, disables, setting=source.setting)
            problems = problems[1:]
        elif empty and not is_gpu:
            yield Check(
                "MISSING",
                source.name,
                "answers, but has no vLLM server with the labels of match",
                ("every rule",),
                "match: {}",
                setting=(*source.setting, "match"),
            )
            problems = ()
        elif not problems:
            yield Check("ok", source.name, "answers" if empty else f"brings {brings}")
        twice = [problem for problem in problems if _TWICE in problem]
        if twice:
            more = f"; {len(twice) - 1} more such (--json)" if len(twice) > 1 else ""
            fix = "take one of the two scrapes or sources out"
            yield Check("WARNING", source.name, f"{twice[0][:_CHARACTERS]}{more}", (), fix)
        rest = [problem for problem in problems if _TWICE not in problem]
        for problem in rest[:_SHOWN_PROBLEMS]:
            yield Check("WARNING", source.name, f"not read: {problem[:_CHARACTERS]}")
        if len(rest) > _SHOWN_PROBLEMS:
            more = f"not read: {len(rest) - _SHOWN_PROBLEMS} more (--json)"
            yield Check("WARNING", source.name, more)
        if source.asked_seconds is not None:
            yield _pace(source, source.asked_seconds, interval_seconds)


def _pace(source: SourceAnswer, seconds: float, interval_seconds: float) -> Check:
    share = seconds / interval_seconds
    what = f"the queries of a tick took {seconds:.2f} s of the interval of {interval_seconds:g} s"
    if source.budget_seconds is not None:
        what += f", budget {source.budget_seconds:g} s"
    if share <= 0.5:
        return Check("ok", source.name, what)
    return Check(
        "WRONG" if share > 1 else "WARNING",
        source.name,
        what,
        ("minutes are evaluated late" if share > 1 else "little room for a slow answer",),
        f"interval: {max(30, 2 * round(seconds + 1)):d}s, or fewer servers by match",
        setting=("interval",),
    )


def departed(
    newest: Mapping[TargetKey, datetime], sources: Iterable[SourceAnswer], now: datetime
) -> dict[TargetKey, TargetCheck]:
    """Stale targets whose source lists them no more, while it lists others that it brought.

    Nobody can tell a scale-down from lost service discovery here, so it is a warning. Where a
    source lists none of its servers, it is no scale-down that may pass: they stay stale.
    """
    of = {instance: source for source in sources for instance in source.instances}
    checks: dict[TargetKey, TargetCheck] = {}
    for key, at in sorted(newest.items()):
        source = of.get(key.instance)
        if source is None or source.listed is None or key.instance in source.listed:
            continue
        age = (now - at).total_seconds()
        if source.listed & source.instances and source.is_stale(key, age):
            checks[key] = TargetCheck(
                key,
                "WARNING",
                f"not listed by {source.name} for {age:,.0f} s",
                fix="scaled down: nothing to do; else service discovery",
                kind="left",
                weight=age,
            )
    return checks


def fresh(key: TargetKey, newest: datetime, source: SourceAnswer, now: datetime) -> TargetCheck:
    """Age of the newest scrape against how often there should be one."""
    every = source.every(key)
    age = (now - newest).total_seconds()
    ago = f"{age:.0f} s" if age < _MINUTES_FROM else duration(age)
    if age < -_FUTURE_SECONDS:
        return TargetCheck(
            key,
            "WRONG",
            f"its newest scrape is {-age:,.0f} s in the future",
            ("every rule: its minutes are not yet over",),
            "set the clocks (NTP) of this machine and of the one that scrapes",
            kind="future",
            weight=-age,
        )
    if source.is_stale(key, age):
        listed = source.listed is None or key.instance in source.listed
        usual = f", though there is one every {every:g} s" if every else ""
        return TargetCheck(
            key,
            "MISSING",
            f"no scrape for {ago}{usual}"
            + ("" if listed else f"; {source.name} lists none of its servers now"),
            ("every rule",),
            "look at the scraper's targets page: it lists the server but no scrape arrives"
            if listed
            else "look at the scraper and its service discovery",
            kind="stale",
            weight=age,
        )
    return TargetCheck(
        key, "ok", "newest scrape is fresh" + (f", one every {every:g} s" if every else "")
    )


def often(key: TargetKey, source: SourceAnswer) -> Iterator[TargetCheck]:
    """Whether there are scrapes enough for minutes and for shares of ten minutes."""
    every = source.every(key) or 0.0
    fix, setting = "scrape_interval: 15s of its job", source.setting
    if source.every_seconds is not None:
        fix, setting = "interval: 15s", ("interval",)
    if every > _BLIND_SECONDS:
        what = f"a scrape every {every:g} s: most minutes have no two of them, and no rates"
        yield TargetCheck(
            key, "MISSING", what, ("every rule",), fix, setting, kind="blind", weight=every
        )
    elif every > _COARSE_SECONDS:
        what = f"a scrape every {every:g} s: shares of 10 min stand on {600 / every:.0f} scrapes"
        costs = ("the ten-minute shares are coarse: a limit that is full shortly is not seen",)
        yield TargetCheck(key, "WARNING", what, costs, fix, setting, kind="coarse", weight=every)
