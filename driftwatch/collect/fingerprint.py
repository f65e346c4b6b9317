"""Which server it is and which release: by ``/version``, its log, its arguments.

vLLM's ``/metrics`` names neither its version nor the image or driver (0.32: the only ``_info``
series are of Python, the cache configuration and LoRA). Names and short flags are those of vLLM
0.32 ``engine/arg_utils.py``; nothing is concluded from a flag that is not given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from driftwatch.collect.server_settings import last_start
from driftwatch.model import Fingerprint
from driftwatch.vllm_arguments.command_line import flags_of

NOT_QUANTIZED = "none"
_CONFIGURED = "given"  # that there is speculation matters, not which

_ENGINE_LINE = re.compile(r"Initializing a V1 LLM engine \(v([^)]+)\) with config: (.*)")
_BANNER = re.compile(r"(?:vLLM API server|█\s+) ?version v?(\d\S*)")
_IN_LINE = {
    "model": re.compile(r"\bmodel='([^']*)'"),
    "dtype": re.compile(r"\bdtype=([\w.]+)"),
    "quantization": re.compile(r"\bquantization=(\w+)"),
    "tensor_parallel_size": re.compile(r"\btensor_parallel_size=(\d+)"),
    "pipeline_parallel_size": re.compile(r"\bpipeline_parallel_size=(\d+)"),
}
# knob → the line of a log that shows it (vLLM 0.32: the non-default arguments, the engine's line,
# and config/vllm.py on asynchronous scheduling), and its value then
_LOG_KNOBS = {
    "enable_lora": (re.compile(r"non-default args: .*'enable_lora': True"), "True"),
    "speculative_config": (
        re.compile(r"with config: .*\bspeculative_config=(?!None\b)\S"),
        _CONFIGURED,
    ),
    "async_scheduling": (re.compile(r"Asynchronous scheduling is enabled"), "True"),
}

_IDENTITY_FLAGS: Mapping[str, str] = {
    "--model": "model",
    "--dtype": "dtype",
    "--quantization": "quantization",
    "-q": "quantization",
    "--tensor-parallel-size": "tensor_parallel_size",
    "-tp": "tensor_parallel_size",
    "--pipeline-parallel-size": "pipeline_parallel_size",
    "-pp": "pipeline_parallel_size",
}
_KNOB_FLAGS: Mapping[str, str] = {
    "--kv-cache-dtype": "kv_cache_dtype",
    "--gpu-memory-utilization": "gpu_memory_utilization",
    "--scheduling-policy": "scheduling_policy",
    "--long-prefill-token-threshold": "long_prefill_token_threshold",
    "--speculative-config": "speculative_config",
    "-sc": "speculative_config",
    "--speculative-model": "speculative_config",  # before 0.9
}
# --x and --no-x, with no value
_SWITCHES: Mapping[str, str] = {
    f"--{name.replace('_', '-')}": name
    for name in (
        *("enable_lora", "enable_chunked_prefill", "enable_prefix_caching"),
        *("async_scheduling", "enforce_eager"),
    )
}
_ALIASES: Mapping[str, str] = {"half": "float16", "float": "float32"}


def from_version(version: str | None) -> Fingerprint:
    """The answer of ``GET /version``; nothing is known where it did not say."""
    return Fingerprint() if not version else Fingerprint(release={"vllm": version})


def fingerprint_from_startup_log(text: str) -> Fingerprint:
    """What the last server start of a log says of version, model and parallelism."""
    lines = text.splitlines()
    identity: dict[str, str] = {}
    knobs: dict[str, str] = {}
    release: dict[str, str] = {}
    # the banner's version stands lines above its arguments, both belong to the last start
    if versions := [m[1] for line in lines if (m := _BANNER.search(line))]:
        release["vllm"] = versions[-1]
    for line in lines[last_start(lines) or 0 :]:
        if match := _ENGINE_LINE.search(line):
            release["vllm"] = match[1]
            identity = _of_line(match[2])
        for name, (pattern, value) in _LOG_KNOBS.items():
            if pattern.search(line):
                knobs[name] = value
    return Fingerprint(identity, knobs, release)


def _of_line(text: str) -> dict[str, str]:
    """Of vLLM's printed configuration; its first mention of each is the engine's own."""
    identity = {
        name: match[1] for name, pattern in _IN_LINE.items() if (match := pattern.search(text))
    }
    if identity.get("quantization") == "None":
        identity["quantization"] = NOT_QUANTIZED
    if "dtype" in identity:
        identity["dtype"] = identity["dtype"].removeprefix("torch.")
    return identity


def fingerprint_from_arguments(args: Sequence[str]) -> Fingerprint:
    """Model, parallelism, types and switches of a command line.

    Values that only a shell knows (``$MODEL``), and ``auto``, are unknown. The last of two equal
    flags counts.

    >>> found = fingerprint_from_arguments(["vllm", "serve", "m", "-tp", "2", "--enable-lora"])
    >>> dict(found.identity), dict(found.knobs)
    ({'model': 'm', 'tensor_parallel_size': '2'}, {'enable_lora': 'True'})
    """
    identity: dict[str, str] = {}
    knobs: dict[str, str] = {}
    for flag in flags_of(args):
        value = flag.value or ""
        if flag.written == "serve" and not flag.attached and not value.startswith("-"):
            if value:
                _put(identity, "model", value)
        elif flag.name in _IDENTITY_FLAGS:
            _put(identity, _IDENTITY_FLAGS[flag.name], value)
        elif flag.name in _KNOB_FLAGS:
            _put(knobs, _KNOB_FLAGS[flag.name], value)
        elif flag.name in _SWITCHES:
            off = flag.attached and value.lower() == "false"
            knobs[_SWITCHES[flag.name]] = "False" if off else "True"
        elif flag.name.startswith("--no-") and (name := _SWITCHES.get(f"--{flag.name[5:]}")):
            knobs[name] = "False"
    if "speculative_config" in knobs:
        knobs["speculative_config"] = _CONFIGURED
    return Fingerprint(identity, knobs, {})


def _put(values: dict[str, str], name: str, value: str) -> None:
    if not value or "$" in value or value == "auto":
        values.pop(name, None)  # it overrides an earlier one with something unknown
    elif name == "model" or not value.startswith("-"):
        values[name] = _ALIASES.get(value, value)
