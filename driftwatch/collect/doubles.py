"""Find one process scraped under two names, and two processes under one name. Pure."""

from __future__ import annotations

import re
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
    identity_of,
    reading_order,
)
from driftwatch.collect.schema import Collected, SourceProblem
from driftwatch.model import Target, TargetKey

_BEGAN = ("process_start_time_seconds", "created_seconds")
_COUNTERS = ("generation_tokens_total", "prompt_tokens_total", "iteration_tokens_count")
_CLOCKS_APART = timedelta(seconds=20)  # those of two sources, at most
# labels that have one value for a process, whatever scrapes it
_OF_THE_PROCESS = ("pod", "namespace", "cluster", "node")
_INSTANCE = re.compile(r'instance="([^"]*)"')
_READ = ("instance", "engine", "time", *_BEGAN, *_COUNTERS)


def without_doubles(
    collected: Sequence[Collected],
    sources: Sequence[str],
    targets: Mapping[TargetKey, Target],
    origins: Mapping[TargetKey, str],
    recent: pl.DataFrame,
    *,
    within: bool = False,
) -> list[Collected]:
    """The sources' answers with each process once, under a name of its own.

    A server that is left out or renamed becomes a problem with the reason.

    ``sources``: their names; ``targets``, ``origins``: known before, and which source listed each;
    ``recent``: the last scrapes of these; ``within``: two names of one source may be one process
    too. A recording has copies of one server under several names.
    """
    collected = _split_shared_names(collected, sources, origins, recent)
    source_of = {key.instance: name for key, name in origins.items()}
    labels = {key.instance: target.labels for key, target in targets.items()}
    for name, answer in zip(sources, collected, strict=True):
        for key, target in answer.targets.items():
            source_of.setdefault(key.instance, name)
            labels.setdefault(key.instance, target.labels)
    known = {key.instance for key in targets}
    servers = {one: _identity(one, own) for one, own in labels.items() if one in source_of}
    left = _known_doubles(servers, labels, known)
    if not within and len(set(source_of.values())) < 2:
        return [_without(one, left, servers, source_of) for one in collected] if left else collected
    rows = pl.concat([one.select(_READ) for one in (recent, *(c.scrapes for c in collected))])
    rows = rows.filter(
        pl.col("created_seconds").is_not_null(),
        pl.col("instance").is_in([one for one in servers if one not in left]),
    )
    shared = rows.group_by("engine", *_BEGAN).agg(pl.col("instance").unique())
    shared = shared.filter(pl.col("instance").list.len() > 1)
    if candidates := sorted({one for several in shared["instance"].to_list() for one in several}):
        rows = rows.filter(pl.col("instance").is_in(candidates)).sort("time")
        since = pl.concat([one.scrapes["time"] for one in collected]).min()
        new = _new_doubles(rows.unique(maintain_order=True), servers, known, since)
        left |= {o: r for o, r in new.items() if within or source_of[o] != source_of[r]}
    return [_without(one, left, servers, source_of) for one in collected] if left else collected


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
    rows: pl.DataFrame, servers: Mapping[str, Identity], known: set[str], since: object
) -> dict[str, str]:
    """Servers that are the process of another one → the server that is read in their place.

    ``since``: when the first scrape of these answers was; ``rows`` before are of earlier ones.
    """
    now = pl.col("time").dt.epoch("us")
    recent = now.filter(pl.col("time") >= pl.lit(since))
    ends = rows.group_by("instance").agg(
        first=pl.coalesce(recent.min(), now.min()), last=pl.coalesce(recent.max(), now.max())
    )
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
        # two of one answer whose scrapes have the very same times are copies, whatever was before
        is_other = spans[name] == spans[first] or _apart(servers[name], servers[first])
        if not is_other and _counters_equal(pair.collect()):
            read[name] = first
    return read


def _apart(one: Identity, other: Identity) -> bool:
    """A label of the process differs: these are two processes."""
    ours, theirs = dict(one), dict(other)
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


def _split_shared_names(
    collected: Sequence[Collected],
    sources: Sequence[str],
    origins: Mapping[TargetKey, str],
    recent: pl.DataFrame,
) -> list[Collected]:
    """Rename servers that share a name with another process of another source.

    They are two processes where the older one is scraped after the younger one began: a process
    that restarted is never scraped again.
    """
    first = {key.instance: name for key, name in origins.items()}
    scrapes = [recent, *(one.scrapes for one in collected)]
    answers: list[Collected] = []
    for name, answer in zip(sources, collected, strict=True):
        listed = sorted({key.instance for key in answer.targets})
        shared = [one for one in listed if first.setdefault(one, name) != name]
        new = {}
        for one in shared:
            every = [o.select(_READ).filter(instance=one) for o in scrapes]
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
    answer: Collected,
    left: Mapping[str, str],
    servers: Mapping[str, Identity],
    source_of: Mapping[str, str],
) -> Collected:
    """An answer without the servers that are read elsewhere."""

    def where(name: str, read: str) -> str:
        return "" if source_of[name] == source_of[read] else f" ({source_of[name]})"

    also: dict[str, list[str]] = {}
    for name, read in left.items():
        text = also_text(servers[name], servers[read]) or source_of[name]
        also.setdefault(read, []).append(text + where(name, read))
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
        both = f"{read}{where(read, name)} and {name}{where(name, read)}"
        why = f"one process that is scraped more than once, as {both}: read once, as {read}"
        if len(doubled) > 1:
            why = f"{len(doubled)} scrapes of servers that are scraped already: {why}"
        problems.append(SourceProblem(name, why, lost=False))
    scrapes = answer.scrapes.filter(~pl.col("instance").is_in(list(left)))
    return replace(answer, targets=targets, scrapes=scrapes, problems=tuple(problems))
