"""The image of each server's container, as kube-state-metrics shows it to a Prometheus.

vLLM's own series name no release. ``kube_pod_container_info`` (kube-state-metrics) has a series for
each container with its namespace, pod, container and image; whose it is follows from the labels
``namespace``, ``pod`` and ``container`` of a target's own series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from driftwatch.collect.cells import Labels
from driftwatch.collect.identity import IMAGE_LABEL
from driftwatch.collect.prometheus.query import matchers
from driftwatch.model import Target, TargetKey

METRIC = "kube_pod_container_info"
# Of several containers in a pod, the one that runs vLLM where the target's labels do not say.
_VLLM = "vllm"
_EVERY_MS = 60_000  # an image changes with a pod, and a pod takes longer than that to come

Ask = Callable[[str], Sequence[Labels]]
Pod = tuple[str, str]  # namespace, pod


@dataclass(slots=True)
class PodImages:
    """Images by pod, asked for at most once a minute.

    What an answer does not show stays as it was known: a query that fails, a pod that is just being
    replaced.
    """

    _image_of: dict[tuple[str, str, str], str] = field(default_factory=dict)  # pod, own container
    _pods: frozenset[Pod] = frozenset()
    _asked_ms: int | None = None

    def added(
        self, targets: Mapping[TargetKey, Target], at_ms: int, ask: Ask
    ) -> dict[TargetKey, Target]:
        """The targets with :data:`IMAGE_LABEL` where the image of their container is known.

        ``at_ms``: unix ms of the moment; ``ask``: labels of the series that a query brings.
        """
        pods = frozenset(pod for one in targets.values() if (pod := _pod(one.labels)) is not None)
        due = self._asked_ms is None or not 0 <= at_ms - self._asked_ms < _EVERY_MS
        if pods and (due or not pods <= self._pods):
            self._asked_ms, self._pods = at_ms, pods
            self._learn(targets.values(), ask(_query(pods)))
        return {key: self._with_image(one) for key, one in targets.items()}

    def _learn(self, targets: Iterable[Target], series: Iterable[Labels]) -> None:
        of: dict[Pod, dict[str, set[str]]] = {}
        for labels in series:
            pod = (labels.get("namespace", ""), labels.get("pod", ""))
            container, image = labels.get("container", ""), labels.get("image", "")
            if all(pod) and container and image:
                of.setdefault(pod, {}).setdefault(container, set()).add(image)
        for target in targets:
            pod_of_it = _pod(target.labels)
            if pod_of_it is None:
                continue
            images = _images(of.get(pod_of_it, {}), target.labels.get("container"))
            if len(images) == 1:  # of a pod that is just being replaced both are there
                self._image_of[_place(target, pod_of_it)] = next(iter(images))

    def _with_image(self, target: Target) -> Target:
        pod = _pod(target.labels)
        image = None if pod is None else self._image_of.get(_place(target, pod))
        if image is None or target.labels.get(IMAGE_LABEL) == image:
            return target
        return replace(target, labels={**target.labels, IMAGE_LABEL: image})


def _pod(labels: Labels) -> Pod | None:
    namespace, pod = labels.get("namespace"), labels.get("pod")
    return (namespace, pod) if namespace and pod else None


def _place(target: Target, pod: Pod) -> tuple[str, str, str]:
    return (*pod, target.labels.get("container") or "")


def _images(containers: Mapping[str, set[str]], own: str | None) -> set[str]:
    """Images of the container that the server runs in; none where that is not known."""
    if own is not None and own in containers:
        return containers[own]
    if own is not None or len(containers) <= 1:
        return next(iter(containers.values()), set()) if own is None else set()
    named = [
        images
        for name, images in containers.items()
        if _VLLM in name.lower() or any(_VLLM in image.lower() for image in images)
    ]
    return named[0] if len(named) == 1 else set()


def _query(pods: Iterable[Pod]) -> str:
    r"""One query for every namespace; a pod's name is compared here, for the answer may name many.

    >>> _query([("b.c", "x"), ("a", "y")])
    'kube_pod_container_info{namespace=~"a|b\\\\.c"}'
    """
    return f"{METRIC}{{{matchers({'namespace': sorted({space for space, _ in pods})})}}}"
