"""What a vLLM server was started with, and where that was read.

vLLM exports none of its scheduler settings in a metric, so they are put together from what is at
hand: driftwatch's own configuration, the server's log, its arguments, the metrics. A setting that
no source names stays None; a default of vLLM is never assumed, because it depends on the
release, the device and the other settings.
"""

from __future__ import annotations

import ast
import difflib
import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any

from driftwatch.errors import UsageError
from driftwatch.knobs import KNOBS
from driftwatch.model import Provenance, Serving, Setting
from driftwatch.vllm_arguments.command_line import flags_of, human_int
from driftwatch.vllm_arguments.flags import FIELDS as FIELDS_OF_FLAGS
from driftwatch.vllm_arguments.flags import SETTINGS, number_of

_OWN = frozenset(field.name for field in fields(Serving)) - {"others"}
FIELDS: tuple[str, ...] = tuple(
    dict.fromkeys((*(field.name for field in fields(Serving) if field.name in _OWN), *KNOBS))
)

_START = re.compile(r"vLLM API server version|█\s+version \d|non-default args: ")
_NON_DEFAULT = re.compile(r"non-default args: (\{.*)")
# the values in force, after vLLM adjusted what it was given
_LOG_LINES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"Using max model len (\d[\d,]*)"), "max_model_len"),
    (re.compile(r"Auto-fit max_model_len: reduced from [\d,]+ to (\d[\d,]*)"), "max_model_len"),
    (
        re.compile(r"Chunked prefill is enabled with max_num_batched_tokens=(\d[\d,]*)"),
        "max_num_batched_tokens",
    ),
)
_KV_SIZE = re.compile(r"\b[A-Z]PU KV cache size: (\d[\d,]*) tokens")


def _positive(value: object) -> float | None:
    """A setting's value, or None where it says "unset" (None, "None", "auto", -1)."""
    if isinstance(value, str):
        with suppress(ValueError):
            value = human_int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < math.inf else None


def last_start(lines: Sequence[str]) -> int | None:
    """Where in a log the last start of a server begins; None without any."""
    return next((n for n in range(len(lines) - 1, -1, -1) if _START.search(lines[n])), None)


def from_startup_log(text: str, *, path: str) -> Serving:
    """The last server start in a log.

    Lines that name no setting are skipped, a cut-off or unreadable ``non-default args`` line too.
    Several KV cache sizes of one start (one per engine) give the smallest.

    ``text``: the log, whole or from its first lines; ``path``: its name, for the provenance
    ``path:line``.
    Raises UsageError: there is neither a server start nor a setting in it.
    """
    lines = text.splitlines()
    start = last_start(lines)
    settings: dict[str, Setting] = {}
    kv_sizes: list[tuple[int, int]] = []
    for number, line in enumerate(lines[start or 0 :], start=(start or 0) + 1):
        where = f"{path}:{number}"
        if match := _NON_DEFAULT.search(line):
            for argument, value in _python_items(match[1]).items():
                size = _positive(value)
                if argument in SETTINGS and size is not None:
                    settings[SETTINGS[argument]] = Setting(size, "startup log", where)
        for pattern, field in _LOG_LINES:
            if (match := pattern.search(line)) and (grouped := _grouped(match[1])):
                settings[field] = Setting(float(grouped), "startup log", where)
        if (match := _KV_SIZE.search(line)) and (grouped := _grouped(match[1])):
            kv_sizes.append((grouped, number))
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
    return serving_of(settings)


def _grouped(text: str) -> int:
    """``262,144`` → 262144."""
    return int(text.replace(",", ""))


def _python_items(text: str) -> Mapping[str, Any]:
    """The top level of a printed Python dict.

    Values such as ``<Enum: 1>`` or ``SomeConfig(...)`` are no literals; then only the integers
    that stand at the top level are taken.
    """
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return _top_level_integers(text)
    return value if isinstance(value, dict) else {}


_PIECE = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[\[\](){}]|: -?\d+(?=[,}])")


def _top_level_integers(text: str) -> dict[str, int]:
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


def from_arguments(args: Sequence[str]) -> Serving:
    """A vLLM command line, or the arguments of a container.

    Flags we do not know are skipped with whatever follows them; the last of two equal flags
    counts, as in vLLM. A value that only the shell or Kubernetes knows (``$SEQS``, ``$(SEQS)``)
    and ``auto`` or -1 are unknown.

    ``args``: words, e.g. ``["vllm", "serve", "m", "--max-num-seqs", "8"]``.
    Raises UsageError: one of the flags we read has no value, or one that vLLM refuses.
    """
    settings: dict[str, Setting] = {}
    for flag in flags_of(args):
        field = FIELDS_OF_FLAGS.get(flag.name)
        if field is None:
            continue
        try:
            number = number_of(flag)
        except ValueError as error:
            raise UsageError(str(error)) from None
        settings.pop(field, None)  # an unknown value overrides an earlier one
        if number is not None:
            settings[field] = Setting(float(number), "arguments", flag.written)
    return serving_of(settings)


