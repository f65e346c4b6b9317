"""The targets of a tick: listed, missing and departed ones. Pure.

A listed target joins with its first scrape, even a failed one. If its source scrapes other targets
in a minute but not this one, the source no longer lists it. After 15 such minutes the target is
*retired*; its next scrape lets it join again. A listed target that does not answer is *lost*: its
scrapes fail, and ``CoverageLost`` opens a ticket.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from driftwatch.collect.pages import PagesSource
from driftwatch.collect.schema import KEY, TIME, Collected, Source, keys_frame
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.state import State

_MINUTE = timedelta(minutes=1)
RETIRED_AFTER = timedelta(minutes=15)
NOT_LISTED = f"the server is gone (not listed for {RETIRED_AFTER // _MINUTE} min)"
UNCONFIGURED = "the server is gone (no longer in the configuration)"
# Labels that identify the server behind an instance.
_SERVER_LABELS = ("pod", "model_name")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TickInput:
    """The sources' answers for a tick."""

    # source name → answer, in the order of the sources; a source that raised has its problem
    answers: Mapping[str, Collected]
    complete: datetime  # all scrapes before it are collected, except from late sources
    # source name → the time up to which it has answered
    collected_until: Mapping[str, datetime] = field(default_factory=dict)
    configured: frozenset[str] = frozenset()  # names of all sources; empty = unknown
    # names of sources of kind pages: targets are configured, and each scrape gives a row
    pages: frozenset[str] = frozenset()
    # name of a late source, which no longer delays the others → why it did not answer
    late: Mapping[str, str] = field(default_factory=dict)
    # name → duration of its answer
    seconds: Mapping[str, float] = field(default_factory=dict)
    failed: tuple[str, ...] = ()  # names of sources that raised or know nothing now
    incomplete: str | None = None  # why a source's targets are unknown
    # earlier minutes get no verdict; None = six hours back
    since: datetime | None = None
    # targets that their source no longer lists
    not_listed: frozenset[TargetKey] = frozenset()

    @classmethod
    def of(
        cls,
        sources: Sequence[Source],
        answers: Mapping[str, Collected],
        complete: datetime,
        collected_until: Mapping[str, datetime],
        **more: Any,
    ) -> TickInput:
        """The input from some of the configured sources' answers; ``more``: other fields."""
        configured = frozenset(source.name for source in sources)
        pages = frozenset(one.name for one in sources if isinstance(one, PagesSource))
        return cls(answers, complete, collected_until, configured, pages, **more)

    @property
    def silent(self) -> frozenset[str]:
        """Names of sources whose answer does not list targets."""
        return frozenset(name for name, one in self.answers.items() if one.silent is not None)


@dataclass(frozen=True, slots=True)
class Roster:
    """The targets of a tick."""

    # with pools, in key order; the previous mapping if nothing changed
    targets: Mapping[TargetKey, Target]
    waiting: Mapping[TargetKey, Target]  # listed, not joined yet
    origins: Mapping[TargetKey, str]  # target → name of the source that listed it last
    not_listed: frozenset[TargetKey] = frozenset()  # missing in their source's answer
    # former targets → why
    departed: Mapping[TargetKey, str] = field(default_factory=dict)
    # keys that now belong to another pod or model
    reborn: frozenset[TargetKey] = frozenset()


def roster(state: State, given: TickInput, plan: Plan) -> Roster:
    """The current targets: those that the sources list, and earlier ones that are missing.

    Args:
        state: of the tick before.
    """
    before = state.targets
    if not given.answers:
        return Roster(before, {}, state.origins)
    listed: dict[TargetKey, Target] = {}
    origins = dict(state.origins)
    for name, one in given.answers.items():
        listed.update(one.targets)
        origins.update(dict.fromkeys(one.targets, name))
    answering = given.answers.keys() - given.silent
    missing = {key: target for key, target in before.items() if key not in listed}
    not_listed = {key for key in missing if origins.get(key) in answering}
    departed: dict[TargetKey, str] = {}
    for key in missing:
        origin = origins.get(key)
        # departed if every source has answered and none lists it
        none_lists = given.configured == answering and origin not in given.configured
        if origin is not None and (none_lists or (key in not_listed and origin in given.pages)):
            departed[key] = UNCONFIGURED
    reborn = frozenset(k for k, t in listed.items() if k in before and _is_another(before[k], t))
    present = {
        key: target if key in reborn else _with_earlier_labels(target, before.get(key))
        for key, target in listed.items()
        if key in before
    }
    staying = {key: target for key, target in missing.items() if key not in departed}
    pools_changed = state.frames is not None and not plan.has_pools_of(state.frames.plan)
    targets = plan.assign(present | staying, None if pools_changed else before)
    return Roster(
        targets=targets,
        waiting={key: target for key, target in listed.items() if key not in before},
        origins={k: name for k, name in origins.items() if k in targets or k in listed},
        not_listed=frozenset(not_listed - departed.keys()),
        departed=departed,
        reborn=reborn,
    )


