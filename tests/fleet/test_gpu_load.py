"""GPUs that fit the load: the exporter's text against the frame, and the physics of it."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import polars as pl
from fakes.dcgm_pages import FakeGpu, dcgm_page
from polars.testing import assert_frame_equal

from driftwatch.collect.dcgm_sources import DcgmBatch
from driftwatch.fleet.gpus import board, gpu_load, gpu_rows, work_of
from driftwatch.simulate.hardware import gpu, model

EPOCH = datetime(2026, 3, 1, tzinfo=UTC)
H100 = board("H100-80GB")
WORK = work_of(gpu("H100-80GB"), model("llama-3.1-8b"))


def scrapes(busy: list[float], prefill: list[float], decode: list[float]) -> pl.DataFrame:
    """Counters at 30 s from busy share, prompt tokens/s and decode requests a step of 10 ms."""
    n = len(busy)
    steps = np.array(busy) * 30.0 / 0.01
    seqs = steps * np.array(decode)
    return pl.DataFrame(
        {
            "time_seconds": 30.0 * np.arange(1, n + 1),
            "busy_seconds": np.cumsum(np.array(busy) * 30.0),
            "steps_all": np.cumsum(steps),
            "prefill_tokens_total": np.cumsum(np.array(prefill) * 30.0),
            "decode_seqs_total": np.cumsum(seqs),
            "kv_tokens_read_total": np.cumsum(seqs * 1500.0),
        }
    )


def test_the_rows_are_what_the_exporters_pages_are_read_as() -> None:
    load = gpu_load(H100, WORK, EPOCH, scrapes([0.0, 0.4, 1.0], [0.0, 500.0, 9e3], [0, 8, 64]))
    uuids = ["GPU-0", "GPU-1"]
    batch = DcgmBatch()
    for row, micros in enumerate(load.micros):
        values = {name: float(series[row]) for name, series in load.values.items()}
        gpus = [FakeGpu(n, uuid, H100.model_name, values=values) for n, uuid in enumerate(uuids)]
        at = datetime.fromtimestamp(micros / 1e6, UTC)
        assert batch.add("node-1:9400", at, dcgm_page(gpus, "node-1").encode())
    frame, problems = batch.finish()
    assert not problems
    assert_frame_equal(gpu_rows(load, uuids, H100.model_name, "node-1:9400", "node-1"), frame)
    assert frame["hostname"].unique().to_list() == ["node-1"]
