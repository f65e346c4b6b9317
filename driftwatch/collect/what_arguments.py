"""What a vLLM command line says of the engine besides the scheduler's numbers.

Names and short flags are those of vLLM 0.32 ``engine/arg_utils.py``; a flag not named here is
skipped, and nothing is concluded from a flag that is not given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from driftwatch.collect.serving import words_of
from driftwatch.model import Fingerprint

_IDENTITY: Mapping[str, str] = {
    "--model": "model",
    "--dtype": "dtype",
    "--quantization": "quantization",
    "-q": "quantization",
    "--tensor-parallel-size": "tensor_parallel_size",
    "-tp": "tensor_parallel_size",
    "--pipeline-parallel-size": "pipeline_parallel_size",
    "-pp": "pipeline_parallel_size",
}
_KNOBS: Mapping[str, str] = {
    "--kv-cache-dtype": "kv_cache_dtype",
    "--gpu-memory-utilization": "gpu_memory_utilization",
    "--scheduling-policy": "scheduling_policy",
    "--long-prefill-token-threshold": "long_prefill_token_threshold",
    "--speculative-config": "speculative_config",
    "-sc": "speculative_config",
    "--speculative-model": "speculative_config",  # before 0.9
}
# --x and --no-x, with no value.
_SWITCHES: Mapping[str, str] = {
    "--enable-lora": "enable_lora",
    "--enable-chunked-prefill": "enable_chunked_prefill",
    "--enable-prefix-caching": "enable_prefix_caching",
    "--async-scheduling": "async_scheduling",
    "--enforce-eager": "enforce_eager",
}
_ALIASES: Mapping[str, str] = {"half": "float16", "float": "float32"}
_SPECULATIVE = "given"


def fingerprint_from_arguments(args: Sequence[str]) -> Fingerprint:
    """Model, parallelism, types and switches of a command line.

    Values that only a shell knows (``$MODEL``), and ``auto``, are unknown. The last of two equal
    flags counts.

    >>> found = fingerprint_from_arguments(["vllm", "serve", "m", "-tp", "2", "--enable-lora"])
    >>> dict(found.identity), dict(found.knobs)
    ({'model': 'm', 'tensor_parallel_size': '2'}, {'enable_lora': 'True'})
    """
    words = words_of(args)
    identity: dict[str, str] = {}
    knobs: dict[str, str] = {}
    for position, word in enumerate(words):
        following = words[position + 1] if position + 1 < len(words) else ""
        if word == "serve" and following and not following.startswith("-"):
            _keep(identity, "model", following)
            continue
        flag, equals, value = word.partition("=")
        flag = flag.replace("_", "-") if flag.startswith("--") else flag
        if flag in _IDENTITY:
            _keep(identity, _IDENTITY[flag], value if equals else following)
        elif flag in _KNOBS:
            _keep(knobs, _KNOBS[flag], value if equals else following)
        elif flag in _SWITCHES:
            knobs[_SWITCHES[flag]] = "False" if value.lower() == "false" else "True"
        elif flag.startswith("--no-") and (name := _SWITCHES.get(f"--{flag[5:]}")):
            knobs[name] = "False"
    if "speculative_config" in knobs:
        knobs["speculative_config"] = _SPECULATIVE  # which one is no matter here
    return Fingerprint(identity, knobs, {})


def _keep(found: dict[str, str], name: str, value: str) -> None:
    value = value.strip()
    if not value or "$" in value or value == "auto":
        found.pop(name, None)  # it overrides an earlier one with something unknown
    elif name != "model" and value.startswith("-"):
        return
    else:
        found[name] = _ALIASES.get(value, value)