def from_cache_config(labels_json: str) -> Serving:
    """The labels of ``vllm:cache_config_info`` (the scrape table's ``cache_config``).

    ``labels_json``: a JSON object of strings; the string "None" is unknown.
    Raises UsageError: it is no JSON object.
    """
    try:
        labels = json.loads(labels_json)
    except ValueError:
        labels = None
    if not isinstance(labels, dict):
        raise UsageError("cache_config is not a JSON object of labels")
    settings = _kv_from_blocks(labels)
    size = _positive(labels.get("kv_cache_size_tokens"))
    if size is not None:
        settings["kv_cache_tokens"] = Setting(size, "metrics", "kv_cache_size_tokens")
    block = _positive(labels.get("block_size"))
    if block is not None:
        settings["kv_block_tokens"] = Setting(block, "metrics", "block_size")
    at_once = None
    with suppress(ValueError):
        at_once = _positive(float(str(labels.get("kv_cache_max_concurrency"))))
    if size is not None and at_once is not None:
        # vLLM counts how many requests of max_model_len the cache holds (v1/core/kv_cache_utils.py)
        detail = "kv_cache_size_tokens / kv_cache_max_concurrency"
        settings["max_model_len"] = Setting(float(round(size / at_once)), "metrics", detail)
    return serving_of(settings)


def _kv_from_blocks(cache: Mapping[str, Any]) -> dict[str, Setting]:
    blocks, block = _positive(cache.get("num_gpu_blocks")), _positive(cache.get("block_size"))
    if blocks is None or block is None:
        return {}
    detail = "num_gpu_blocks × block_size"
    return {"kv_cache_tokens": Setting(blocks * block, "metrics", detail)}


def from_config(
    mapping: Mapping[str, Any], *, provenance: Provenance = "config", detail: str = ""
) -> Serving:
    """Settings that a person declared, by our names (``max_num_seqs``, ``kv_cache_tokens``, …).

    ``mapping``: name → number, or text such as ``8k``; None is unknown; ``provenance``: ``config``,
    or ``command line``; ``detail``: file:line, or the flag.
    Raises UsageError: an unknown name, or a value that is no number above 0.
    """
    settings: dict[str, Setting] = {}
    for name, value in mapping.items():
        if name not in FIELDS:
            close = difflib.get_close_matches(str(name), FIELDS, n=1)
            raise UsageError(
                f"{name!r} is no serving setting",
                help_text=f"did you mean {close[0]}?" if close else f"one of {', '.join(FIELDS)}",
            )
        if value is None:
            continue
        size = _positive(value)
        if size is None:
            raise UsageError(f"{name}: {value!r} is not a number above 0")
        settings[name] = Setting(size, provenance, detail or name)
    return serving_of(settings)


def merge(*sources: Serving) -> Serving:
    """Field by field the first source that knows it; the caller gives them in order of trust."""
    return serving_of(
        {name: settings[0] for name in FIELDS if (settings := _settings(name, sources))}
    )


def contradictions(*sources: Serving) -> tuple[str, ...]:
    """One sentence for each field that two sources give different values for.

    The first source of each field is the one :func:`merge` takes.
    """
    sentences: list[str] = []
    for name in FIELDS:
        settings = _settings(name, sources)
        others = [other for other in settings[1:] if other.value != settings[0].value]
        if others:
            texts = ", ".join(_text(other) for other in others)
            sentences.append(f"{name} is {_text(settings[0])}, but {texts}")
    return tuple(sentences)


def serving_of(settings: Mapping[str, Setting]) -> Serving:
    """A configuration of settings by name; knobs without a field of their own are its others."""
    others = {name: one for name, one in settings.items() if name not in _OWN}
    own: dict[str, Any] = {name: one for name, one in settings.items() if name in _OWN}
    return Serving(**own, others=others)


def _settings(name: str, sources: Sequence[Serving]) -> list[Setting]:
    return [value for source in sources if (value := source.setting(name)) is not None]


def _text(setting: Setting) -> str:
    where = f"{setting.provenance}, {setting.detail}" if setting.detail else setting.provenance
    return f"{setting.value:.15g} ({where})"
