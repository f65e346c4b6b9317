"""Which targets there are now: what the sources list, and those of before that may only be away."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS, Collected
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.departures import NEVER, UNCONFIGURED
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.state import State

_KEY = list(KEY_COLUMNS)
# Labels that say which server stands behind a name.
_WHO = ("pod", "model_name")


@dataclass(frozen=True, slots=True)
class Sources:
    """What a tick knows of its sources besides what they brought.

    Attributes:
        names: of those that brought something, in the order of what they brought.
        known: names of all of them; empty = not told.
        fixed: names of those whose targets stand in the configuration and which bring a row of
            each whenever they are asked: pages. What they do not list was taken out by a person.
        late: name → why nothing came of it, for those that hold nobody up any more.
    """

    names: tuple[str, ...] = ()
    known: frozenset[str] = frozenset()
    fixed: frozenset[str] = frozenset()
    late: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Roster:
    """The targets of a tick.

    Attributes:
        targets: with their pools, in key order; the object of before where nothing changed.
        origins: target → name of the source that listed it last.
        left: those that their source answered not to know.
        gone: those that are no target any more → why.
        reborn: those behind whose name another server stands now: another pod or model.
        retired: retired ones that are no targets until a scrape of them comes.
        away: those of them that a source lists.
    """

    targets: Mapping[TargetKey, Target]
    origins: Mapping[TargetKey, str]
    left: frozenset[TargetKey] = frozenset()
    gone: Mapping[TargetKey, str] | None = None
    reborn: frozenset[TargetKey] = frozenset()
    retired: frozenset[TargetKey] = frozenset()
    away: Mapping[TargetKey, Target] = field(default_factory=dict)


def roster(
    state: State,
    collected: Sequence[Collected],
    sources: Sources,
    scrapes: pl.DataFrame,
    plan: Plan,
) -> Roster:
    """Who is there now.

    Args:
        state: from the tick before.
        collected: what the sources brought.
        sources: which sources those were, and what else is known of them.
        scrapes: every scrape known, those of ``collected`` included.
        plan: pools.
    """
    before, departures = state.targets, state.departures
    if not collected:
        return Roster(before, departures.origins, retired=departures.retired)
    listed: dict[TargetKey, Target] = {}
    origins = dict(departures.origins)
    answered: set[str] = set()
    for name, brought in zip(sources.names, collected, strict=True):
        if brought.silent is None:
            answered.add(name)
        listed.update(brought.targets)
        for key in brought.targets:
            origins[key] = name
    retired = set(departures.retired)
    if sources.known == set(sources.names):
        retired &= listed.keys()
    asleep = {key: listed.pop(key) for key in sorted(retired & listed.keys())}
    away = {key: target for key, target in before.items() if key not in listed}
    left, gone = _who_left(away, origins, answered, sources)
    gone |= dict.fromkeys(_never_scraped(left, scrapes), NEVER)
    kept = {key: target for key, target in away.items() if key not in gone}
    reborn = frozenset(
        key
        for key, target in listed.items()
        if (old := before.get(key)) is not None
        and old.labels is not target.labels
        and _is_another(old, target)
    )
    told = {
        key: _as_known(target, None if key in reborn else before.get(key))
        for key, target in listed.items()
    }
    targets = plan.assign(told | kept, before)
    for key in origins.keys() - targets.keys() - asleep.keys():
        del origins[key]
    return Roster(
        targets=targets,
        origins=origins,
        left=frozenset(left - gone.keys()),
        gone=gone,
        reborn=reborn,
        retired=frozenset(retired),
        away=asleep,
    )


def returning(scrapes: pl.DataFrame, away: Collection[TargetKey]) -> dict[TargetKey, datetime]:
    """Of the retired targets those that have a scrape, with the time of the first.

    Args:
        scrapes: scrape table; of retired targets only what came after.
        away: the retired ones.
    """
    if not away:
        return {}
    keys = pl.DataFrame([tuple(k) for k in away], schema=_KEY, orient="row")
    came = scrapes.join(keys, on=_KEY, how="semi").group_by(_KEY).agg(pl.col("time").min())
    return {TargetKey(i, e): at for i, e, at in came.select(*_KEY, "time").sort(_KEY).iter_rows()}


def _who_left(
    away: Collection[TargetKey],
    origins: Mapping[TargetKey, str],
    answered: Collection[str],
    sources: Sources,
) -> tuple[set[TargetKey], dict[TargetKey, str]]:
    """Of the targets that nobody lists: those that left, and those that were taken out."""
    left: set[TargetKey] = set()
    gone: dict[TargetKey, str] = {}
    for key in away:
        origin = origins.get(key)
        if origin is not None and sources.known and origin not in sources.known:
            gone[key] = UNCONFIGURED
        elif origin in answered:
            if origin in sources.fixed:
                gone[key] = UNCONFIGURED
            else:
                left.add(key)
    return left, gone


def _never_scraped(left: Collection[TargetKey], scrapes: pl.DataFrame) -> set[TargetKey]:
    """Those without any scrape, even a failed one: there is nothing that could be missed."""
    if not left:
        return set()
    keys = pl.DataFrame([tuple(k) for k in left], schema=_KEY, orient="row")
    known = scrapes.select(_KEY).join(keys, on=_KEY, how="semi").unique()
    return set(left) - {TargetKey(*row) for row in known.iter_rows()}


def _is_another(old: Target, new: Target) -> bool:
    """Another pod, or another model, stands behind the same name."""
    return any(
        old.labels.get(name) and new.labels.get(name) and old.labels[name] != new.labels[name]
        for name in _WHO
    )


def _as_known(target: Target, before: Target | None) -> Target:
    """The target with the pod and the model it had, where what was read now names none."""
    if before is None:
        return target
    missing = {
        name: before.labels[name]
        for name in _WHO
        if not target.labels.get(name) and before.labels.get(name)
    }
    return replace(target, labels={**target.labels, **missing}) if missing else target
