"""Put the servers that were found into pools, with what their metrics show. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from driftwatch.collect.inventory import Inventory, Server
from driftwatch.collect.startup import from_cache_config
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.plan import Plan
from driftwatch.signals.gpus import MIXED, gpu_counts, reasons_of

_APART = 1.1  # KV cache sizes this much apart are two configurations; profiling varies by less
# labels that name one server rather than a kind of them
_OF_ONE_SERVER = frozenset(
    ("instance", "pod", "pod_ip", "container_id", "uid", "id", "hostname", "host", "node", "ip")
)
_NAMESPACES = ("namespace", "kubernetes_namespace")


@dataclass(frozen=True, slots=True)
class FoundPool:
    """Servers whose metrics show no difference in their settings."""

    name: str  # fit for ``pools[].name``, unique
    match: Mapping[str, str]  # labels that its servers have and no other pool's
    servers: tuple[Server, ...]  # by instance
    # of each server with GPU readings; None = no reading, or not the same
    gpus_per_replica: float | None = None
    gpus_source: str = ""  # its origin, or why it is unknown
    # of one engine, smallest and largest; None where no page says it
    kv_cache_tokens: tuple[float, float] | None = None
    doubts: tuple[str, ...] = ()  # what does not fit together, one sentence each

    @property
    def engines(self) -> int:
        """Engines of all its servers."""
        return sum(len(server.engines) for server in self.servers)


def found_pools(inventory: Inventory, at: datetime) -> tuple[FoundPool, ...]:
    """The servers in pools: by namespace and model, then by what tells different ones apart.

    In the order of the file: a target belongs to the first that matches. ``inventory``: what was
    found; ``at``: when; GPU readings of the two minutes before it count.
    """
    gpus = _gpus(inventory, at)
    clusters = {server.labels.get("cluster") for server in inventory.servers}
    groups: dict[_Group, list[Server]] = {}
    for server in inventory.servers:
        groups.setdefault(_group(server, len(clusters) > 1), []).append(server)
    pools: list[FoundPool] = []
    names: set[str] = set()
    many = len({namespace for namespace, _, _ in groups}) > 1
    ordered = sorted(groups.items(), key=lambda g: ([k is None for k in g[0]], str(g[0])))
    for (namespace, model, cluster), servers in ordered:
        match = dict(one for one in (namespace, model, cluster) if one is not None)
        kinds = _kinds(servers)
        label = _distinguishing(servers, kinds) if len(set(kinds)) > 1 else None
        parts: dict[str, list[Server]] = {}
        for server in servers:
            parts.setdefault(server.labels[label] if label else "", []).append(server)
        for value, members in sorted(parts.items()):
            words = [
                namespace[1] if many and namespace else None,
                (model[1] if model else "vllm").rsplit("/", 1)[-1],
                cluster[1] if cluster else None,
                value,
            ]
            pool = FoundPool(
                _name(words, names),
                {**match, **({label: value} if label else {})},
                tuple(members),
            )
            doubts = () if label or len(set(kinds)) == 1 else (_no_label(servers, kinds),)
            pools.append(_described(pool, gpus, doubts))
    return tuple(pools)


_Label = tuple[str, str]
_Group = tuple[_Label | None, _Label | None, _Label | None]  # namespace, model, cluster


def _group(server: Server, several_clusters: bool) -> _Group:
    """What servers of one pool share."""
    labels = server.labels
    namespace = next(((n, labels[n]) for n in _NAMESPACES if labels.get(n)), None)
    model, cluster = labels.get("model_name"), labels.get("cluster")
    return (
        namespace,
        None if model is None else ("model_name", model),
        ("cluster", cluster) if several_clusters and cluster else None,
    )


def _described(
    pool: FoundPool, gpus: Mapping[str, tuple[float | None, str]], doubts: tuple[str, ...]
) -> FoundPool:
    count, source = _gpu_count(pool.servers, gpus)
    sizes = [s for server in pool.servers for s in _kv_sizes(server)]
    return replace(
        pool,
        gpus_per_replica=count,
        gpus_source=source,
        kv_cache_tokens=(min(sizes), max(sizes)) if sizes else None,
        doubts=doubts,
    )


def _gpu_count(
    servers: Sequence[Server], gpus: Mapping[str, tuple[float | None, str]]
) -> tuple[float | None, str]:
    """GPUs of each server and what says so; None, and why, where nothing does or they differ."""
    readings = [gpus[s.instance] for s in servers if s.instance in gpus]
    counted = [(count, origin) for count, origin in readings if count is not None]
    counts = Counter(count for count, _ in counted)
    if len(counts) > 1:
        differing = ", ".join(f"{c:g} on {n}" for c, n in sorted(counts.items()))
        return None, f"not the same on all servers: {differing}"
    if not counted:
        return None, readings[0][1] if readings else ""
    count, origin = counted[0]
    return count, f"{origin}, {len(counted)} of {len(servers)} servers"


def _kinds(servers: Sequence[Server]) -> list[tuple[int, ...]]:
    """The kind of each server, by the sizes of its KV caches."""
    sizes = sorted({size for server in servers for size in _kv_sizes(server)})
    band: dict[float, int] = {}
    for before, size in zip([0.0, *sizes], sizes, strict=False):
        band[size] = band.get(before, -1) + (size > before * _APART)
    return [tuple(sorted({band[size] for size in _kv_sizes(server)})) for server in servers]


def _distinguishing(servers: Sequence[Server], kinds: Sequence[object]) -> str | None:
    """The label that distinguishes the kinds, with the fewest values; None = none does."""
    fit: list[tuple[int, str]] = []
    for label in servers[0].labels:
        if label in _OF_ONE_SERVER or not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", label):
            continue
        kind_of: dict[str, object] = {}
        for server, kind in zip(servers, kinds, strict=True):
            value = server.labels.get(label)
            if value is None or kind_of.setdefault(value, kind) != kind:
                break
        else:
            # one value a server is a name, not a kind
            if len(kind_of) < len(servers) or len(servers) == len(set(kinds)):
                fit.append((len(kind_of), label))
    return min(fit)[1] if fit else None


def _no_label(servers: Sequence[Server], kinds: Sequence[object]) -> str:
    first: dict[object, str] = {}
    for server, kind in zip(servers, kinds, strict=True):
        first.setdefault(kind, server.instance)
    examples = ", ".join(sorted(first.values())[:3])
    return (
        f"its servers are of {len(first)} kinds (KV cache size; compare {examples}), "
        "and no label tells them apart: give each kind a label where it is scraped, and a pool"
    )


def _name(words: Iterable[str | None], used: set[str]) -> str:
    """Fit for ``pools[].name``, and not used yet."""
    clean = re.sub(r"[^a-z0-9_.-]+", "-", "-".join(w for w in words if w).lower())
    base = clean[:56].strip("-_.") or "pool"
    name, number = base, 2
    while name in used:
        name, number = f"{base}-{number}", number + 1
    used.add(name)
    return name


def _kv_sizes(server: Server) -> list[float]:
    sizes = []
    for labels in server.caches:
        size = from_cache_config(json.dumps(dict(labels))).kv_cache_tokens
        if size is not None:
            sizes.append(size.value)
    return sizes


def _gpus(inventory: Inventory, at: datetime) -> dict[str, tuple[float | None, str]]:
    """Instance → GPUs of the server, and what says so; None and why where pods are mixed up."""
    if inventory.gpus.is_empty():
        return {}
    engines = [
        Target(TargetKey(server.instance, engine), server.labels)
        for server in inventory.servers
        for engine in server.engines
    ]
    counted = gpu_counts(inventory.gpus, Plan((), {}).gpu_targets(engines), at)
    gpus: dict[str, tuple[float | None, str]] = {}
    for row in counted.iter_rows(named=True):
        why = reasons_of(row["gpu_reasons"]).get("gpus_lost", "")
        if row["gpus_found"]:
            gpus[row["instance"]] = row["gpus_found"], row["gpus_found_origin"] or "GPU readings"
        elif why.startswith(MIXED):
            gpus[row["instance"]] = None, why
    return gpus
