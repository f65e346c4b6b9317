"""Which server a series is of, and what that server is called. Pure.

A server is what Prometheus scraped: the labels that are not vLLM's own (job, instance, namespace,
pod, cluster, ``exported_*``, Ray's ``ReplicaId``). It is called by its ``instance`` where that is
its alone, else by the shortest labels that tell it apart before it: ``prod/vllm-0:8000``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from itertools import combinations

from driftwatch.collect.cells import Labels

Identity = tuple[tuple[str, str], ...]  # label and value, in order of the labels

# What tells servers apart in a way that people know, best first; then any other label, by its name.
_TELLING = (
    *("namespace", "exported_namespace", "kubernetes_namespace", "cluster", "exported_cluster"),
    *("exported_instance", "pod", "exported_pod", "kubernetes_pod_name", "ReplicaId", "job"),
)
_MOST_LABELS = 3  # in a name; beyond it all that differ are named


def identity_of(labels: Labels, own: Collection[str]) -> Identity:
    """The labels of a series that are not vLLM's own.

    >>> identity_of({"__name__": "vllm:x", "engine": "1", "job": "a"}, {"__name__", "engine"})
    (('job', 'a'),)
    """
    return tuple(sorted((k, v) for k, v in labels.items() if v and k not in own))


def names(listed: Iterable[Identity], before: Mapping[Identity, str]) -> dict[Identity, str]:
    """What each server is called; no two have one name.

    Args:
        listed: the servers that are known now.
        before: names given before; a server keeps its own.
    """
    given: dict[Identity, str] = {}
    taken: set[str] = set()
    by_instance: dict[str, list[Identity]] = {}
    for one in sorted(set(listed)):
        if (name := before.get(one)) is not None and name not in taken:
            given[one] = name
            taken.add(name)
        by_instance.setdefault(_instance(one), []).append(one)
    for instance, several in sorted(by_instance.items()):
        new = [one for one in several if one not in given]
        if len(several) == 1 and new and instance not in taken:
            given[new[0]] = instance
            taken.add(instance)
            continue
        telling = _telling(several)
        for one in new:
            own = dict(one)
            parts = [own[label] for label in telling if own.get(label) not in (None, instance)]
            name = "/".join([*parts, instance])
            name = _free(name, taken)
            given[one] = name
            taken.add(name)
    return given


def _instance(one: Identity) -> str:
    labels = dict(one)
    return labels.get("instance") or labels.get("pod") or "/".join(v for _, v in one) or "server"


def _free(name: str, taken: Collection[str]) -> str:
    if name not in taken:
        return name
    number = 2
    while f"{name}#{number}" in taken:
        number += 1
    return f"{name}#{number}"


def _telling(several: Sequence[Identity]) -> tuple[str, ...]:
    """The fewest labels whose values are different for each of these servers."""
    every = [dict(one) for one in several]
    found = {name for one in every for name in one if len({o.get(name) for o in every}) > 1}
    found.discard("instance")
    order = [name for name in _TELLING if name in found]
    order += sorted(found - set(order))
    for count in range(1, min(_MOST_LABELS, len(order)) + 1):
        for chosen in combinations(order, count):
            if len({tuple(one.get(name) for name in chosen) for one in every}) == len(every):
                return chosen
    return tuple(order)


# Labels that say who scraped, and not what: one address is one server, whoever asks it.
_OF_THE_SCRAPER = frozenset(
    (
        *("job", "prometheus", "prometheus_replica", "replica", "__replica__", "endpoint"),
        *("service", "metrics_path", "scheme"),
    )
)

# Labels of which a process has one value each, whoever scraped it.
_OF_THE_PROCESS = ("pod", "namespace", "cluster", "node")

Span = tuple[int, int]  # first and last sample, unix microseconds


def doubles(
    spans: Mapping[Identity, Span],
    started: Mapping[Identity, Hashable],
    before: Mapping[Identity, str],
    count_alike: Callable[[Identity, Identity], bool],
) -> dict[Identity, Identity]:
    """Servers that are another one's process, scraped once more → the one that is read.

    Args:
        spans: of every server.
        started: when the process of a server began and its counters were made, where it says so.
        before: names given before; who has one is read on.
        count_alike: whether the counters of two go up as those of one process.

    Two are one process where they have one address and differ only in who scraped it, or where
    process and counters began in the same microsecond and count alike.
    """
    alike: dict[tuple[str, Hashable], list[Identity]] = {}

    def order(one: Identity) -> tuple[object, ...]:
        first, last = spans[one]
        # a pod's labels say where its GPUs are
        return one not in before, not dict(one).get("pod"), -last, first, one

    for one in sorted(spans, key=order):
        place = tuple((k, v) for k, v in one if k not in _OF_THE_SCRAPER)
        if dict(one).get("instance"):
            alike.setdefault(("place", place), []).append(one)
        if (began := started.get(one)) is not None:
            alike.setdefault(("began", began), []).append(one)
    read: dict[Identity, Identity] = {}
    for (kind, _), (first, *others) in alike.items():
        for other in others:
            if other == first or other in read:
                continue
            # who is scraped at the very same moments is a copy that was made of it
            is_copy = spans[other] == spans[first] or _apart(first, other)
            if kind == "place" or (not is_copy and count_alike(first, other)):
                read[other] = read.get(first, first)
    return {other: one for other, one in read.items() if other != one}


def _apart(one: Identity, other: Identity) -> bool:
    """The labels say that these cannot be one process."""
    ours, theirs = dict(one), dict(other)
    return any(
        ours.get(name) and theirs.get(name) and ours[name] != theirs[name]
        for name in _OF_THE_PROCESS
    )


def successors(spans: Mapping[Identity, Span]) -> dict[Identity, Identity]:
    """Servers that took an address over → who has it now.

    Args:
        spans: first and last sample of each server, unix microseconds.

    Two at one ``instance`` of which one ended before the other began are one server in succession
    (a pod that was replaced).
    """
    later: dict[Identity, Identity] = {}
    by_instance: dict[str, list[Identity]] = {}
    for one in spans:
        if instance := dict(one).get("instance"):
            by_instance.setdefault(instance, []).append(one)
    for several in by_instance.values():
        chains: list[Identity] = []  # the newest of each chain
        for one in sorted(several, key=lambda each: (spans[each], each)):
            ended = [each for each in chains if spans[each][1] < spans[one][0]]
            if ended:
                # who shares most labels with the new one is its predecessor
                last = max(ended, key=lambda each: (len(set(each) & set(one)), each))
                chains.remove(last)
                later[last] = one
            chains.append(one)
    for one in list(later):
        while later[one] in later:
            later[one] = later[later[one]]
    return later
