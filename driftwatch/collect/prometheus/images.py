"""The image of each server's container, as kube-state-metrics shows it to a Prometheus.

vLLM's own series name no release. ``kube_pod_container_info`` (kube-state-metrics) has a series for
each container with its namespace, pod, container and image; whose it is follows from the labels
``namespace``, ``pod`` and ``container`` of a target's own series.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from driftwatch.collect.cells import Labels
from driftwatch.collect.identity import IMAGE_LABEL
from driftwatch.collect.prometheus.query import matchers
from driftwatch.model import Target, TargetKey

METRIC = "kube_pod_container_info"
_VLLM = "vllm"  # in the name or image of the container that runs it, where its labels do not say
_EVERY_MS = 60_000  # an image changes with a pod, and a pod takes longer than that to come

Ask = Callable[[str], Sequence[Labels]]
Pod = tuple[str, str]  # namespace, pod
Images = Mapping[str, set[str]]  # container of a pod → its images


class PodImages:
    """Images by pod, queried at most once a minute.

    What an answer does not show stays as it was known: a query that fails, a pod that is just being
    replaced.
    """

    def __init__(self) -> None:
        # namespace, pod, own container → image
        self._image_of: dict[tuple[str | None, str | None, str], str] = {}
        self._pods: frozenset[Pod] = frozenset()
        self._asked_ms: int | None = None

    def added(
        self, targets: Mapping[TargetKey, Target], at_ms: int, ask: Ask
    ) -> dict[TargetKey, Target]:
        """The targets with :data:`IMAGE_LABEL` where the image of their container is known.

        ``at_ms``: unix ms of the moment; ``ask``: labels of the series that a query brings.
        """
        places = {
            (space, pod, one.labels.get("container") or "")
            for one in targets.values()
            if (space := one.labels.get("namespace")) and (pod := one.labels.get("pod"))
        }
        pods = frozenset((space, pod) for space, pod, _ in places)
        due = self._asked_ms is None or not 0 <= at_ms - self._asked_ms < _EVERY_MS
        if pods and (due or not pods <= self._pods):
            self._asked_ms, self._pods = at_ms, pods
            # one query for every namespace; a pod's name is compared here, for it may name many
            spaces = matchers({"namespace": sorted({space for space, _ in pods})})
            found: dict[tuple[str | None, str | None], dict[str, set[str]]] = {}
            for labels in ask(f"{METRIC}{{{spaces}}}"):
                of_pod = found.setdefault((labels.get("namespace"), labels.get("pod")), {})
                if (container := labels.get("container")) and (image := labels.get("image")):
                    of_pod.setdefault(container, set()).add(image)
            for space, name, own in places:
                images = _own_images(found.get((space, name), {}), own)
                if len(images) == 1:  # of a pod that is just being replaced both are there
                    self._image_of[space, name, own] = next(iter(images))
        return {key: self._with_image(one) for key, one in targets.items()}

    def _with_image(self, target: Target) -> Target:
        labels = target.labels
        place = (labels.get("namespace"), labels.get("pod"), labels.get("container") or "")
        image = self._image_of.get(place)
        if image is None or target.labels.get(IMAGE_LABEL) == image:
            return target
        return replace(target, labels={**target.labels, IMAGE_LABEL: image})


def _own_images(containers: Images, own: str) -> set[str]:
    """Images of the container that the server runs in; none where that is not known."""
    if own or len(containers) <= 1:
        return containers.get(own, set()) if own else next(iter(containers.values()), set())
    named = [
        images
        for name, images in containers.items()
        if _VLLM in name.lower() or any(_VLLM in image.lower() for image in images)
    ]
    return named[0] if len(named) == 1 else set()
