"""From what was seen to pools: which servers belong together, and what is known of them. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from driftwatch.collect.dcgm.names import pod_of
from driftwatch.collect.prometheus.discover import Hint, Inventory, Server
from driftwatch.collect.server_settings import from_cache_config, merge, serving_of
from driftwatch.knobs import COLUMN_KNOBS, KNOBS, refusal
from driftwatch.model import Serving, Setting, Target, TargetKey
from driftwatch.onboarding.arguments import Arguments
from driftwatch.pipeline.plan import Plan
from driftwatch.signals.gpus import gpu_counts
from driftwatch.signals.gpus.words import MIXED, reasons_of

_APART = 1.1  # KV cache sizes this much apart are two configurations; profiling varies by less
# labels that name one server rather than a kind of them
_OF_ONE_SERVER = frozenset(
    ("instance", "pod", "pod_ip", "container_id", "uid", "id", "hostname", "host", "node", "ip")
)
_NAMESPACES = ("namespace", "kubernetes_namespace")


@dataclass(frozen=True, slots=True)
class FoundPool:
    """Servers that are configured alike, as far as can be seen."""

    name: str  # fit for ``pools[].name``, unique
    match: Mapping[str, str]  # labels that its servers have and no other pool's
    servers: tuple[Server, ...]  # by instance
    # settings that something shows, with where; those that differ are left out
    serving: Serving = field(default_factory=Serving)
    # the same for all servers whose GPUs are known, by readings and by arguments; None = not known
    # or not the same
    gpus_per_replica: float | None = None
    gpus_source: str = ""  # what says so, or why it is not known
    # of one engine, smallest and largest; None where no page says it
    kv_cache_tokens: tuple[float, float] | None = None
    doubts: tuple[str, ...] = ()  # what does not fit together, one sentence each

    @property
    def engines(self) -> int:
        """Engines of all its servers."""
        return sum(len(server.engines) for server in self.servers)


@dataclass(frozen=True, slots=True)
class Discovery:
    """What is written down."""

    # in the order of the file: a target belongs to the first that matches
    pools: tuple[FoundPool, ...]
    unjoined: tuple[Hint, ...] = ()  # command lines of vLLM that fit no server


def found_pools(inventory: Inventory, at: datetime) -> Discovery:
    """The servers in pools: by namespace and model, then by what tells different ones apart.

    ``inventory``: what was seen; ``at``: when; GPU readings of the two minutes before it count.
    """
    arguments = Arguments(inventory.hints)
    stated_settings: dict[str, tuple[Serving, ...]] = {
        s.instance: arguments.of(s) for s in inventory.servers
    }
    gpus = _gpus(inventory, at)
    wanted_gpus = {s.instance: arguments.gpus(s) for s in inventory.servers}
    repeated = _repeated_pods(inventory.servers)
    groups: dict[_Group, list[Server]] = {}
    for server in inventory.servers:
        groups.setdefault(_group(server, repeated), []).append(server)
    pools: list[FoundPool] = []
    names: set[str] = set()
    many = len({namespace for namespace, _, _ in groups}) > 1
    ordered = sorted(groups.items(), key=lambda g: ([k is None for k in g[0]], str(g[0])))
    for (namespace, model, cluster), servers in ordered:
        match = dict(one for one in (namespace, model, cluster) if one is not None)
        kinds = _kinds(servers, stated_settings)
        label = _telling(servers, kinds) if len(set(kinds)) > 1 else None
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
            if cluster:
                doubts = (*doubts, _of_one_cluster(members, repeated))
            pools.append(_described(pool, stated_settings, gpus, wanted_gpus, doubts))
    return Discovery(tuple(pools), arguments.unjoined)


_Label = tuple[str, str]
_Group = tuple[_Label | None, _Label | None, _Label | None]  # namespace, model, cluster
_Pod = tuple[str | None, str]


def _repeated_pods(servers: Iterable[Server]) -> dict[_Pod, list[str]]:
    """Pods whose name several clusters have, and which."""
    clusters: dict[_Pod, set[str]] = {}
    for server in servers:
        namespace, pod = pod_of(server.labels)
        if pod and server.labels.get("cluster"):
            clusters.setdefault((namespace, pod), set()).add(server.labels["cluster"])
    return {pod: sorted(named) for pod, named in clusters.items() if len(named) > 1}


def _group(server: Server, repeated: Mapping[_Pod, object]) -> _Group:
    """What servers of one pool share: the cluster only where pods' names repeat."""
    labels = server.labels
    namespace = next(((n, labels[n]) for n in _NAMESPACES if labels.get(n)), None)
    model, cluster = labels.get("model_name"), labels.get("cluster")
    apart = any(space == pod_of(labels)[0] for space, _ in repeated)
    return (
        namespace,
        None if model is None else ("model_name", model),
        ("cluster", cluster) if apart and cluster else None,
    )


