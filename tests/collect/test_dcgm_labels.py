"""Whose GPU a series of DCGM is: its labels, as exporters and scrapes write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from gpu_label_cases import BASE, EXPORTED, OWN, WORK

from driftwatch.collect.dcgm.names import DIVIDED, Gpu, gpu_of, own_pods


def workload(labels: Mapping[str, str], own: frozenset[str] = frozenset()) -> tuple[Any, ...]:
    found = gpu_of({**BASE, **labels}, "node-1:9400", own)
    assert isinstance(found, Gpu)
    return found.namespace, found.pod


def test_every_label() -> None:
    labels = {
        "gpu": "3",
        "UUID": "GPU-a",
        "pci_bus_id": "00000000:1A:00.0",
        "device": "nvidia3",
        "modelName": "NVIDIA H100 80GB HBM3",
        "Hostname": "node-1",
        "DCGM_FI_DRIVER_VERSION": "535.129.03",
        **WORK,
    }
    assert gpu_of(labels, "e:9400") == Gpu(
        exporter="e:9400",
        hostname="node-1",
        gpu="3",
        uuid="GPU-a",
        gpu_model="NVIDIA H100 80GB HBM3",
        namespace="prod",
        pod="vllm-0",
    )


@pytest.mark.parametrize(
    ("labels", "hostname"),
    [
        ({"Hostname": "a"}, "a"),
        ({"hostname": "a"}, "a"),
        ({"Hostname": "", "hostname": "a"}, "a"),
        # the exporter's pod is no host; a label that relabelling added is
        ({"Hostname": OWN["pod"], "node": "a"}, "a"),
        ({"hostname": OWN["pod"]}, None),
        ({}, None),
    ],
)
def test_hostname(labels: dict[str, str], hostname: str | None) -> None:
    found = gpu_of({"UUID": "GPU-a", **labels}, "e:9400", frozenset({OWN["pod"]}))
    assert isinstance(found, Gpu)
    assert found.hostname == hostname


@pytest.mark.parametrize("labels", [{}, {"UUID": "", "gpu": "0"}])
def test_a_series_without_uuid_is_of_no_gpu(labels: dict[str, str]) -> None:
    assert gpu_of(labels, "e:9400") == "no UUID label: it cannot be told which GPU it is of"


def test_a_mig_instance_is_left_out() -> None:
    assert gpu_of({**BASE, "GPU_I_ID": "0"}, "e:9400") == DIVIDED


def test_the_old_name_of_uuid() -> None:
    found = gpu_of({"uuid": "GPU-a"}, "e:9400")
    assert isinstance(found, Gpu)
    assert found.uuid == "GPU-a"


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        (WORK, ("prod", "vllm-0")),
        (
            {"pod_name": "vllm-0", "pod_namespace": "prod", "container_name": "vllm"},
            ("prod", "vllm-0"),
        ),
        ({"pod": "", "namespace": "", "container": ""}, (None, None)),
        ({}, (None, None)),
        # honorLabels false
        ({**OWN, **EXPORTED}, ("prod", "vllm-0")),
        (OWN, (None, None)),
        # an empty exported label is none: the pod is still the exporter's
        ({**OWN, "exported_pod": ""}, (None, None)),
    ],
)
def test_whose_workload(labels: dict[str, str], found: tuple[str | None, ...]) -> None:
    assert workload(labels, frozenset({OWN["pod"]})) == found


def test_own_pods_stand_beside_exported_ones() -> None:
    assert own_pods([{**OWN, **EXPORTED}, OWN], up=[{"job": "dcgm"}]) == {OWN["pod"]}


RELABELLED = {"kubernetes_namespace": "gpu", "kubernetes_pod_name": "exporter-x"}


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ({"kubernetes_namespace": "ml", "kubernetes_pod_name": "rag-0"}, ("ml", "rag-0")),
        ({"kubernetes_namespace": "ml", "kubernetes_pod": "rag-0"}, ("ml", "rag-0")),
        (RELABELLED | {"namespace": "ml", "pod": "rag-0"}, ("ml", "rag-0")),
        (RELABELLED | {"exported_namespace": "ml", "exported_pod": "a"}, ("ml", "a")),
        (RELABELLED, (None, None)),
    ],
)
def test_prometheus_own_relabelling(labels: dict[str, str], found: tuple[str | None, ...]) -> None:
    own = own_pods([labels], up=[RELABELLED | {"job": "dcgm"}])
    assert own == {"exporter-x"}
    assert workload(labels, own) == found


def test_without_up_a_relabelled_pod_beside_the_workloads_is_the_exporters() -> None:
    assert own_pods([RELABELLED | {"pod": "rag-0"}], up=None) == {"exporter-x"}


def test_own_pods_are_those_of_up() -> None:
    odd = {"pod": "gpu-metrics-1", "namespace": "gpu-operator"}
    assert own_pods([WORK, odd], up=[odd]) == {"gpu-metrics-1"}
    # a target without a pod adds none: what is there is the workload's, whatever its name
    assert own_pods([{"pod": "dcgm-exporter-load-test"}], up=[{"instance": "e:9400"}]) == set()


@pytest.mark.parametrize(
    ("series", "own"),
    [
        ([OWN], {OWN["pod"]}),
        ([{"pod": "metrics-1", "container": "nvidia-dcgm-exporter"}], {"metrics-1"}),
        ([{"pod": "metrics-1", "Hostname": "metrics-1"}], {"metrics-1"}),
        ([{"pod": "metrics-1", "hostname": "metrics-1"}], {"metrics-1"}),
        ([WORK], set()),
    ],
)
def test_own_pods_where_no_up_is_stored(series: list[dict[str, str]], own: set[str]) -> None:
    assert own_pods(series, up=None) == own
