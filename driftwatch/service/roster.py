"""Which targets there are now: what the sources list, and those of before that may only be away."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS, Collected
from driftwatch.model import Target, TargetKey
from driftwatch.service.departures import NEVER, UNCONFIGURED
from driftwatch.service.plan import Plan
from driftwatch.service.state import State

_KEY = list(KEY_COLUMNS)


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
        retired: retired ones that a source lists nevertheless.
    """

    targets: Mapping[TargetKey, Target]
    origins: Mapping[TargetKey, str]
    left: frozenset[TargetKey] = frozenset()
    gone: Mapping[TargetKey, str] | None = None
    reborn: frozenset[TargetKey] = frozenset()
    retired: frozenset[TargetKey] = frozenset()


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
    retired = _still_retired(departures.retired, collected)
    if sources.known == set(sources.names):
        retired &= listed.keys()
    for key in retired:
        listed.pop(key, None)
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
        key: _with_model(target, None if key in reborn else before.get(key))
        for key, target in listed.items()
    }
    targets = plan.assign(told | kept, before)
    for key in origins.keys() - targets.keys():
        del origins[key]
    return Roster(targets, origins, frozenset(left - gone.keys()), gone, reborn, frozenset(retired))


def _still_retired(
    retired: Collection[TargetKey], collected: Sequence[Collected]
) -> set[TargetKey]:
    """Retired targets of which no scrape came."""
    if not retired:
        return set()
    keys = pl.DataFrame([tuple(k) for k in retired], schema=_KEY, orient="row")
    came = {
        TargetKey(*row)
        for c in collected
        for row in c.scrapes.select(_KEY).join(keys, on=_KEY, how="semi").unique().iter_rows()
    }
    return set(retired) - came


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
        for name in ("pod", "model_name")
    )


def _with_model(target: Target, before: Target | None) -> Target:
    """The target with the model it had, where a page that cannot be read names none."""
    if before is None or "model_name" in target.labels or "model_name" not in before.labels:
        return target
    return replace(target, labels={**target.labels, "model_name": before.labels["model_name"]})
