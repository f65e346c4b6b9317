from __future__ import annotations

import polars as pl
import pytest
from recorded_runs import AT

from driftwatch.recommend.calibration.prior import prior_of
from driftwatch.recommend.traffic.observed import CHUNK_SCHEMA, Observed, Server
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.hardware import gpu, model
from driftwatch.simulate.requests import make_requests
from driftwatch.simulate.roofline import VARIANTS, roofline

CONFIGURATION = SchedulerConfiguration(64, 2048)


def observed() -> Observed:
    row = {
        "start_seconds": 0.0,
        "end_seconds": 60.0,
        "generation_tokens_per_second": 400.0,
        "itl_seconds": 0.02,
        "steps_per_generation_token": 0.125,
        "tokens_per_step": 58.0,
        "ttft_seconds": 0.08,
        "queue_seconds": 0.01,
        "prefill_seconds": 0.07,
        "running_requests": 8.0,
    }
    chunks = pl.DataFrame([row], schema=CHUNK_SCHEMA)
    requests = make_requests([1.0, 2.0], [1000, 1000], [100, 100])
    return Observed(AT, 60.0, requests, "metrics", chunks, 1, False)


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("meta-llama/Llama-3.1-8B", "NVIDIA H100 80GB HBM3"),
        ("llama-3.1-8b", "h100"),
        ("/models/Llama-3.1-8B", "NVIDIA H100 80GB HBM3"),
    ],
)
def test_names_as_servers_and_drivers_say_them(name: str, device: str) -> None:
    found = prior_of(Server(model=name, gpu=device, tensor_parallel=1), observed(), CONFIGURATION)
    assert found.is_known
    assert found.source == "roofline of meta-llama/Llama-3.1-8B on H100-80GB"
    assert tuple(found.step_times) == VARIANTS
    expected = roofline(gpu("H100"), model("llama-3.1-8b"), decode_batch=16)
    assert found.step_times["linear"] == expected


def test_narrower_weights_are_read_sooner() -> None:
    step_times = [
        prior_of(
            Server(model=name, gpu="H100", tensor_parallel=1, weight_bytes=size),
            observed(),
            CONFIGURATION,
        ).step_times["linear"]
        for name, size in (
            ("Llama-3.1-8B", 2.0),
            ("Llama-3.1-8B", 1.0),
            ("Llama-3.1-8B-FP8", None),  # told by its name
        )
    ]
    assert step_times[1].c0_seconds < 0.65 * step_times[0].c0_seconds
    assert step_times[2] == step_times[1]


def test_what_no_table_knows_is_named_and_the_window_speaks() -> None:
    found = prior_of(Server(model="acme/rag", gpu="NVIDIA Q9"), observed(), CONFIGURATION)
    assert not found.is_known
    assert "acme/rag" in found.source
    assert "NVIDIA Q9" in found.source
    assert "serving.gpu takes the path" in found.source
    step_time = found.step_times["linear"]
    # a step with what ran in the window takes about what was observed
    step = step_time.seconds(50, 8, 8 * 1050)
    assert 0.5 * 0.02 < step < 1.5 * 0.02
    # a prompt of 1,000 tokens takes what first tokens took after their schedule
    assert step_time.seconds(1000, 1, 1000) == pytest.approx(0.07, rel=0.3)
    assert min(found.log_sd.values()) >= 0.5


def test_unknown_is_not_guessed_silently() -> None:
    found = prior_of(Server(), observed(), CONFIGURATION)
    assert not found.is_known
    assert "model unknown" in found.source
    assert "GPU unknown" in found.source
    shared = prior_of(Server(model="llama-3.1-8b", gpu="H100"), observed(), CONFIGURATION)
    assert "tensor parallel size unknown" in shared.source


def test_a_split_that_cannot_be_is_no_datasheet() -> None:
    server = Server(model="llama-3.1-8b", gpu="H100", tensor_parallel=7)
    found = prior_of(server, observed(), CONFIGURATION)
    assert not found.is_known
    assert "cannot be shared by 7 GPUs" in found.source
