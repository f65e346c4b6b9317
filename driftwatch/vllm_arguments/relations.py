"""Flags that vLLM refuses together (``SchedulerConfig`` of vllm/config/scheduler.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from driftwatch.vllm_arguments.arguments import Stated
from driftwatch.vllm_arguments.table import Version
from driftwatch.vllm_arguments.values import Fault, number_of

# up to this release prompts were not chunked by default, from 32,768 tokens of context excepted
_NOT_CHUNKED = (0, 7)
_ALWAYS_CHUNKED_ABOVE = 32_768
_BUDGET, _SEQS, _LENGTH = "max-num-batched-tokens", "max-num-seqs", "max-model-len"
# flag → the flag that it must not be above
_AT_MOST = {
    "max-num-active-seqs": _SEQS,
    "long-prefill-token-threshold": _LENGTH,
}


def relations(stated: Sequence[Stated], version: Version | None) -> Iterator[tuple[Stated, Fault]]:
    """The flag to change, and why: of each flag the last one counts, and values in digits only."""
    last = {one.flag.name: one for one in stated}
    numbers = {
        name: number
        for name, one in last.items()
        if one.value is not None and (number := number_of(one.flag, one.value, version)) is not None
    }
    budget, seqs, length = (numbers.get(name) for name in (_BUDGET, _SEQS, _LENGTH))
    if budget is not None and seqs is not None and budget < seqs:
        yield (
            last[_BUDGET],
            Fault(
                "flag-conflict",
                f"--{_BUDGET} {budget:.0f} is below --{_SEQS} {seqs:.0f}: vLLM refuses to start",
                f"write at least {seqs:.0f}, or fewer sequences",
            ),
        )
    chunking = last.get("enable-chunked-prefill")
    if (
        budget is not None
        and length is not None
        and budget < length
        and _is_unchunked(chunking, length, version)
    ):
        yield (
            last[_BUDGET],
            Fault(
                "flag-conflict",
                f"--{_BUDGET} {budget:.0f} is below --{_LENGTH} {length:.0f} "
                "without chunked prefill: vLLM refuses to start",
                f"write at least {length:.0f}, or --enable-chunked-prefill",
            ),
        )
    for name, other in _AT_MOST.items():
        here, most = numbers.get(name), numbers.get(other)
        if here is not None and most is not None and here > most:
            yield (
                last[name],
                Fault(
                    "flag-conflict",
                    f"--{name} {here:.0f} is above --{other} {most:.0f}: vLLM refuses to start",
                    f"write at most {most:.0f}",
                ),
            )


def _is_unchunked(stated: Stated | None, length: float, version: Version | None) -> bool:
    if stated is None:
        is_old = version is not None and version <= _NOT_CHUNKED
        return is_old and length <= _ALWAYS_CHUNKED_ABOVE
    return stated.is_off or (stated.value or "").lower() == "false"
