"""What two sources show of one process, and what of two under one name. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import polars as pl

from driftwatch.collect.identity import (
    ALSO_LABEL,
    NOT_OF_THE_SERVER,
    Identity,
    also_text,
    doubles,
    identity_of,
)
from driftwatch.collect.schema import Collected, SourceProblem
from driftwatch.model import Target, TargetKey

_BEGAN = ("process_start_time_seconds", "created_seconds")
_COUNTERS = ("generation_tokens_total", "prompt_tokens_total", "iteration_tokens_count")
_CLOCKS_APART = timedelta(seconds=20)  # those of two sources, at most
_READ = ("instance", "engine", "time", *_BEGAN, *_COUNTERS)


def read_once(
    collected: Sequence[Collected],
    sources: Sequence[str],
    targets: Mapping[TargetKey, Target],
    origins: Mapping[TargetKey, str],
    recent: pl.DataFrame,
) -> list[Collected]:
    """What sources brought, each process once and under its own name.

    Who is left out, or renamed, is a problem that says so.

    ``sources``: their names; ``targets``, ``origins``: those of before, and who listed them;
    ``recent``: the last scrapes of these.
    """
    collected = _split_shared_names(collected, sources, origins, recent)
    source_of = {key.instance: name for key, name in origins.items()}
    labels = {key.instance: target.labels for key, target in targets.items()}
    for name, brought in zip(sources, collected, strict=True):
        for key, target in brought.targets.items():
            source_of.setdefault(key.instance, name)
            labels.setdefault(key.instance, target.labels)
    if len(set(source_of.values())) < 2:
        return list(collected)
    rows = pl.concat([one.select(_READ) for one in (recent, *(c.scrapes for c in collected))])
    rows = rows.filter(pl.col("created_seconds").is_not_null())
    shared = rows.group_by("engine", *_BEGAN).agg(pl.col("instance").unique())
    shared = shared.filter(pl.col("instance").list.len() > 1)
    alike = sorted({one for several in shared["instance"].to_list() for one in several})
    alike = [one for one in alike if one in source_of]
    if len({source_of[one] for one in alike}) < 2:
        return list(collected)
    rows = rows.filter(pl.col("instance").is_in(alike)).sort("time").unique(maintain_order=True)
    of = {_identity(one, labels[one]): one for one in alike}
    every = {str(name): own for (name,), own in rows.partition_by("instance", as_dict=True).items()}
    known = {key.instance for key in targets}
    before = {one: name for one, name in of.items() if name in known}

    def same_counters(one: Identity, other: Identity) -> bool:
        text = also_text(other, one)
        if text and text in labels[of[one]].get(ALSO_LABEL, ""):
            return True  # as before
        both = pl.concat([every[of[one]], every[of[other]]]).sort("time")
        lists = [
            part[counter].drop_nulls().to_list()
            for part in both.partition_by("engine")
            for counter in _COUNTERS
        ]
        return any(max(each, default=0) > 0 for each in lists) and all(
            before <= after for each in lists for before, after in pairwise(each)
        )

    spans, started = {}, {}
    for one, name in of.items():
        times = every[name]["time"].dt.epoch("us")
        spans[one] = (int(times[0]), int(times[-1]))
        began = every[name].group_by("engine").agg(pl.col(_BEGAN).last()).sort("engine")
        started[one] = tuple(began.rows())
    twice = doubles(spans, started, before, same_counters)
    left = {of[o]: of[r] for o, r in twice.items() if source_of[of[o]] != source_of[of[r]]}
    if not left:
        return list(collected)
    names = {name: one for one, name in of.items()}
    return [_without(one, left, names, source_of) for one in collected]


def _split_shared_names(
    collected: Sequence[Collected],
    sources: Sequence[str],
    origins: Mapping[TargetKey, str],
    recent: pl.DataFrame,
) -> list[Collected]:
    """Answers in which servers that only share a name with one of another source have their own.

    They are other processes where the older one is seen after the younger one: a process that
    restarts is not.
    """
    first = {key.instance: name for key, name in origins.items()}
    apart: list[Collected] = []
    for name, brought in zip(sources, collected, strict=True):
        listed = sorted({key.instance for key in brought.targets})
        shared = [one for one in listed if first.setdefault(one, name) != name]
        new = {}
        for one in shared:
            every = [o.select(_READ).filter(instance=one) for o in (recent, *_scrapes(collected))]
            rows = pl.concat(every).filter(pl.col("created_seconds").is_not_null()).sort("time")
            # of each process its first and last scrape
            spans = rows.group_by("engine", "created_seconds").agg(
                first=pl.col("time").min(), last=pl.col("time").max()
            )
            both = spans.join(spans, on="engine", suffix="_younger").filter(
                pl.col("created_seconds") < pl.col("created_seconds_younger"),
                pl.col("last") > pl.col("first_younger") + _CLOCKS_APART,
            )
            if len(both):
                new[one] = f"{name.removeprefix('prometheus ')}/{one}"
        apart.append(_renamed(brought, new) if new else brought)
    return apart


def _scrapes(collected: Sequence[Collected]) -> list[pl.DataFrame]:
    return [one.scrapes for one in collected]


def _renamed(brought: Collected, new: Mapping[str, str]) -> Collected:
    targets = {}
    for key, target in brought.targets.items():
        key = key._replace(instance=new.get(key.instance, key.instance))
        targets[key] = replace(target, key=key)
    why = "a server of another source has this name: this one is called"
    problems = [SourceProblem(one, f"{why} {name}", lost=False) for one, name in new.items()]
    return replace(
        brought,
        targets=targets,
        scrapes=brought.scrapes.with_columns(pl.col("instance").replace(new)),
        problems=(*brought.problems, *problems),
    )


def _identity(name: str, labels: Mapping[str, str]) -> Identity:
    return identity_of({**labels, "instance": labels.get("instance") or name}, NOT_OF_THE_SERVER)


def _without(
    brought: Collected,
    left: Mapping[str, str],
    identities: Mapping[str, Identity],
    source_of: Mapping[str, str],
) -> Collected:
    """An answer without the servers that are read elsewhere."""
    also: dict[str, list[str]] = {}
    for name, read in left.items():
        text = also_text(identities[name], identities[read]) or source_of[name]
        also.setdefault(read, []).append(f"{text} ({source_of[name]})")
    targets, problems = {}, list(brought.problems)
    for key, target in brought.targets.items():
        if key.instance in also:
            text = "; ".join([*filter(None, [target.labels.get(ALSO_LABEL)]), *also[key.instance]])
            target = replace(target, labels={**target.labels, ALSO_LABEL: text})
        if key.instance not in left:
            targets[key] = target
    for name in sorted({key.instance for key in brought.targets} & left.keys()):
        read = left[name]
        both = f"{read} ({source_of[read]}) and {name} ({source_of[name]})"
        why = f"one process that two sources show, as {both}: read once, as {read}"
        problems.append(SourceProblem(name, why, lost=False))
    scrapes = brought.scrapes.filter(~pl.col("instance").is_in(list(left)))
    return replace(brought, targets=targets, scrapes=scrapes, problems=tuple(problems))
