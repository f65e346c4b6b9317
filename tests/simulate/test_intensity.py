"""Which phase is bound by what."""

from __future__ import annotations

import pytest

from driftwatch.simulate.hardware import gpu, model, shipped_hardware
from driftwatch.simulate.intensity import (
    COMPUTE,
    MEMORY,
    decode,
    ridge,
)

H100, EIGHT = gpu("H100-80GB"), model("llama-3.1-8b")


def test_the_ratio_of_an_h100() -> None:
    assert ridge(H100) == pytest.approx(989.4e12 / 3.35e12)
    assert ridge(H100, dtype_bytes=1.0) == pytest.approx(2 * ridge(H100), rel=1e-3)


def test_decode_is_bound_by_memory_until_the_batch_pays_for_the_weights() -> None:
    for machine in shipped_hardware().gpus.values():
        assert decode(machine, EIGHT, 1, context=500).bound == MEMORY
        assert decode(machine, EIGHT, 32, context=500).bound == MEMORY
    assert decode(H100, EIGHT, 1 << 20, context=100).bound == COMPUTE
    # a long context brings more bytes than operations: no batch is enough
    assert decode(H100, EIGHT, 1 << 20, context=2000).bound == MEMORY
    # a latent is small and serves all heads
    assert decode(H100, model("deepseek-v3"), 1 << 20, context=2000).bound == COMPUTE


def test_bytes_of_a_step_by_hand() -> None:
    # every weight but the input table once, 2 bytes; the context is read, the new token written
    weights = 2 * (EIGHT.shapes.total - 128_256 * 4096)
    one = decode(H100, EIGHT, 1, context=0)
    assert one.bytes_moved == weights + 131_072
    more = decode(H100, EIGHT, 1, context=999)
    assert more.bytes_moved - one.bytes_moved == pytest.approx(999 * 131_072)
    whole, four = (decode(H100, EIGHT, 8, context=99, tensor_parallel=n) for n in (1, 4))
    assert whole.bytes_moved == pytest.approx(4 * four.bytes_moved)
