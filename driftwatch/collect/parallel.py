"""How many GPUs a vLLM command line asks for."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence

_SIZES = {
    "--tensor-parallel-size": "tensor",
    "-tp": "tensor",
    "--pipeline-parallel-size": "pipeline",
    "-pp": "pipeline",
    "--data-parallel-size": "data",
    "-dp": "data",
    "--data-parallel-size-local": "local",
    "-dpl": "local",
    # each rank is then a server of its own
    "--data-parallel-rank": "rank",
    "-dpn": "rank",
    "--data-parallel-external-lb": "external",
    "-dpe": "external",
}
_WITHOUT_VALUE = frozenset(("external",))


def gpus_from_arguments(args: Sequence[str]) -> float | None:
    """Tensor × pipeline × data parallel size of one server; None where that is not said.

    Of data parallelism over several machines the engines on this one count, where they are given.
    A size that only the shell knows (``$TP``) or that is no number is unknown, and so is all.

    >>> gpus_from_arguments(["vllm", "serve", "m", "-tp", "8", "--pipeline_parallel_size=2"])
    16.0
    >>> gpus_from_arguments(["vllm", "serve", "m", "--max-num-seqs", "8"]) is None
    True
    """
    words = list(_split(args))
    found: dict[str, float] = {}
    for position, word in enumerate(words):
        flag, equals, value = word.partition("=")
        size = _SIZES.get(flag.replace("_", "-"))
        if size is None:
            continue
        if size in _WITHOUT_VALUE:
            found[size] = 1.0
            continue
        if not equals:
            value = words[position + 1] if position + 1 < len(words) else ""
        value = value.strip()
        known = value.isascii() and value.isdecimal() and (int(value) > 0 or size == "rank")
        found[size] = float(value) if known else math.nan
    if not found.keys() & {"tensor", "pipeline", "data", "local"}:
        return None
    alone = "rank" in found or "external" in found
    engines = found.get("local", 1.0 if alone else found.get("data", 1.0))
    count = found.get("tensor", 1.0) * found.get("pipeline", 1.0) * engines
    return None if math.isnan(count) else count


def _split(args: Sequence[str]) -> Iterable[str]:
    """The words; a script behind ``sh -c`` as the shell would split it."""
    for word in args:
        if not any(ch.isspace() for ch in word):
            yield word
            continue
        try:
            yield from shlex.split(word)
        except ValueError:  # an open quote
            yield from word.split()
