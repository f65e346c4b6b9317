"""CUDA-graph capture sizes: the values of max_num_seqs at which no batch is padded."""

from __future__ import annotations

import math

# vLLM 0.32 config/vllm.py _set_cudagraph_sizes: 1, 2, 4, 8 to 248 in steps of 8, from 256 in steps
# of 16; a batch is padded up to the next one.
_SMALL_SIZES = (1, 2, 4)


def capture_size_at_least(requests: float) -> int:
    """The smallest CUDA-graph capture size that holds ``requests``.

    >>> capture_size_at_least(38.5), capture_size_at_least(249), capture_size_at_least(3)
    (40, 256, 4)
    """
    for size in _SMALL_SIZES:
        if requests <= size:
            return size
    step = 8 if requests <= 248 else 16
    return math.ceil(requests / step) * step
