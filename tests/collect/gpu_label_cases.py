"""A GPU by the labels of its series, as the tests of DCGM give them."""

from __future__ import annotations

from driftwatch.collect.dcgm.names import Gpu, gpu_of

BASE = {"gpu": "3", "UUID": "GPU-a", "Hostname": "node-1"}
OWN = {"pod": "nvidia-dcgm-exporter-7mqjg", "namespace": "gpu-operator", "container": "exporter"}
WORK = {"pod": "vllm-0", "namespace": "prod", "container": "vllm"}
EXPORTED = {f"exported_{name}": value for name, value in WORK.items()}


def gpu(**labels: str) -> Gpu:
    found = gpu_of({**BASE, **labels}, "node-1:9400")
    assert isinstance(found, Gpu)
    return found
