"""How a question is asked about some targets only. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from driftwatch.collect.cells import Labels
from driftwatch.collect.prometheus.query import Selector, matchers

# VictoriaMetrics refuses a question of more than 16 KiB.
MOST_BYTES = 12_000


def narrowed(
    selector: Selector, instances: Collection[str], up: Sequence[Labels], listed: Sequence[Labels]
) -> list[str]:
    """Label matchers of the questions that together ask for these instances.

    That is one about a label that tells them from all others, where there is one that is short;
    else some about ``instance``.

    Args:
        instances: the wanted ones.
        up: labels of every ``up`` series.
        listed: labels of every target, as its own series carry them.
    """
    if not instances:
        return []
    every = [*up, *listed]
    own = [labels for labels in every if labels.get("instance") in instances]
    if len(own) == len(every):
        return [matchers(selector)]
    others = [labels for labels in every if labels.get("instance") not in instances]
    names = set[str]().union(*up) - {"__name__", "instance"}
    texts = []
    for name in sorted(name for name in names if name.isascii() and name.isidentifier()):
        values = {labels.get(name) or "" for labels in own}
        if "" not in values and values.isdisjoint(labels.get(name) or "" for labels in others):
            texts.append(matchers({**selector, name: sorted(values)}))
    shortest = min(texts, key=len, default=None)
    if shortest is not None and len(shortest.encode()) <= MOST_BYTES:
        return [shortest]
    return [matchers({**selector, "instance": part}) for part in _parts(sorted(instances))]


def _parts(instances: Sequence[str]) -> Iterator[list[str]]:
    part: list[str] = []
    size = 0
    for instance in instances:
        size += len(matchers({"instance": [instance, ""]}).encode())
        if part and size > MOST_BYTES:
            yield part
            part, size = [], len(matchers({"instance": [instance, ""]}).encode())
        part.append(instance)
    if part:
        yield part