def _of_one_cluster(servers: Sequence[Server], repeated: Mapping[_Pod, Sequence[str]]) -> str:
    space = pod_of(servers[0].labels)[0]
    (namespace, pod), clusters = next(one for one in repeated.items() if one[0][0] == space)
    name = f"{namespace}/{pod}" if namespace else pod
    return (
        f"pod {name} is in several clusters ({', '.join(clusters)}): a pool for each; GPU "
        "readings join by pod only if they have the label cluster as well"
    )


def _described(
    pool: FoundPool,
    stated_settings: Mapping[str, tuple[Serving, ...]],
    gpus: Mapping[str, tuple[float | None, str]],
    wanted_gpus: Mapping[str, Sequence[tuple[float, str]]],
    doubts: tuple[str, ...],
) -> FoundPool:
    every = [one for server in pool.servers for one in stated_settings[server.instance]]
    serving, disagreements = _agreed(every, len(pool.servers))
    count, source = _gpu_count(pool.servers, gpus, wanted_gpus)
    sizes = [s for server in pool.servers for s in _kv_sizes(server)]
    return replace(
        pool,
        serving=serving,
        gpus_per_replica=count,
        gpus_source=source,
        kv_cache_tokens=(min(sizes), max(sizes)) if sizes else None,
        doubts=(*doubts, *disagreements),
    )


def _gpu_count(
    servers: Sequence[Server],
    gpus: Mapping[str, tuple[float | None, str]],
    wanted_gpus: Mapping[str, Sequence[tuple[float, str]]],
) -> tuple[float | None, str]:
    """GPUs of each server and what says so; None, and why, where nothing does or they differ."""
    of = f"of {len(servers)} servers"
    readings = [gpus[s.instance] for s in servers if s.instance in gpus]
    counted = [(count, origin) for count, origin in readings if count is not None]
    sizes = [one for s in servers for one in wanted_gpus[s.instance]]
    counts, wanted = ({count for count, _ in every} for every in (counted, sizes))
    if len(counts) > 1:
        differing = ", ".join(
            f"{c:g} on {n}" for c, n in sorted(Counter(c for c, _ in counted).items())
        )
        return None, f"not the same on all servers: {differing}"
    if len(wanted) > 1:
        differing = ", ".join(f"{count:g}" for count in sorted(wanted))
        return None, f"command lines ask for different numbers of GPUs: {differing}"
    (asks, where) = sizes[0] if sizes else (None, "")
    if not counted:
        if asks is not None:
            some = sum(bool(wanted_gpus[s.instance]) for s in servers)
            return asks, f"parallel sizes in {where}, {some} {of}"
        return None, readings[0][1] if readings else ""
    count, origin = counted[0]
    if asks is not None and asks != count:
        return None, (
            f"{where} asks for {asks:g} GPUs (tensor x pipeline x data parallel size), {origin} "
            f"shows {count:g} at the server's pod or host: over several nodes {asks:g} is right"
        )
    also = f" and parallel sizes in {where}" if asks is not None else ""
    return count, f"{origin}{also}, {len(counted)} {of}"


def _agreed(every: Sequence[Serving], servers: int) -> tuple[Serving, tuple[str, ...]]:
    """Settings on which all agree; a sentence for each on which they do not."""
    agreed: dict[str, Setting] = {}
    doubts = []
    for name in (*KNOBS, "max_model_len", "api_server_count"):
        values = [setting for one in every if (setting := one.setting(name)) is not None]
        if len({setting.value for setting in values}) == 1:
            detail = f"{values[0].detail}; {min(len(values), servers)} of {servers} servers"
            agreed[name] = replace(values[0], detail=detail)
        elif values:
            different = sorted({setting.value for setting in values})
            doubts.append(f"{name} is not the same: {', '.join(f'{v:g}' for v in different)}")
    why = refusal({name: one.value for name, one in agreed.items()})
    if why is not None:
        doubts.append(why)
        del agreed["max_num_batched_tokens"]
    return serving_of(agreed), tuple(doubts)


def _kinds(
    servers: Sequence[Server], stated_settings: Mapping[str, tuple[Serving, ...]]
) -> list[object]:
    """What each server's configuration looks like; equal ones are the same kind."""
    sizes = sorted({size for server in servers for size in _kv_sizes(server)})
    band: dict[float, int] = {}
    for before, size in zip([0.0, *sizes], sizes, strict=False):
        band[size] = band.get(before, -1) + (size > before * _APART)
    settings = [merge(*stated_settings[server.instance]) for server in servers]
    values = [[getattr(one, name) for one in settings] for name in COLUMN_KNOBS]
    # what only some say makes no kind of the others
    complete = [[v.value for v in column] for column in values if None not in column]
    return [
        (
            tuple(sorted({band[size] for size in _kv_sizes(server)})),
            *(column[i] for column in complete),
        )
        for i, server in enumerate(servers)
    ]


def _telling(servers: Sequence[Server], kinds: Sequence[object]) -> str | None:
    """The label whose value tells the kind of a server, with the fewest values; None = none."""
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
        f"its servers are of {len(first)} kinds (KV cache size or settings; compare {examples}), "
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
