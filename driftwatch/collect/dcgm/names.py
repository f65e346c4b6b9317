"""DCGM's names and labels: which GPU a series of dcgm-exporter is of, and whose workload it runs.

Labels as dcgm-exporter writes them (its ``rendermetrics`` templates): gpu, UUID, modelName,
GPU_I_ID (of a MIG instance), Hostname (hostname since May 2026), and with
its Kubernetes option container, namespace, pod. A label with an empty value is an absent one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from driftwatch.collect.gpus import GPU_FIELDS

DCGM_NAMES = frozenset(name for field in GPU_FIELDS for name in field.dcgm_names)

_UUID = ("UUID", "uuid")  # the second with --use-old-namespace
_HOSTNAME = ("Hostname", "hostname", "node", "nodeName")  # the last two by relabelling
# the last ones by relabelling, as Prometheus' own example of Kubernetes does
_POD_OF_SCRAPE = ("kubernetes_pod_name", "kubernetes_pod")
_POD = ("pod", "pod_name", *_POD_OF_SCRAPE)
_NAMESPACE = ("namespace", "pod_namespace", "kubernetes_namespace")
_EXPORTED = ("exported_pod", "exported_namespace", "exported_container")


# Agents of managed clusters write names, labels and UUIDs in lower case (dcgm-exporter#577).
_AS_WRITTEN: Mapping[str, str] = {
    "uuid": "UUID",
    "modelname": "modelName",
    "gpu_i_id": "GPU_I_ID",
}


def canonical(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels of a series with DCGM's own as dcgm-exporter writes them.

    >>> canonical({"__name__": "dcgm_fi_dev_gpu_util", "uuid": "gpu-1f"})
    {'__name__': 'DCGM_FI_DEV_GPU_UTIL', 'UUID': 'GPU-1f'}
    """
    name = labels.get("__name__", "")
    if not name.islower():
        return dict(labels)
    own = {_AS_WRITTEN.get(label, label): value for label, value in labels.items()}
    own["__name__"] = name.upper()
    if own.get("UUID", "").startswith("gpu-"):
        own["UUID"] = "GPU-" + own["UUID"].removeprefix("gpu-")
    return own


DIVIDED = "GPUs that are divided into MIG instances are left out"


class Gpu(NamedTuple):
    """Who a row of the GPU table is of; columns of that name."""

    exporter: str
    hostname: str | None
    gpu: str | None
    uuid: str
    gpu_model: str | None
    namespace: str | None = None
    pod: str | None = None
    cluster: str | None = None

    @property
    def key(self) -> tuple[str | None, ...]:
        """What makes it another row: not what only describes it."""
        return (self.exporter, self.uuid, self.namespace, self.pod)


def gpu_of(
    labels: Mapping[str, str], exporter: str, own: frozenset[str] = frozenset()
) -> Gpu | str:
    """Whom a series is of, or why that cannot be told.

    ``exporter``: host:port that it was read from; ``own``: pods of the exporter itself (see
    :func:`own_pods`); none on a page that it wrote.
    """
    uuid = _first(labels, _UUID)
    if uuid is None:
        return "no UUID label: it cannot be told which GPU it is of"
    if labels.get("GPU_I_ID"):
        return DIVIDED
    namespace, pod = _workload(labels, own)
    # without the node's name the exporter takes that of its own pod, which tells nothing
    hostnames = (labels.get(name) for name in _HOSTNAME)
    return Gpu(
        exporter=exporter,
        hostname=next((host for host in hostnames if host and host not in own), None),
        gpu=labels.get("gpu") or None,
        uuid=uuid,
        gpu_model=labels.get("modelName") or None,
        namespace=namespace,
        pod=pod,
        cluster=labels.get("cluster") or None,
    )


def own_pods(
    series: Iterable[Mapping[str, str]], up: Iterable[Mapping[str, str]] | None
) -> frozenset[str]:
    """Pods of one exporter itself, as Prometheus labelled its series.

    A scrape adds the labels of its target. With ``honorLabels: false`` those win, and the
    workload's come as ``exported_*``; a GPU that nobody uses has none, so that its series carry
    the exporter's pod alone. With ``honorLabels: true`` the workload's win, and again an idle GPU
    carries the exporter's. In both cases the exporter's pod is the one that ``up`` of the same
    scrape carries, and with the first also any that stands beside ``exported_*``. Where no ``up``
    is stored it is taken for the exporter's if it is called after dcgm-exporter, or if the
    exporter names it as its host.

    ``up``: labels of its ``up`` series, None where there is none.
    """
    scrape = ("pod", *_POD_OF_SCRAPE)
    pods = {pod for one in up or () if (pod := _first(one, scrape))}
    for one in series:
        relabelled = _first(one, _POD_OF_SCRAPE)
        pod = relabelled or one.get("pod")
        if not pod:
            continue
        # a relabelled name takes nothing from the workload's: they stand beside each other
        beside = any(one.get(name) for name in (*_EXPORTED, *(("pod",) if relabelled else ())))
        named = "dcgm-exporter" in f"{pod} {one.get('container', '')}"
        hosts = (one.get("Hostname"), one.get("hostname"))
        if beside or (up is None and (named or pod in hosts)):
            pods.add(pod)
    return frozenset(pods)


def pod_of(labels: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Namespace and pod of a target, as its scrape labelled it.

    >>> pod_of({"kubernetes_namespace": "ml", "kubernetes_pod_name": "rag-0"})
    ('ml', 'rag-0')
    """
    return _first(labels, _NAMESPACE), _first(labels, _POD)


def _workload(labels: Mapping[str, str], own: frozenset[str]) -> tuple[str | None, str | None]:
    """Namespace and pod; both None where no workload is mapped to the GPU."""
    if any(labels.get(name) for name in _EXPORTED):
        return labels.get("exported_namespace") or None, labels.get("exported_pod") or None
    pod = _first(labels, _POD)
    if pod is None or pod in own:
        return None, None
    return _first(labels, _NAMESPACE), pod


def _first(labels: Mapping[str, str], names: Iterable[str]) -> str | None:
    return next((value for name in names if (value := labels.get(name))), None)
