"""The flags of vLLM that driftwatch reads, and those that old posts name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from driftwatch.knobs import KNOBS
from driftwatch.vllm_arguments.command_line import Flag, human_int

# vLLM's argument → our field
SETTINGS: Mapping[str, str] = {
    **{name: name for name in KNOBS},
    "max_model_len": "max_model_len",
    "block_size": "kv_block_tokens",
    "api_server_count": "api_server_count",
}
FIELDS: Mapping[str, str] = {
    **{f"--{name.replace('_', '-')}": field for name, field in SETTINGS.items()},
    "-asc": "api_server_count",
}
# their parser is ``human_readable_int``: 4k is 4,000 (vLLM 0.32 engine/arg_utils.py)
_WITH_SUFFIX = frozenset({"max_model_len", "max_num_batched_tokens", "max_num_queued_tokens"})


@dataclass(frozen=True, slots=True)
class Gone:
    """A flag that vLLM does not have."""

    until: str | None  # the release that removed it; None = there never was one
    instead: str


GONE: Mapping[str, Gone] = {
    "--num-scheduler-steps": Gone(
        "0.10", "it ran several steps at once in the engine before V1; use --async-scheduling"
    ),
    "--preemption-mode": Gone(
        "0.11",
        "V1 preempts by computing again, it does not swap; use --kv-offloading-size",
    ),
    "--swap-space": Gone("0.18", "V1 does not swap; use --kv-offloading-size"),
    "--scheduler-delay-factor": Gone("0.11", "V1 never waits to fill a batch; remove it"),
    "--max-num-partial-prefills": Gone("0.27", "use --long-prefill-token-threshold"),
    "--max-long-partial-prefills": Gone("0.27", "use --long-prefill-token-threshold"),
    "--use-v2-block-manager": Gone("0.10", "it is the only block manager; remove it"),
    "--throughput-optimization-level": Gone(None, "use --performance-mode throughput"),
    "--chunked-prefill-batch-size": Gone(None, "use --max-num-batched-tokens"),
}


# vLLM's own flags that are spelt nearly as one of FIELDS
_OTHERS = frozenset({"--max-log-len", "--max-num-queued-reqs", "--max-num-scheduled-tokens"})


def misspelt(name: str) -> str | None:
    """The flag of :data:`FIELDS` that a misspelt limit probably means.

    >>> misspelt("--max-num-sequences"), misspelt("--max-lora-rank")
    ('--max-num-seqs', None)
    """
    if not name.startswith("--max-") or name in FIELDS or name in _OTHERS:
        return None
    close = difflib.get_close_matches(name, FIELDS, n=1, cutoff=0.72)
    return close[0] if close else None


def number_of(flag: Flag) -> int | None:
    """The value of a flag of :data:`FIELDS`.

    None where only a shell or Kubernetes knows it (``$SEQS``, ``{{ .seqs }}``), and where it says
    "unset": ``auto``, -1, and 0 of what 0 turns off.

    Raises ValueError: it has no value, or one that vLLM refuses.
    """
    field, value = FIELDS[flag.name], flag.value
    if value is None:
        raise ValueError(f"{flag.written} has no value")
    if "$" in value or "`" in value or "{{" in value or value in {"auto", "-1"}:
        return None
    try:
        number = human_int(value) if field in _WITH_SUFFIX else int(value)
    except ValueError:
        wrong = f"{flag.written} {value!r} is not a number that vLLM would take"
        raise ValueError(wrong) from None
    if number == 0 and field in KNOBS and KNOBS[field].can_be_off:
        return None
    if number <= 0:
        raise ValueError(f"{flag.written} {value!r} must be above 0")
    return number
