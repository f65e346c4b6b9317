"""What a vLLM server was started with, and where that was read.

vLLM exports none of its scheduler settings in a metric, so they are put together from what is at
hand: driftwatch's own configuration, the server's log, its arguments, the metrics. A setting that
no source names stays None; a default of vLLM is never assumed, because it depends on the
release, the device and the other settings. Names and short flags are those of vLLM 0.32
``engine/arg_utils.py``; nothing is concluded from a flag that is not given.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import orjson

from driftwatch.errors import UsageError
from driftwatch.knobs import KNOBS
from driftwatch.model import Fingerprint, Serving, Setting
from driftwatch.vllm_arguments.flags import FIELDS as FIELDS_OF_FLAGS
from driftwatch.vllm_arguments.flags import SETTINGS, flags_of, number_of

_OWN = frozenset(field.name for field in fields(Serving)) - {"others"}
FIELDS: tuple[str, ...] = tuple(
    dict.fromkeys((*(field.name for field in fields(Serving) if field.name in _OWN), *KNOBS))
)
NOT_QUANTIZED = "none"
_CONFIGURED = "given"  # that there is speculation matters, not which


class StartSettings(NamedTuple):
    """How a server was started, as one source shows it."""

    serving: Serving  # numbers that the scheduler works with
    fingerprint: Fingerprint = Fingerprint()  # model, parallelism, types, switches, release


# --- a start-up log

_START = re.compile(r"vLLM API server version|█\s+version \d|non-default args: ")
_NON_DEFAULT = re.compile(r"non-default args: (\{.*)")
# the values in force, after vLLM adjusted what it was given
_NUMBERS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"Using max model len (\d[\d,]*)"), "max_model_len"),
    (re.compile(r"Auto-fit max_model_len: reduced from [\d,]+ to (\d[\d,]*)"), "max_model_len"),
    (
        re.compile(r"Chunked prefill is enabled with max_num_batched_tokens=(\d[\d,]*)"),
        "max_num_batched_tokens",
    ),
)
_KV_SIZE = re.compile(r"\b[A-Z]PU KV cache size: (\d[\d,]*) tokens")
_BANNER = re.compile(r"(?:vLLM API server|█\s+) ?version v?(\d\S*)")
_ENGINE_LINE = re.compile(r"Initializing a V1 LLM engine \(v([^)]+)\) with config: (.*)")
# the first mention of each in the engine's line is the engine's own
_IDENTITY = {
    "model": re.compile(r"\bmodel='([^']*)'"),
    "dtype": re.compile(r"\bdtype=(?:torch\.)?([\w.]+)"),
    "quantization": re.compile(r"\bquantization=(\w+)"),
    "tensor_parallel_size": re.compile(r"\btensor_parallel_size=(\d+)"),
    "pipeline_parallel_size": re.compile(r"\bpipeline_parallel_size=(\d+)"),
}
# knob → the line of a log that shows it (vLLM 0.32: the non-default arguments, the engine's line,
# and config/vllm.py on asynchronous scheduling), and its value then
_SWITCHES_OF_LOG = {
    "enable_lora": (re.compile(r"non-default args: .*'enable_lora': True"), "True"),
    "speculative_config": (
        re.compile(r"with config: .*\bspeculative_config=(?!None\b)\S"),
        _CONFIGURED,
    ),
    "async_scheduling": (re.compile(r"Asynchronous scheduling is enabled"), "True"),
}


def from_startup_log(text: str, *, path: str) -> StartSettings:
    """The last server start in a log.

    Lines that name no setting are skipped, a cut-off or unreadable ``non-default args`` line too.
    Several KV cache sizes of one start (one per engine) give the smallest.

    ``text``: the log, whole or from its first lines; ``path``: its name, for the provenance
    ``path:line``.
    Raises UsageError: there is neither a server start nor a setting in it.
    """
    lines = text.splitlines()
    start = max((n for n, line in enumerate(lines) if _START.search(line)), default=None)
    settings: dict[str, Setting] = {}
    kv_sizes: list[tuple[int, int]] = []
    identity: dict[str, str] = {}
    switches: dict[str, str] = {}
    # the banner's version stands lines above its arguments, both belong to the last start
    versions = _BANNER.findall(text)
    release = {"vllm": versions[-1]} if versions else {}
    for number, line in enumerate(lines[start or 0 :], start=(start or 0) + 1):
        where = f"{path}:{number}"
        if match := _NON_DEFAULT.search(line):
            for argument, value in _top_level_integers(match[1]).items():
                if argument in SETTINGS and value > 0:
                    settings[SETTINGS[argument]] = Setting(float(value), "startup log", where)
        for pattern, name in _NUMBERS:
            if (match := pattern.search(line)) and (value := _grouped(match[1])):
                settings[name] = Setting(float(value), "startup log", where)
        if (match := _KV_SIZE.search(line)) and (value := _grouped(match[1])):
            kv_sizes.append((value, number))
        if match := _ENGINE_LINE.search(line):
            release["vllm"], config = match.groups()
            identity = {name: m[1] for name, p in _IDENTITY.items() if (m := p.search(config))}
            if identity.get("quantization") == "None":
                identity["quantization"] = NOT_QUANTIZED
        switches |= {name: on for name, (p, on) in _SWITCHES_OF_LOG.items() if p.search(line)}
    if kv_sizes:
        smallest, number = min(kv_sizes)
        note = f", the smallest of {len(kv_sizes)}" if len(kv_sizes) > 1 else ""
        where = f"{path}:{number}{note}"
        settings["kv_cache_tokens"] = Setting(float(smallest), "startup log", where)
    if not settings and start is None:
        raise UsageError(
            f"{path}: no start of a vLLM server in this log",
            help_text="give the log from its first lines; look for 'non-default args'",
        )
    return StartSettings(serving_of(settings), Fingerprint(identity, switches, release))


def _grouped(text: str) -> int:
    """``262,144`` → 262144."""
    return int(text.replace(",", ""))


_PIECE = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[\[\](){}]|: -?\d+(?=[,}])")


def _top_level_integers(text: str) -> dict[str, int]:
    """The integers at the top level of a printed Python dict.

    Its other values may be no literals: ``<Enum: 1>``, ``SomeConfig(...)``.
    """
    integers: dict[str, int] = {}
    depth, key = 0, ""
    for piece in _PIECE.findall(text):
        if piece in "([{":
            depth += 1
        elif piece in ")]}":
            depth -= 1
        elif depth == 1 and piece.startswith(": "):
            integers.setdefault(key, int(piece[2:]))
        elif depth == 1:
            key = piece[1:-1]
    return integers


# --- a command line

# flag → name in the identity of a fingerprint, and in its knobs
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


def from_arguments(args: Sequence[str]) -> StartSettings:
    """A vLLM command line, or the arguments of a container.

    Flags that driftwatch does not know are skipped with whatever follows them; the last of two
    equal flags counts, as in vLLM. A value that only the shell or Kubernetes knows (``$SEQS``,
    ``$(SEQS)``) and ``auto`` or -1 are unknown.

    Raises UsageError: a flag that sets a number has no value, or one that vLLM refuses.

    >>> found = from_arguments(["vllm", "serve", "m", "-tp", "2", "--enable-lora"]).fingerprint
    >>> dict(found.identity), dict(found.knobs)
    ({'model': 'm', 'tensor_parallel_size': '2'}, {'enable_lora': 'True'})
    """
    settings: dict[str, Setting] = {}
    identity: dict[str, str] = {}
    knobs: dict[str, str] = {}
    for flag in flags_of(args):
        value = flag.value or ""
        if (name := FIELDS_OF_FLAGS.get(flag.name)) is not None:
            try:
                number = number_of(flag)
            except ValueError as error:
                raise UsageError(str(error)) from None
            settings.pop(name, None)  # an unknown value overrides an earlier one
            if number is not None:
                settings[name] = Setting(float(number), "arguments", flag.written)
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
    return StartSettings(serving_of(settings), Fingerprint(identity, knobs))


def _put(values: dict[str, str], name: str, value: str) -> None:
    if not value or "$" in value or value == "auto":
        values.pop(name, None)  # it overrides an earlier one with something unknown
    elif name == "model" or not value.startswith("-"):
        values[name] = _ALIASES.get(value, value)


# --- the metrics, and what a person declared


def from_cache_config(labels_json: str) -> Serving:
    """The labels of ``vllm:cache_config_info`` (the scrape table's ``cache_config``).

    ``labels_json``: a JSON object of strings; the string "None" is unknown.
    Raises UsageError: it is no JSON object.
    """
    try:
        labels = orjson.loads(labels_json)
    except orjson.JSONDecodeError:
        labels = None
    if not isinstance(labels, dict):
        raise UsageError("cache_config is not a JSON object of labels")
    size, block, blocks, at_once = (
        _positive(labels.get(name))
        for name in (
            *("kv_cache_size_tokens", "block_size", "num_gpu_blocks", "kv_cache_max_concurrency"),
        )
    )
    found: dict[str, tuple[float, str]] = {}
    if blocks is not None and block is not None:
        found["kv_cache_tokens"] = blocks * block, "num_gpu_blocks × block_size"
    if size is not None:
        found["kv_cache_tokens"] = size, "kv_cache_size_tokens"
    if block is not None:
        found["kv_block_tokens"] = block, "block_size"
    if size is not None and at_once is not None:
        # vLLM counts how many requests of max_model_len the cache holds (v1/core/kv_cache_utils.py)
        detail = "kv_cache_size_tokens / kv_cache_max_concurrency"
        found["max_model_len"] = float(round(size / at_once)), detail
    return serving_of({n: Setting(value, "metrics", why) for n, (value, why) in found.items()})


def _positive(label: object) -> float | None:
    """A label's number, or None where it means "unset" ("None", "auto", "-1")."""
    try:
        value = float(str(label))
    except ValueError:
        return None
    return value if 0 < value < math.inf else None


def from_config(values: Mapping[str, float]) -> Serving:
    """Settings that a person declared, by our names (``max_num_seqs``, ``kv_cache_tokens``, …)."""
    return serving_of({n: Setting(float(value), "config", n) for n, value in values.items()})


# --- several sources


def merge(*sources: Serving) -> Serving:
    """Field by field the first source that knows it; the caller gives them in order of trust."""
    return serving_of({name: of[0] for name in FIELDS if (of := _settings(name, sources))})


def contradictions(*sources: Serving) -> tuple[str, ...]:
    """One sentence for each field that two sources give different values for.

    The first source of each field is the one :func:`merge` takes.
    """
    sentences: list[str] = []
    for name in FIELDS:
        settings = _settings(name, sources)
        others = [_text(other) for other in settings if other.value != settings[0].value]
        if others:
            sentences.append(f"{name} is {_text(settings[0])}, but {', '.join(others)}")
    return tuple(sentences)


def serving_of(settings: Mapping[str, Setting]) -> Serving:
    """A configuration of settings by name; knobs without a field of their own are its others."""
    own: dict[str, Any] = {name: one for name, one in settings.items() if name in _OWN}
    return Serving(**own, others={name: one for name, one in settings.items() if name not in _OWN})


def _settings(name: str, sources: Sequence[Serving]) -> list[Setting]:
    return [value for source in sources if (value := source.setting(name)) is not None]


def _text(setting: Setting) -> str:
    where = f"{setting.provenance}, {setting.detail}" if setting.detail else setting.provenance
    return f"{setting.value:.15g} ({where})"
