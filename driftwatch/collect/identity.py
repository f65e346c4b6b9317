"""Which server a series is of, and what that server is called. Pure.

A server is what Prometheus scraped: the labels that are not vLLM's own (job, instance, namespace,
pod, cluster, ``exported_*``, Ray's ``ReplicaId``). It is called by its ``instance`` where that is
its alone, else by labels that tell it apart before it: ``prod/vllm-0:8000``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from driftwatch.collect.registry import OWN_LABELS, Labels
from driftwatch.model import Target, TargetKey

# A label of a target whose process is scraped more than once: the other scrapes' labels.
ALSO_LABEL = "also_scraped_as"
IMAGE_LABEL = "kube_image"  # the image of its container, as kube-state-metrics shows it
# labels of a target that do not identify its server
NOT_OF_THE_SERVER = OWN_LABELS | {ALSO_LABEL, IMAGE_LABEL}
Identity = tuple[tuple[str, str], ...]  # label and value, in order of the labels

# Labels that people tell servers apart by, best first; any other label follows, by its name.
_TELLING = (
    *("namespace", "exported_namespace", "kubernetes_namespace", "cluster", "exported_cluster"),
    *("exported_instance", "pod", "exported_pod", "kubernetes_pod_name", "ReplicaId", "job"),
)


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
        before: names given before. A server keeps its name; that of an absent one is not reused.
    """
    present = set(listed)
    given: dict[Identity, str] = {}
    taken = {name for one, name in before.items() if one not in present}
    by_instance: dict[str, list[Identity]] = {}
    for one in sorted(present | before.keys()):
        if one in present and (name := before.get(one)) is not None and name not in taken:
            given[one] = name
            taken.add(name)
        by_instance.setdefault(_instance(one), []).append(one)
    for instance, several in sorted(by_instance.items()):
        new = [one for one in several if one in present and one not in given]
        if len(several) == 1 and new and instance not in taken:
            given[new[0]] = instance
            taken.add(instance)
            continue
        telling = _telling(several) if new else ()
        for one in new:
            own = dict(one)
            parts = [own[label] for label in telling if own.get(label) not in (None, instance)]
            given[one] = name = _free("/".join([*parts, instance]), taken)
            taken.add(name)
    return given


# Servers that differ in one of these are two, whatever their address.
_PLACE = (
    *("namespace", "exported_namespace", "kubernetes_namespace", "cluster", "exported_cluster"),
    *("exported_instance", "ReplicaId"),
)
_KEPT = 48 * 3600 * 1_000_000  # microseconds for which an absent server keeps its name


@dataclass(slots=True)
class Names:
    """Names of servers, kept between answers; the name of an absent server is not reused."""

    held: dict[Identity, str] = field(default_factory=dict)
    _seen: dict[Identity, int] = field(default_factory=dict)  # unix microseconds

    def remember(self, stored: Mapping[TargetKey, Target]) -> None:
        """Take over the names of a store: they win over those that were given here."""
        known = set(self.held.values())
        new = [key for key in sorted(stored, reverse=True) if key.instance not in known]
        given: dict[str, list[Identity]] = {}
        for one in self.held if new else ():
            given.setdefault(_instance(one), []).append(one)
        for key in new:
            if key.instance in known:
                continue
            server = identity_of(stored[key].labels, NOT_OF_THE_SERVER)
            for one in given.get(_instance(server), ()):
                if one in self.held and set(one) <= set(server):
                    self._forget(one)
            self.held[server] = key.instance
            known.add(key.instance)

    def give(
        self, present: Collection[Identity], successor_of: Mapping[Identity, Identity], now: int
    ) -> None:
        """Give each server that is present a name.

        ``successor_of``: a server that left → the one that has its address now; ``now``: unix
        microseconds.
        """
        for one, heir in sorted(successor_of.items()):
            self._hand_on(one, heir)
        absent: dict[str, list[Identity]] = {}
        for one in self.held.keys() - set(present):
            absent.setdefault(_instance(one), []).append(one)
        for one in sorted(set(present) - self.held.keys()):
            near = absent.get(_instance(one), [])
            before = [other for other in near if set(one) <= set(other)]
            before = before or [other for other in near if _place(other) == _place(one)]
            if before:
                last = max(before, key=lambda other: (len(set(other) & set(one)), other))
                near.remove(last)
                self._hand_on(last, one)
        self.held |= names(present, self.held)
        self._seen |= dict.fromkeys(present, now)
        for one in self.held:
            self._seen.setdefault(one, now)
        for one in [o for o, seen in self._seen.items() if seen < now - _KEPT]:
            self._forget(one)

    def _hand_on(self, one: Identity, heir: Identity) -> None:
        if one in self.held and heir not in self.held:
            self.held[heir] = self._forget(one)

    def _forget(self, one: Identity) -> str:
        self._seen.pop(one, None)
        return self.held.pop(one)


