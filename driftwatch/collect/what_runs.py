"""Which server it is and which release, as it says itself: ``/version``, ``/server_info``, its log.

vLLM's ``/metrics`` names neither its version nor the image or driver (0.32: the only ``_info``
series are of Python, the cache configuration and LoRA).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from driftwatch.model import Fingerprint

# section of vllm_config, its key → our name (vLLM's own)
_IDENTITY = (
    ("model_config", "model", "model"),
    ("model_config", "dtype", "dtype"),
    ("model_config", "quantization", "quantization"),
    ("parallel_config", "tensor_parallel_size", "tensor_parallel_size"),
    ("parallel_config", "pipeline_parallel_size", "pipeline_parallel_size"),
)
# Settings that move the step time and that no metric shows.
_KNOBS = (
    ("scheduler_config", "policy", "scheduling_policy"),
    ("scheduler_config", "enable_chunked_prefill", "enable_chunked_prefill"),
    ("scheduler_config", "async_scheduling", "async_scheduling"),
    ("scheduler_config", "stream_interval", "stream_interval"),
    ("model_config", "enforce_eager", "enforce_eager"),
    ("compilation_config", "cudagraph_mode", "cudagraph_mode"),
    ("parallel_config", "data_parallel_size", "data_parallel_size"),
    ("parallel_config", "enable_expert_parallel", "enable_expert_parallel"),
)
_ENGINE_LINE = re.compile(r"Initializing a V1 LLM engine \(v([^)]+)\) with config: (.*)")
_BANNER = re.compile(r"(?:vLLM API server|█\s+) ?version v?(\d\S*)")
_START = re.compile(r"vLLM API server version|█\s+version \d|non-default args: ")
_IN_LINE = {
    "model": re.compile(r"\bmodel='([^']*)'"),
    "dtype": re.compile(r"\bdtype=([\w.]+)"),
    "quantization": re.compile(r"\bquantization=(\w+)"),
    "tensor_parallel_size": re.compile(r"\btensor_parallel_size=(\d+)"),
    "pipeline_parallel_size": re.compile(r"\bpipeline_parallel_size=(\d+)"),
}
NOT_QUANTIZED = "none"
# Knob → what of a log says it (vLLM 0.32: the non-default arguments, the engine's line, and
# config/vllm.py on asynchronous scheduling), and its value then.
_SAID_BY_LOG = {
    "enable_lora": (re.compile(r"non-default args: .*'enable_lora': True"), "True"),
    "speculative_config": (
        re.compile(r"with config: .*\bspeculative_config=(?!None\b)\S"),
        "given",
    ),
    "async_scheduling": (re.compile(r"Asynchronous scheduling is enabled"), "True"),
}


def from_version(version: str | None) -> Fingerprint:
    """The answer of ``GET /version``; nothing is known where it did not say."""
    return Fingerprint() if not version else Fingerprint(release={"vllm": version})


def fingerprint_from_server_info(obj: Mapping[str, Any]) -> Fingerprint:
    """What ``GET /server_info`` says of model, parallelism, flags and driver.

    Args:
        obj: the answer, with ``config_format=json`` or ``text``.
    """
    config, system = obj.get("vllm_config"), obj.get("system_env")
    identity: dict[str, str] = {}
    knobs: dict[str, str] = {}
    if isinstance(config, str):
        identity = _of_line(config)
    elif isinstance(config, Mapping):
        identity = _picked(config, _IDENTITY)
        if isinstance(config.get("model_config"), Mapping):
            identity.setdefault("quantization", NOT_QUANTIZED)
        knobs = _picked(config, _KNOBS)
        if isinstance(config.get("speculative_config"), Mapping):
            knobs["speculative_config"] = "given"
        if isinstance(config.get("lora_config"), Mapping):
            knobs["enable_lora"] = "True"
    release: dict[str, str] = {}
    if isinstance(system, Mapping):
        driver, gpus = system.get("nvidia_driver_version"), system.get("nvidia_gpu_models")
        if isinstance(driver, str) and driver:
            release["driver"] = driver
        if isinstance(gpus, str) and gpus:
            # "GPU 0: NVIDIA H100 80GB HBM3", a line each
            names = {re.sub(r"^GPU \d+: ", "", line).strip() for line in gpus.splitlines()}
            identity["gpu"] = ", ".join(sorted(names - {""}))
    return Fingerprint(identity, knobs, release)


def fingerprint_from_startup_log(text: str) -> Fingerprint:
    """What the last server start of a log says of version, model and parallelism."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if _START.search(line)]
    identity: dict[str, str] = {}
    knobs: dict[str, str] = {}
    release: dict[str, str] = {}
    # the banner's version stands lines above its arguments, both belong to the last start
    versions = [m[1] for line in lines if (m := _BANNER.search(line))]
    if versions:
        release["vllm"] = versions[-1]
    for line in lines[starts[-1] if starts else 0 :]:
        if match := _ENGINE_LINE.search(line):
            release["vllm"] = match[1]
            identity = _of_line(match[2])
        for name, (pattern, value) in _SAID_BY_LOG.items():
            if pattern.search(line):
                knobs[name] = value
    return Fingerprint(identity, knobs, release)


def _of_line(text: str) -> dict[str, str]:
    """Of vLLM's printed configuration; its first mention of each is the engine's own."""
    found = {
        name: match[1] for name, pattern in _IN_LINE.items() if (match := pattern.search(text))
    }
    if found.get("quantization") == "None":
        found["quantization"] = NOT_QUANTIZED
    if "dtype" in found:
        found["dtype"] = found["dtype"].removeprefix("torch.")
    return found


def _picked(config: Mapping[str, Any], wanted: tuple[tuple[str, str, str], ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for section, key, name in wanted:
        part = config.get(section)
        value = part.get(key) if isinstance(part, Mapping) else None
        if isinstance(value, str | int | float):
            found[name] = str(value).removeprefix("torch.")
    return found
