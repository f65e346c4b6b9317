"""What runs on a server as far as sources show it, and how two fingerprints differ.

vLLM's ``/metrics`` names neither its version nor the image or driver (0.32: the only ``_info``
series are of Python, the cache configuration and LoRA). They are read from ``/version``,
``/v1/models``, labels of scrapes, a start-up log and arguments (:mod:`driftwatch.collect.startup`).

Identity: with another model, GPU, parallelism, dtype or quantisation a baseline is not in force.
Knobs: the baseline stays in force. Release: it stays too, so that a slower upgrade shows. A value
that only one side knows is no difference.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from driftwatch.knobs import KNOBS
from driftwatch.model import Fingerprint, Serving

Group = Literal["identity", "knobs", "release"]
GROUPS: tuple[Group, ...] = ("identity", "knobs", "release")

KV_BLOCKS = "kv_cache_blocks"
# vLLM sizes its cache by the memory that is left: two starts with the same flags differ a little.
KV_BLOCKS_WITHIN = 0.05

# Scrape labels that say what release runs: what Kubernetes discovery is commonly relabelled to.
# A bare "version" may be anybody's.
RELEASE_LABELS: Mapping[str, str] = {
    "kube_image": "image",  # of kube_pod_container_info (PodImages)
    "vllm_version": "vllm",
    "image": "image",
    "container_image": "image",
    "driver_version": "driver",
    "DCGM_FI_DRIVER_VERSION": "driver",
}
_SERVING = (*KNOBS, "max_model_len")
# Labels of vllm:cache_config_info that are no flags: they follow from the blocks or from the start.
_NO_FLAG = frozenset(
    {
        "engine",
        "num_gpu_blocks",
        "num_cpu_blocks",
        "kv_cache_size_tokens",
        "kv_cache_max_concurrency",
        "effective_attention_block_size",
        "user_specified_block_size",
        "hash_block_size",
        "kv_cache_memory_bytes",
    }
)


def from_version(answer: Mapping[str, Any]) -> Fingerprint:
    """The answer of ``GET /version``; empty where it names no version."""
    version = answer.get("version")
    return Fingerprint(release={"vllm": version} if version and isinstance(version, str) else {})


def from_models(answer: Mapping[str, Any]) -> Fingerprint:
    """The answer of ``GET /v1/models``: the model's own name and max_model_len, of no adapter."""
    cards = answer.get("data")
    own = (c for c in cards if isinstance(c, dict)) if isinstance(cards, list) else ()
    card = next((one for one in own if one.get("parent") is None), {})
    length, root = card.get("max_model_len"), card.get("root")
    return Fingerprint(
        identity={"model": root} if root and isinstance(root, str) else {},
        knobs={"max_model_len": str(length)} if isinstance(length, int) and length > 0 else {},
    )


def fingerprint_of(
    labels: Mapping[str, str],
    serving: Serving,
    cache_config: str | None = None,
    gpu: str | None = None,
    reported: Fingerprint | None = None,
) -> Fingerprint:
    """What is known of one target, without inferred settings.

    ``cache_config``: the labels of ``vllm:cache_config_info`` as JSON; ``gpu``: name of its GPUs;
    ``reported``: from the server's answer or its start-up log; it wins over the others.
    """
    identity = {"model_name": labels["model_name"]} if labels.get("model_name") else {}
    if gpu is not None:
        identity["gpu"] = gpu
    knobs = {
        name: f"{setting.value:.15g}"
        for name in _SERVING
        if (setting := serving.setting(name)) is not None
    }
    release = {name: labels[label] for name, label in _release_labels(labels).items()}
    own = Fingerprint(identity, {**dict(_flags(cache_config)), **knobs}, release)
    return merged(own) if reported is None else merged(reported, own)


def _release_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Part of the release → the label that holds it."""
    return {name: label for label, name in RELEASE_LABELS.items() if labels.get(label)}


def release_text(fingerprint: Fingerprint) -> str | None:
    """``vllm 0.32.0, image …``; None where no part of the release is known."""
    release = fingerprint.release
    return ", ".join(f"{name} {release[name]}" for name in sorted(release)) or None


def release_sources(labels: Mapping[str, str], reported: Fingerprint | None) -> dict[str, str]:
    """Part of the release → where it was read, in words.

    >>> release_sources({"kube_image": "vllm:0.33"}, None)
    {'image': 'kube_pod_container_info'}
    """
    of_labels = {
        name: "kube_pod_container_info" if label == "kube_image" else f"label {label}"
        for name, label in _release_labels(labels).items()
    }
    own = {} if reported is None else reported.release
    return of_labels | dict.fromkeys(own, "the server's own answer")


def _flags(cache_config: str | None) -> Iterator[tuple[str, str]]:
    try:
        labels: Any = orjson.loads(cache_config or "{}")
    except orjson.JSONDecodeError:
        return
    for name, value in labels.items() if isinstance(labels, dict) else ():
        if not isinstance(value, str) or value in ("", "None"):
            continue
        if name == "num_gpu_blocks":
            yield KV_BLOCKS, value
        elif name not in _NO_FLAG and not name.startswith("_"):
            yield name, value


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that differs from the baseline's."""

    group: Group  # which of the three
    name: str  # as vLLM calls it
    before: str  # in the baseline window
    now: str  # what runs

    @property
    def text(self) -> str:
        """``max_num_seqs 64 → 128``."""
        return f"{self.name} {self.before} → {self.now}"


def differences(
    before: Fingerprint, now: Fingerprint, groups: Sequence[Group] = GROUPS
) -> tuple[Difference, ...]:
    """Values that both know and that differ, by group and name.

    KV blocks within :data:`KV_BLOCKS_WITHIN` of each other are the same.
    """
    return tuple(
        Difference(group, name, old[name], new[name])
        for group in groups
        for old, new in [(getattr(before, group), getattr(now, group))]
        for name in sorted(old.keys() & new.keys())
        if not _same(name, old[name], new[name])
    )


def merged(*sources: Fingerprint) -> Fingerprint:
    """Each name with the value of the first source that knows it."""
    groups = {group: ChainMap(*(dict(getattr(one, group)) for one in sources)) for group in GROUPS}
    return Fingerprint(**{group: dict(sorted(values.items())) for group, values in groups.items()})


def common(fingerprints: Sequence[Fingerprint]) -> Fingerprint:
    """The values that all servers share: the fingerprint of a pool."""
    shared: dict[str, dict[str, str]] = {}
    for group in GROUPS:
        of_each = [set(getattr(one, group).items()) for one in fingerprints]
        shared[group] = dict(sorted(set.intersection(*of_each))) if of_each else {}
    return Fingerprint(**shared)


def _same(name: str, before: str, now: str) -> bool:
    if before == now:
        return True
    try:
        old, new = float(before), float(now)
    except ValueError:
        return False
    return math.isclose(old, new, rel_tol=KV_BLOCKS_WITHIN if name == KV_BLOCKS else 0.0)
