"""What ran in a baseline's window, what runs now, and what a difference means.

Identity: with another model, GPU, parallelism, dtype or quantisation a baseline is not in force.
Knobs: the baseline stays in force. Release: it stays too, so that a slower upgrade shows. A value
that only one side knows is no difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
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
    "kube_image": "image",  # of kube_pod_container_info (driftwatch/collect/prometheus/images.py)
    "vllm_version": "vllm",
    "image": "image",
    "container_image": "image",
    "driver_version": "driver",
    "DCGM_FI_DRIVER_VERSION": "driver",
}
_IDENTITY_LABELS: Mapping[str, str] = {"model_name": "model_name"}
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


def differences(before: Fingerprint, now: Fingerprint) -> tuple[Difference, ...]:
    """Values that both know and that differ, by group and name.

    KV blocks within :data:`KV_BLOCKS_WITHIN` of each other are the same.
    """
    return tuple(
        Difference(group, name, old[name], new[name])
        for group in GROUPS
        for old, new in [(getattr(before, group), getattr(now, group))]
        for name in sorted(old.keys() & new.keys())
        if not _same(name, old[name], new[name])
    )


def only(every: tuple[Difference, ...], group: Group) -> tuple[Difference, ...]:
    """Those of one group."""
    return tuple(one for one in every if one.group == group)


def merged(*sources: Fingerprint) -> Fingerprint:
    """Each name with the value of the first source that knows it."""
    groups: dict[str, dict[str, str]] = {group: {} for group in GROUPS}
    for source in reversed(sources):
        for group in GROUPS:
            groups[group] |= getattr(source, group)
    return Fingerprint(**{group: dict(sorted(values.items())) for group, values in groups.items()})


def common(fingerprints: list[Fingerprint]) -> Fingerprint:
    """The values that all servers share: the fingerprint of a pool."""
    if not fingerprints:
        return Fingerprint()
    first, *others = fingerprints
    return Fingerprint(
        **{
            group: {
                name: value
                for name, value in getattr(first, group).items()
                if all(getattr(other, group).get(name) == value for other in others)
            }
            for group in GROUPS
        }
    )


def fingerprint_of(
    labels: Mapping[str, str],
    serving: Serving,
    cache_config: str | None = None,
    gpu_models: tuple[str, ...] = (),
    reported: Fingerprint | None = None,
) -> Fingerprint:
    """What is known of one target, without inferred settings.

    ``cache_config``: the labels of ``vllm:cache_config_info`` as JSON; ``gpu_models``: names of its
    GPUs; ``reported``: from the server's answer or its start-up log; it wins over the others.
    """
    identity = {
        name: labels[label] for label, name in _IDENTITY_LABELS.items() if labels.get(label)
    }
    if gpu_models:
        identity["gpu"] = ", ".join(sorted(set(gpu_models)))
    knobs = {
        name: f"{setting.value:.15g}"
        for name in _SERVING
        if (setting := serving.setting(name)) is not None
    }
    release = {name: labels[label] for label, name in RELEASE_LABELS.items() if labels.get(label)}
    own = Fingerprint(identity, {**dict(_flags(cache_config)), **knobs}, release)
    return merged(own) if reported is None else merged(reported, own)


def without_knobs(fingerprint: Fingerprint) -> Fingerprint:
    """The same server whatever its settings."""
    return replace(fingerprint, knobs={})


def release_text(fingerprint: Fingerprint) -> str | None:
    """``vllm 0.32.0, image …``; None where no part of the release is known."""
    release = fingerprint.release
    return ", ".join(f"{name} {release[name]}" for name in sorted(release)) or None


def release_source(name: str, labels: Mapping[str, str], reported: Fingerprint | None) -> str:
    """Where a part of the release was read, in words.

    >>> release_source("image", {"kube_image": "vllm:0.33"}, None)
    'kube_pod_container_info'
    """
    if reported is not None and name in reported.release:
        return "the server's own answer"
    sources = [
        label for label, part in RELEASE_LABELS.items() if part == name and labels.get(label)
    ]
    if not sources:
        return "unknown"
    return "kube_pod_container_info" if sources[-1] == "kube_image" else f"label {sources[-1]}"


def _flags(cache_config: str | None) -> Iterator[tuple[str, str]]:
    labels: Any = None
    if cache_config is not None:
        try:
            labels = orjson.loads(cache_config)
        except orjson.JSONDecodeError:
            return
    if not isinstance(labels, dict):
        return
    for name, value in labels.items():
        unset = not isinstance(value, str) or value in ("", "None")
        if name == "num_gpu_blocks" and not unset:
            yield KV_BLOCKS, value
        elif not unset and name not in _NO_FLAG and not name.startswith("_"):
            yield name, value


def _same(name: str, before: str, now: str) -> bool:
    if before == now:
        return True
    try:
        old, new = float(before), float(now)
    except ValueError:
        return False
    if name == KV_BLOCKS:
        return old > 0 and abs(new - old) <= KV_BLOCKS_WITHIN * old + 1e-9
    return old == new
