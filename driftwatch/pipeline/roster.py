"""The targets of a tick: those that the sources list, and earlier ones that are missing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import polars as pl

from driftwatch.collect.pages.source import PagesSource
from driftwatch.collect.schema import KEY_COLUMNS, Collected, Source
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.departures import Departures, no_looks
from driftwatch.pipeline.plan import Plan

_KEY = list(KEY_COLUMNS)
NEVER = "the server is gone (it was never scraped)"
UNCONFIGURED = "the server is gone (no longer in the configuration)"
# Labels that identify the server behind a name.
_SERVER_LABELS = ("pod", "model_name")


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of a tick, besides the scrapes they brought."""

    names: tuple[str, ...] = ()  # of those that brought something, in that order
    configured: frozenset[str] = frozenset()  # names of all of them; empty = unknown
    # sources of kind pages: their targets are configured, and each scrape gives a row
    fixed: frozenset[str] = frozenset()
    # targets whose source answered that it does not know them
    not_listed: frozenset[TargetKey] = frozenset()
    # sources with a doubtful answer: a target missing from it may exist
    doubtful: frozenset[str] = frozenset()
    # name → why a source that no longer delays the others brought nothing
    late: Mapping[str, str] | None = None
    # targets that belong to another batch now → why
    elsewhere: Mapping[TargetKey, str] = field(default_factory=dict)
    # minutes in which sources were scraped for any batch
    # (:data:`driftwatch.pipeline.departures.LOOKS_SCHEMA`)
    looks: pl.DataFrame = field(default_factory=no_looks)

    @classmethod
    def of(
        cls, sources: Sequence[Source], names: Sequence[str], late: Mapping[str, str] | None = None
    ) -> Sources:
        """All ``sources``; those of ``names`` brought something."""
        return cls(
            names=tuple(names),
            configured=frozenset(source.name for source in sources),
            fixed=frozenset(source.name for source in sources if isinstance(source, PagesSource)),
            late=late,
        )


@dataclass(frozen=True, slots=True)
class Roster:
    """The targets of a tick."""

    # with their pools, in key order; the mapping of before where nothing changed
    targets: Mapping[TargetKey, Target]
    origins: Mapping[TargetKey, str]  # target → name of the source that listed it last
    not_listed: frozenset[TargetKey] = frozenset()  # their source does not know them
    # former targets → why
    departed: Mapping[TargetKey, str] = field(default_factory=dict)
    # names that now stand for another pod or model
    reborn: frozenset[TargetKey] = frozenset()
    # retired targets that return with their next scrape
    retired: frozenset[TargetKey] = frozenset()
    # the retired targets that a source lists
    away: Mapping[TargetKey, Target] = field(default_factory=dict)


def roster(
    before: Mapping[TargetKey, Target],
    departures: Departures,
    collected: Sequence[Collected],
    sources: Sources,
    scraped: pl.DataFrame,
    plan: Plan,
    *,
    pools_changed: bool = False,
) -> Roster:
    """The targets now.

    Args:
        scraped: instance, engine of targets with a scrape, even a failed one.
        pools_changed: assign every target to a pool again.
    """
    if not collected:
        return Roster(before, departures.origins, retired=departures.retired)
    listed: dict[TargetKey, Target] = {}
    origins = dict(departures.origins)
    for name, brought in zip(sources.names, collected, strict=True):
        listed.update(brought.targets)
        origins.update(dict.fromkeys(brought.targets, name))
    retired = set(departures.retired)
    if sources.configured == set(sources.names):
        retired &= listed.keys()
    away = {key: listed.pop(key) for key in sorted(retired & listed.keys())}
    missing = {key: target for key, target in before.items() if key not in listed}
    answering = {name for name, c in zip(sources.names, collected, strict=True) if c.silent is None}
    not_listed = {key for key in missing if origins.get(key) in answering}
    unconfigured = {
        key
        for key in missing
        if (origin := origins.get(key)) is not None
        and (
            # gone once every source has answered and none lists it
            (sources.configured == answering and origin not in sources.configured)
            or (key in not_listed and origin in sources.fixed)
        )
    }
    departed = dict.fromkeys(_never_scraped(not_listed, scraped), NEVER)
    departed |= dict.fromkeys(unconfigured, UNCONFIGURED)
    departed |= {key: why for key, why in sources.elsewhere.items() if key in missing}
    reborn = frozenset(k for k, t in listed.items() if k in before and _is_another(before[k], t))
    present = {
        key: target if key in reborn else _as_known(target, before.get(key))
        for key, target in listed.items()
    }
    staying = {key: target for key, target in missing.items() if key not in departed}
    targets = plan.assign(present | staying, None if pools_changed else before)
    return Roster(
        targets=targets,
        origins={key: origin for key, origin in origins.items() if key in targets or key in away},
        not_listed=frozenset(not_listed - departed.keys()),
        departed=departed,
        reborn=reborn,
        retired=frozenset(retired),
        away=away,
    )


def returning(scrapes: pl.DataFrame, away: Collection[TargetKey]) -> dict[TargetKey, datetime]:
    """The retired targets with a scrape → the time of the first."""
    if not away:
        return {}
    theirs = scrapes.join(_keys(away), on=_KEY, how="semi").group_by(_KEY).agg(pl.col("time").min())
    return {TargetKey(i, e): at for i, e, at in theirs.sort(_KEY).iter_rows()}


def _keys(keys: Collection[TargetKey]) -> pl.DataFrame:
    return pl.DataFrame([tuple(key) for key in keys], schema=_KEY, orient="row")


def _never_scraped(keys: Collection[TargetKey], scraped: pl.DataFrame) -> set[TargetKey]:
    """Targets without any scrape, even a failed one: nothing of them can be missing."""
    if not keys:
        return set()
    theirs = scraped.join(_keys(keys), on=_KEY, how="semi").unique()
    return set(keys) - {TargetKey(*row) for row in theirs.iter_rows()}


def _is_another(old: Target, new: Target) -> bool:
    if old.labels is new.labels:
        return False
    both = [(old.labels.get(name), new.labels.get(name)) for name in _SERVER_LABELS]
    return any(one and other and one != other for one, other in both)


def _as_known(target: Target, before: Target | None) -> Target:
    """The target with its earlier pod and model, where the source names none now."""
    if before is None:
        return target
    missing = {
        name: before.labels[name]
        for name in _SERVER_LABELS
        if not target.labels.get(name) and before.labels.get(name)
    }
    return replace(target, labels={**target.labels, **missing}) if missing else target