def _place(one: Identity) -> list[str | None]:
    labels = dict(one)
    return [labels.get(name) for name in _PLACE]


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
    """Labels whose values together are different for each of these servers, best ones first."""
    every = [dict(one) for one in several]
    found = {name for one in every for name in one if len({o.get(name) for o in every}) > 1}
    found.discard("instance")
    order = [name for name in _TELLING if name in found]
    order += sorted(found - set(order))
    for count in range(1, len(order)):
        if len({tuple(map(one.get, order[:count])) for one in every}) == len(every):
            return tuple(order[:count])
    return tuple(order)


# Labels of the scraper, not of the server: one address is one server, whatever scrapes it.
_OF_THE_SCRAPER = frozenset(
    (
        *("job", "prometheus", "prometheus_replica", "replica", "__replica__", "endpoint"),
        *("service", "metrics_path", "scheme"),
    )
)

Span = tuple[int, int]  # first and last sample, unix microseconds


def reading_order(one: Identity, span: Span, is_known: bool) -> tuple[object, ...]:
    """Which of several scrapes of one process is read: the smallest.

    ``is_known``: it had a name before; it is read on.
    """
    # a pod's labels name the node of its GPUs
    return not is_known, not dict(one).get("pod"), -span[1], span[0], one


def second_scrapes(
    spans: Mapping[Identity, Span], before: Collection[Identity]
) -> dict[Identity, Identity]:
    """The second scrape of a server → the one that is read in its place.

    Two are of one server where they have one address and differ only in who scraped it.

    ``spans``: of every server; ``before``: servers that had a name before.
    """
    first_at: dict[Identity, Identity] = {}
    read: dict[Identity, Identity] = {}
    for one in sorted(spans, key=lambda each: reading_order(each, spans[each], each in before)):
        if dict(one).get("instance"):
            place = tuple((k, v) for k, v in one if k not in _OF_THE_SCRAPER)
            first = first_at.setdefault(place, one)
            (start, end), (other_start, other_end) = spans[first], spans[one]
            if first != one and start <= other_end and other_start <= end:
                read[one] = first
    return read


def also_text(other: Identity, server: Identity) -> str:
    """Labels of the second scrape that the server that is read has not.

    >>> also_text((("instance", "svc:1"), ("job", "b")), (("instance", "a:1"), ("job", "b")))
    'instance="svc:1"'
    """
    return ", ".join(f'{k}="{v}"' for k, v in other if (k, v) not in server)


def successors(spans: Mapping[Identity, Span]) -> dict[Identity, Identity]:
    """A server that left its address → its successor there.

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
                # its predecessor shares most labels with it
                last = max(ended, key=lambda each: (len(set(each) & set(one)), each))
                chains.remove(last)
                later[last] = one
            chains.append(one)
    for one in list(later):
        while later[one] in later:
            later[one] = later[later[one]]
    return later
