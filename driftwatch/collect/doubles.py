"""Find one process scraped under two names, and two servers under one name. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import polars as pl

from driftwatch.collect.identity import (
    ALSO_LABEL,
    NOT_OF_THE_SERVER,
    Identity,
    also_text,
    identity_of,
    reading_order,
)
from driftwatch.collect.schema import Collected, SourceProblem
from driftwatch.model import Target, TargetKey

_BEGAN = ("process_start_time_seconds", "created_seconds")
_COUNTERS = ("generation_tokens_total", "prompt_tokens_total", "iteration_tokens_count")
# labels that have one value for a process, whatever scrapes it
_OF_THE_PROCESS = ("pod", "namespace", "cluster", "node")
_INSTANCE = re.compile(r'instance="([^"]*)"')
_READ = ("instance", "engine", "time", *_BEGAN, *_COUNTERS)


def without_doubles(answer: Collected, known: Mapping[TargetKey, Target]) -> Collected:
    """A source's answer with each process once; a server left out becomes a problem.

    ``known``: the targets of the answer before. A recording has copies of one server under several
    names: it is not asked.
    """
    labels = {key.instance: one.labels for key, one in {**answer.targets, **known}.items()}
    before = {key.instance for key in known}
    servers = {name: _identity(name, own) for name, own in labels.items()}
    left = _known_doubles(servers, labels, before)
    rows = answer.scrapes.select(_READ).filter(
        pl.col("created_seconds").is_not_null(), ~pl.col("instance").is_in(list(left))
    )
    shared = rows.group_by("engine", *_BEGAN).agg(pl.col("instance").unique())
    shared = shared.filter(pl.col("instance").list.len() > 1)
    if candidates := sorted({one for several in shared["instance"].to_list() for one in several}):
        rows = rows.filter(pl.col("instance").is_in(candidates)).sort("time")
        left |= _new_doubles(rows, servers, before)
    return _without(answer, left, servers) if left else answer


def _known_doubles(
    servers: Mapping[str, Identity], labels: Mapping[str, Mapping[str, str]], known: set[str]
) -> dict[str, str]:
    """Servers left out before → the server that is read in their place.

    They stay left out while their scrape fails, for that shows no start time.
    """
    readers: dict[str, list[str]] = {}  # a double's instance → the servers that are read
    for name in known & servers.keys():
        for instance in _INSTANCE.findall(labels[name].get(ALSO_LABEL, "")):
            readers.setdefault(instance, []).append(name)
    return {
        one: name
        for one, identity in servers.items()
        if one not in known
        for name in readers.get(dict(identity)["instance"], ())
        if also_text(identity, servers[name]) in labels[name][ALSO_LABEL]
    }


def _new_doubles(
    rows: pl.DataFrame, servers: Mapping[str, Identity], known: set[str]
) -> dict[str, str]:
    """Servers that are the process of another one → the server that is read in their place."""
    at = pl.col("time").dt.epoch("us")
    ends = rows.group_by("instance").agg(first=at.min(), last=at.max())
    spans = {name: (first, last) for name, first, last in ends.iter_rows()}
    started: dict[str, tuple[object, ...]] = {}
    began = rows.group_by("instance", "engine").agg(pl.col(_BEGAN).last()).sort("engine")
    for name, *start in began.iter_rows():
        started[name] = (*started.get(name, ()), *start)
    order = {name: reading_order(servers[name], spans[name], name in known) for name in spans}
    first_of: dict[tuple[object, ...], str] = {}
    read: dict[str, str] = {}
    for name in sorted(order, key=order.__getitem__):
        first = first_of.setdefault(started[name], name)
        pair = rows.lazy().filter(pl.col("instance").is_in([name, first]))
        # two of one answer whose scrapes have the very same times are copies
        is_other = spans[name] == spans[first] or _apart(dict(servers[name]), dict(servers[first]))
        if not is_other and _counters_equal(pair.collect()):
            read[name] = first
    return read


def _apart(ours: Mapping[str, str], theirs: Mapping[str, str]) -> bool:
    """A label of the process differs: these are two processes."""
    both = ((ours.get(label), theirs.get(label)) for label in _OF_THE_PROCESS)
    return any(own and its and own != its for own, its in both)


def _counters_equal(rows: pl.DataFrame) -> bool:
    """Whether the counters of two servers go up as those of one process; ``rows``: by time."""
    lists = [
        part[counter].drop_nulls().to_list()
        for part in rows.partition_by("engine")
        for counter in _COUNTERS
    ]
    return any(max(each, default=0) > 0 for each in lists) and all(
        before <= after for each in lists for before, after in pairwise(each)
    )


def with_own_names(
    collected: Sequence[Collected],
    sources: Sequence[str],
    targets: Mapping[TargetKey, Target],
    origins: Mapping[TargetKey, str],
) -> list[Collected]:
    """The answers; a server whose name another source's server has gets one of its own.

    They are two servers where a label of the process differs.

    ``sources``: names, one per answer; ``targets``, ``origins``: known before, and which source
    listed each.
    """
    first = {key.instance: (origins.get(key), one.labels) for key, one in targets.items()}
    answers: list[Collected] = []
    for name, answer in zip(sources, collected, strict=True):
        new = {}
        for key, target in sorted(answer.targets.items()):
            source, labels = first.setdefault(key.instance, (name, target.labels))
            if source != name and _apart(labels, target.labels):
                new[key.instance] = f"{name.removeprefix('prometheus ')}/{key.instance}"
        answers.append(_renamed(answer, new) if new else answer)
    return answers


def _renamed(answer: Collected, new: Mapping[str, str]) -> Collected:
    targets = {}
    for key, target in answer.targets.items():
        key = key._replace(instance=new.get(key.instance, key.instance))
        targets[key] = replace(target, key=key)
    why = "a server of another source has this name: this one is called"
    problems = [SourceProblem(one, f"{why} {name}", lost=False) for one, name in new.items()]
    return replace(
        answer,
        targets=targets,
        scrapes=answer.scrapes.with_columns(pl.col("instance").replace(new)),
        problems=(*answer.problems, *problems),
    )


def _identity(name: str, labels: Mapping[str, str]) -> Identity:
    return identity_of({**labels, "instance": labels.get("instance") or name}, NOT_OF_THE_SERVER)


def _without(
    answer: Collected, left: Mapping[str, str], servers: Mapping[str, Identity]
) -> Collected:
    """An answer without the servers that are read under another name."""
    also: dict[str, list[str]] = {}
    for name, read in left.items():
        also.setdefault(read, []).append(also_text(servers[name], servers[read]))
    targets = {}
    for key, target in answer.targets.items():
        if key.instance in also:
            before = target.labels.get(ALSO_LABEL, "")
            new = [text for text in also[key.instance] if text not in before]
            text = "; ".join([*filter(None, [before]), *new])
            target = replace(target, labels={**target.labels, ALSO_LABEL: text})
        if key.instance not in left:
            targets[key] = target
    problems = list(answer.problems)
    if doubled := sorted({key.instance for key in answer.targets} & left.keys()):
        name, read = doubled[0], left[doubled[0]]
        both = f"{read} and {name}"
        why = f"one process that is scraped more than once, as {both}: read once, as {read}"
        if len(doubled) > 1:
            why = f"{len(doubled)} scrapes of servers that are scraped already: {why}"
        problems.append(SourceProblem(name, why, lost=False))
    scrapes = answer.scrapes.filter(~pl.col("instance").is_in(list(left)))
    return replace(answer, targets=targets, scrapes=scrapes, problems=tuple(problems))
