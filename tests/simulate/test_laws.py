"""The roofline prior and laws as text."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from driftwatch.errors import ImpossibleConfiguration, UsageError
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.hardware import gpu, model
from driftwatch.simulate.requests import make_requests
from driftwatch.simulate.roofline import (
    FASTEST,
    SLOWEST,
    STATED,
    Efficiency,
    active_parameters,
    read_weights,
    roofline,
)
from driftwatch.simulate.step_time import describe, parse_step_time
from driftwatch.simulate.trial import Trial

WHOLE = Efficiency(1.0, 1.0, 0.0, 0.0)


def test_the_coefficients_of_an_ideal_gpu_by_hand() -> None:
    law = roofline(gpu("H100-80GB"), model("llama-3.1-8b"), efficiency=WHOLE)
    # 8.03 G parameters less the 0.525 G of the input table, two bytes each, at 3.35 TB/s
    assert law.c0_seconds == pytest.approx((8.030261248e9 - 128256 * 4096) * 2 / 3.35e12, rel=1e-3)
    # without the output projection too, two operations each, at 989.4 TFLOPS
    body = 8.030261248e9 - 2 * 128256 * 4096
    assert law.c1_seconds_per_prefill_token == pytest.approx(2 * body / 989.4e12, rel=1e-3)
    assert law.c3_seconds_per_kv_token == pytest.approx(131_072 / 3.35e12)


def test_more_gpus_share_the_work_and_talk() -> None:
    big = model("llama-3.1-70b")
    one, four = (roofline(gpu("H100"), big, tensor_parallel=n, efficiency=WHOLE) for n in (1, 4))
    assert one.c0_seconds == pytest.approx(4 * four.c0_seconds)
    assert one.c3_seconds_per_kv_token == pytest.approx(4 * four.c3_seconds_per_kv_token)
    talking = roofline(gpu("H100"), big, tensor_parallel=4)
    assert talking.c0_seconds > roofline(gpu("H100"), big).c0_seconds / 4
    with pytest.raises(ImpossibleConfiguration, match="by 7 GPUs"):
        roofline(gpu("H100"), big, tensor_parallel=7)


def test_experts_are_read_as_tokens_reach_them() -> None:
    mixtral = model("mixtral-8x7b")
    shapes = mixtral.shapes
    fixed = shapes.always + shapes.head
    assert read_weights(mixtral, 1) == pytest.approx(fixed + shapes.routed * 2 / 8)
    assert read_weights(mixtral, 2) == pytest.approx(fixed + shapes.routed * (1 - 0.75**2))
    assert read_weights(mixtral, 1000) == pytest.approx(fixed + shapes.routed)
    # 12.9 G of 46.7 G are active, as its card says; the input table is not multiplied
    assert active_parameters(mixtral, head=True) == pytest.approx(12.88e9, rel=0.02)
    small, large = (roofline(gpu("H100"), mixtral, decode_batch=n) for n in (1, 256))
    assert large.c0_seconds > 3 * small.c0_seconds


@pytest.mark.parametrize(
    ("folder", "machine", "blocks", "off"),
    [
        ("RTX4090_Llama-3.1-8B", "RTX-4090", 2588, 0.24),
        # its cache never binds
        (
            "RTXPRO6000_Llama-3.1-8B",
            "RTX-PRO-6000-SERVER",
            None,
            0.03,
        ),
    ],
)
def test_the_prior_against_real_gpus(
    shared_data: Path, folder: str, machine: str, blocks: int | None, off: float
) -> None:
    """The errors that docs/sre/planning.md tells: nothing is fitted.

    What a datasheet allows goes from the slowest to the fastest; the recorded servers lie between.
    """
    with gzip.open(shared_data / "gpu-runs" / folder / "requests.jsonl.gz") as lines:
        rows = sorted(map(json.loads, lines), key=lambda row: row["queued_ts"])
    settings = json.loads((shared_data / "gpu-runs" / folder / "meta.json").read_text())
    given = settings["engine_kwargs"]
    queued, last = (
        np.array([row[name] for row in rows]) for name in ("queued_ts", "last_token_ts")
    )
    requests = make_requests(
        queued - queued[0],
        [row["input_toks"] for row in rows],
        [row["output_toks"] for row in rows],
    )
    trial = Trial(
        requests,
        SchedulerConfiguration(
            max_num_seqs=given["max_num_seqs"],
            max_num_batched_tokens=given["max_num_batched_tokens"],
            num_gpu_blocks=blocks,
            max_model_len=32_768,
        ),
    )

    def took(efficiency: Efficiency) -> npt.NDArray[np.float64]:
        shapes, batch = model(given["model"]), given["max_num_seqs"]
        law = roofline(gpu(machine), shapes, efficiency=efficiency, decode_batch=batch)
        return trial.run(law).end_seconds - requests.arrival_seconds

    truth = last - queued
    error = np.median(np.abs(took(STATED) / truth - 1))
    assert error == pytest.approx(off, abs=0.02)
    assert took(FASTEST).mean() < truth.mean() < took(SLOWEST).mean()


def test_a_law_as_text() -> None:
    law = parse_step_time("0.006, 2.4e-5,2.5e-5,4.9e-8")
    assert law.seconds(1000, 10, 10_000) == pytest.approx(0.006 + 0.024 + 0.00025 + 0.00049)
    assert parse_step_time(describe(law)) == law
    whole = parse_step_time("0.006,2e-5,2e-5,4e-8,128,1e-10")
    assert (whole.hinge_tokens, whole.c4_seconds_per_prefill_pair) == (128, 1e-10)
    assert parse_step_time(describe(whole)) == whole


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not 1 value"),
        ("1,2,3,4,5,6,7", "not 7 value"),
        ("a,2,b,4", r"c0 .*'a' is not a number from 0 to 1e\+06; c2 .*'b' is not"),
        ("1,-2,nan,inf", "c1 .*'-2' is not .*; c2 .*'nan' is not.*; c3 .*'inf' is not"),
        ("0,0,1,1", "would take no time"),
        ("1,1,1,1,1.5", "'1.5' is not a whole number"),
        ("1e300,0,0,0", "c0 .*'1e300' is not a number"),
    ],
)
def test_a_text_that_is_no_law(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        parse_step_time(text)
    assert caught.value.help_text
