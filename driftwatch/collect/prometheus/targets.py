"""What else a Prometheus-compatible API shows of targets: prefixes, other engines, images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from driftwatch.collect.foreign import without_vllm
from driftwatch.collect.identity import IMAGE_LABEL, identity_of
from driftwatch.collect.prometheus.client import PrometheusAsker
from driftwatch.collect.prometheus.query import matchers, select, unix_ms
from driftwatch.collect.registry import OWN_LABELS, SHAPE_PATTERN, VLLM, Labels, prefixes_of
from driftwatch.errors import SourceError
from driftwatch.model import Target, TargetKey

# each engine has one series of each of these
_ENGINE_SERIES = ("vllm:num_requests_running", "vllm:generation_tokens_total")
_MOST = 20  # targets that one call looks up
# what Prometheus itself adds to a target
_ITS_OWN = ("scrape_", "ALERTS")


def look_for_prefixes(
    asker: PrometheusAsker, matching: str, at: datetime, back: timedelta = timedelta(minutes=5)
) -> frozenset[str]:
    """The prefixes of vLLM's names there, ``vllm:`` always among them: relabelling, Ray and KServe
    write others.

    Raises SourceError: the API does not list names.
    """
    inside = f'__name__=~"{SHAPE_PATTERN}"' + (f",{matching}" if matching else "")
    span = (unix_ms(at - back), unix_ms(at))
    return prefixes_of(asker.label_values("__name__", [f"{{{inside}}}"], span)) | {VLLM}


def vllm_servers(asker: PrometheusAsker, at: datetime) -> int:
    """How many servers have a series of vLLM, whatever their labels.

    Raises SourceError: the API does not answer.
    """
    series = asker.instant(select(_ENGINE_SERIES, ""), at)
    return len({identity_of(labels, OWN_LABELS) for labels, _ in series})


def why_no_vllm(asker: PrometheusAsker, instances: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Instance → why it has no ``vllm:`` series; for up to 20, where the API answers.

    ``instances``: with ``up`` 1 and no ``vllm:`` series now.
    """
    for instance in sorted(instances)[:_MOST]:
        try:
            names = asker.label_values("__name__", [f"{{{matchers({'instance': instance})}}}"])
        except SourceError:
            continue  # the reason in the rows stays true
        # names that other times and recording rules left behind say nothing
        own = [n for n in names if n != "up" and not n.startswith((*_ITS_OWN, "vllm:"))]
        yield instance, without_vllm(own)


_CONTAINERS = "kube_pod_container_info"


class PodImages:
    """The image of each server's container, as kube-state-metrics shows it to a Prometheus.

    vLLM's own series name no release. ``kube_pod_container_info`` has a series for each container;
    whose it is follows from the labels ``namespace``, ``pod`` and ``container`` of a target's own
    series. An image that an answer does not show stays as it was: a query may fail, a pod may be in
    replacement.
    """

    def __init__(self) -> None:
        # namespace, pod, own container → image
        self._image_of: dict[tuple[str, str, str], str] = {}

    def added(
        self, targets: Mapping[TargetKey, Target], ask: Callable[[str], Sequence[Labels]]
    ) -> dict[TargetKey, Target]:
        """The targets with :data:`IMAGE_LABEL` where the image of their container is known.

        ``ask``: labels of the series that a query brings.
        """
        labels_of = {key: one.labels for key, one in targets.items()}
        places = {
            key: (of["namespace"], of["pod"], of.get("container") or "")
            for key, of in labels_of.items()
            if of.get("namespace") and of.get("pod")
        }
        if places:
            # one query for every namespace; a pod's name is compared here, for it may name many
            spaces = matchers({"namespace": sorted({place[0] for place in places.values()})})
            found: dict[tuple[str | None, str | None], dict[str, set[str]]] = {}
            for labels in ask(f"{_CONTAINERS}{{{spaces}}}"):
                of_pod = found.setdefault((labels.get("namespace"), labels.get("pod")), {})
                if (container := labels.get("container")) and (image := labels.get("image")):
                    of_pod.setdefault(container, set()).add(image)
            for place in set(places.values()):
                containers = found.get(place[:2], {})
                # without a label of the container only that of the pod's only one is known
                only = next(iter(containers)) if len(containers) == 1 else ""
                images = containers.get(place[2] or only, ())
                if len(images) == 1:  # of a pod that is just being replaced both are there
                    self._image_of[place] = next(iter(images))
        images_of = {key: self._image_of.get(place) for key, place in places.items()}
        return {
            key: replace(one, labels={**one.labels, IMAGE_LABEL: image})
            if (image := images_of.get(key))
            else one
            for key, one in targets.items()
        }