def first_scrapes(scrapes: pl.DataFrame, keys: Collection[TargetKey]) -> dict[TargetKey, datetime]:
    """Target → time of its first scrape; targets without one are left out."""
    if not keys:
        return {}
    theirs = scrapes.join(keys_frame(keys), on=KEY, how="semi").group_by(KEY).agg(pl.min("time"))
    return {TargetKey(i, e): at for i, e, at in theirs.sort(KEY).iter_rows()}


def _is_another(old: Target, new: Target) -> bool:
    if old.labels is new.labels:
        return False
    both = [(old.labels.get(name), new.labels.get(name)) for name in _SERVER_LABELS]
    return any(one and other and one != other for one, other in both)


def _with_earlier_labels(target: Target, before: Target | None) -> Target:
    """The target; pod and model stay if the source no longer names them."""
    if before is None:
        return target
    missing = {
        name: before.labels[name]
        for name in _SERVER_LABELS
        if not target.labels.get(name) and before.labels.get(name)
    }
    return replace(target, labels={**target.labels, **missing}) if missing else target


def with_unlisted(
    rows: pl.DataFrame, scrapes: pl.DataFrame, state: State, given: TickInput
) -> pl.DataFrame:
    """Minute rows with ``looks`` 0 where the source answered without the target.

    NULL stays where no source answered. A minute without scrapes because its source is late or
    silent counts as one failed scrape. ``scrapes``: of the same minutes.
    """
    origin = _text_frame([(*key, name) for key, name in state.origins.items()], *KEY, "source")
    starts = scrapes.select(*KEY, start=pl.col("time").dt.truncate("1m")).join(origin, on=KEY)
    answered = starts.select("source", "start").unique()
    late = _text_frame(list(given.late.items()), "source", "late_why").with_columns(
        # all minutes of a source that never answered are late
        late_from=pl.Series([state.collected_until.get(n, _EPOCH) for n in given.late], dtype=TIME)
    )
    joined = rows.with_columns(start=(pl.col("end") - _MINUTE).cast(TIME))
    for beside, on in (
        (origin, KEY),
        (answered.with_columns(answered=pl.lit(True)), ["source", "start"]),
        (late, ["source"]),
        (keys_frame(given.not_listed).with_columns(answered_without=pl.lit(True)), KEY),
    ):
        joined = joined.join(beside, on=on, how="left", maintain_order="left")
    unscraped = pl.col("looks").is_null()
    is_late = unscraped & (pl.col("start") + _MINUTE / 2 >= pl.col("late_from")).fill_null(False)
    was_asked = (pl.col("answered") | pl.col("answered_without")).fill_null(False)
    missing = unscraped & was_asked & ~pl.col("source").is_in(sorted(given.pages))
    is_silent = pl.col("source").is_in(sorted(given.silent))
    looks = pl.when(is_late | (missing & is_silent)).then(1.0).when(missing).then(0.0)
    why = pl.when(is_late).then("late_why").when(missing).then("not scraped by " + pl.col("source"))
    return joined.with_columns(
        looks=looks.otherwise("looks"), failure=why.otherwise("failure")
    ).select(rows.columns)


def retirements(rows: pl.DataFrame) -> tuple[datetime | None, dict[TargetKey, str]]:
    """End of the first minute that retires targets, and these targets → why.

    ``rows``: of the minutes, with ``unlisted_minutes``.
    """
    going = rows.filter(pl.col("unlisted_minutes") >= RETIRED_AFTER / _MINUTE)
    first = going["end"].min()
    if not isinstance(first, datetime):
        return None, {}
    leaving = going.filter(pl.col("end") == first).select(KEY).sort(KEY)
    return first, {TargetKey(*key): NOT_LISTED for key in leaving.iter_rows()}


def _text_frame(rows: Sequence[tuple[str, ...]], *columns: str) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String), orient="row")
