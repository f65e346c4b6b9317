"""dcgm-exporter without a GPU: its pages as it writes them.

Families, label order and number formats are those of dcgm-exporter's default list of counters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# fmt: off
# name → (type, help, value of an H100 at work, digits after the point)
FAMILIES: Mapping[str, tuple[str, str, float, int]] = {
    "DCGM_FI_DEV_SM_CLOCK": ("gauge", "SM clock frequency (in MHz).", 1980, 0),
    "DCGM_FI_DEV_MEM_CLOCK": ("gauge", "Memory clock frequency (in MHz).", 2619, 0),
    "DCGM_FI_DEV_MEMORY_TEMP": ("gauge", "Memory temperature (in C).", 52, 0),
    "DCGM_FI_DEV_GPU_TEMP": ("gauge", "GPU temperature (in C).", 58, 0),
    "DCGM_FI_DEV_POWER_USAGE": ("gauge", "Power draw (in W).", 512.25, 6),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION":
        ("counter", "Total energy consumption since boot (in mJ).", 455497156, 0),
    "DCGM_FI_DEV_GPU_UTIL": ("gauge", "GPU utilization (in %).", 99, 0),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("gauge", "Memory utilization (in %).", 40, 0),
    "DCGM_FI_DEV_XID_ERRORS": ("gauge", "Value of the last XID error encountered.", 0, 0),
    "DCGM_FI_DEV_FB_FREE": ("gauge", "Framebuffer memory free (in MiB).", 8010, 0),
    "DCGM_FI_DEV_FB_USED": ("gauge", "Framebuffer memory used (in MiB).", 73076, 0),
    "DCGM_FI_DEV_FB_RESERVED": ("gauge", "Framebuffer memory reserved (in MiB).", 473, 0),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE":
        ("gauge", "Ratio of time the graphics engine is active.", 0.97, 6),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE":
        ("gauge", "Ratio of cycles the tensor (HMMA) pipe is active.", 0.31, 6),
    "DCGM_FI_PROF_DRAM_ACTIVE":
        ("gauge",
         "Ratio of cycles the device memory interface is active sending or receiving data.",
         0.62, 6),
}
# fmt: on

Value = float | str | None


@dataclass(frozen=True, slots=True)
class FakeGpu:
    """One GPU, or one MIG instance of it, as the exporter lists it."""

    index: int  # on its host
    uuid: str  # of the physical GPU
    model: str = "NVIDIA H100 80GB HBM3"  # modelName
    profile: str = ""  # MIG profile, "" for the whole GPU
    instance: str = ""  # MIG instance
    # container, namespace and pod, in this order; empty ones are written as such
    workload: Mapping[str, str] = field(default_factory=dict)
    # family → value instead of the usual one; a text as it is, None leaves it out
    values: Mapping[str, Value] = field(default_factory=dict)
    more: Mapping[str, str] = field(default_factory=dict)  # further labels

    def labels(self, hostname: str, hostname_label: str = "Hostname") -> dict[str, str]:
        """Its labels in the exporter's order."""
        labels = {
            "gpu": str(self.index),
            "UUID": self.uuid,
            "pci_bus_id": f"00000000:{0x18 + self.index:02X}:00.0",
            "device": f"nvidia{self.index}",
            "modelName": self.model,
        }
        if self.profile:
            labels |= {"GPU_I_PROFILE": self.profile, "GPU_I_ID": self.instance}
        if hostname:
            labels[hostname_label] = hostname
        return {**labels, **self.workload, **self.more}


def workload(namespace: str, pod: str, container: str = "vllm") -> dict[str, str]:
    """The labels that dcgm-exporter writes for a pod that holds the GPU."""
    return {"container": container, "namespace": namespace, "pod": pod}


def dcgm_page(
    gpus: Sequence[FakeGpu],
    hostname: str = "node-1",
    *,
    hostname_label: str = "Hostname",
    families: Sequence[str] = tuple(FAMILIES),
) -> str:
    """The page of one exporter.

    ``hostname``: of the node; "" writes none; ``hostname_label``: ``Hostname``, or ``hostname`` as
    since May 2026; ``families``: names in :data:`FAMILIES`; any other that a GPU has a value for is
    added.
    """
    others = sorted({name for gpu in gpus for name in gpu.values} - set(FAMILIES))
    lines: list[str] = []
    for name in (*families, *others):
        kind, help_text, usual, digits = FAMILIES.get(name, ("gauge", name, 0.0, 0))
        samples = []
        for gpu in gpus:
            value = gpu.values.get(name, usual)
            if value is None:
                continue
            text = value if isinstance(value, str) else _number(value, digits)
            labels = gpu.labels(hostname, hostname_label)
            inside = ",".join(f'{key}="{_escaped(label)}"' for key, label in labels.items())
            samples.append(f"{name}{{{inside}}} {text}")
        lines += (
            [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}", *samples] if samples else []
        )
    return "".join(f"{line}\n" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if digits else f"{value:g}" if value % 1 else str(int(value))
