"""How many GPUs a command line asks for."""

from __future__ import annotations

import pytest

from driftwatch.collect.fingerprint import gpus_from_arguments


@pytest.mark.parametrize(
    ("line", "gpus"),
    [
        ("--tensor-parallel-size 16", 16),
        ("-tp=4 -pp 2", 8),
        ("--tensor_parallel_size 4 --pipeline_parallel_size=2", 8),
        ("-tp 2 -tp 4", 4),  # the last counts
        ("-tp 2 --data-parallel-size 4", 8),
        ("-tp 2 -dp 16 -dpl 8", 16),
        ("-tp 2 -dp 16 --data-parallel-rank 0", 2),
        ("-tp 2 -dp 16 --data-parallel-external-lb", 2),
        ("--max-num-seqs 8", None),
        ("-tp $TP", None),
        ("-tp 0", None),
        ("-tp", None),
        ("-tp 8 -pp $(PP)", None),
    ],
)
def test_sizes(line: str, gpus: float | None) -> None:
    assert gpus_from_arguments(["vllm", "serve", "m", *line.split()]) == gpus
    assert gpus_from_arguments(["sh", "-c", f"exec vllm serve m {line}"]) == gpus
