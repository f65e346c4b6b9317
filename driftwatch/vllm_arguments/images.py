"""What an image's name tells: vLLM, another server, a release."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from driftwatch.vllm_arguments.table import Version, version_of_image
from driftwatch.yaml_positions import Entries, Node, Scalar

_OTHER = re.compile(
    r"sglang|text-generation-inference|\btgi\b|tensorrt|triton|lmdeploy|llama[._-]?cpp|ollama|"
    r"aphrodite|mindie|prometheus|grafana|nginx|busybox|alpine|curl|exporter|router"
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What stands around a command line."""

    version: Version | None = None  # of vLLM
    is_decided: bool = False  # a person named the version: no image changes it
    engine: str | None = None  # ``vllm``, ``other``; None = unknown
    is_kubernetes: bool = False  # Kubernetes reads the file

    def inside(self, entries: Entries) -> Surroundings:
        """The same for what stands in a mapping: its image, or repository and tag, counts."""
        here = self
        if "apiVersion" in entries.entries and "kind" in entries.entries:
            here = replace(here, is_kubernetes=True)
        image = image_of(entries)
        if not image:
            return here
        name = image.partition("@")[0].lower()
        if "vllm" in name and "router" not in name:
            here = replace(here, engine="vllm")
        elif _OTHER.search(name):
            here = replace(here, engine="other")
        version = version_of_image(image)
        return here if self.is_decided else replace(here, version=version)


def image_of(entries: Entries) -> str | None:
    """``image:`` of a container, or ``repository:`` and ``tag:`` of Helm values."""
    image = _child(entries, "image")
    if isinstance(image, Scalar) and isinstance(image.value, str):
        return image.value
    holder = image if isinstance(image, Entries) else entries
    repository, tag = _child(holder, "repository"), _child(holder, "tag")
    if not (isinstance(repository, Scalar) and isinstance(repository.value, str)):
        return None
    if not isinstance(tag, Scalar):
        return repository.value
    return f"{repository.value}:{tag.value if isinstance(tag.value, str) else tag.raw}"


def _child(entries: Entries, key: str) -> Node | None:
    return entries.entries[key][1] if key in entries.entries else None
