"""GPUs beside the server: numbers, from → to, and no unknown as 0."""

from __future__ import annotations

from typing import Any

import pytest

from driftwatch.notify.engine_words import gpu_count_text, gpus_text
from driftwatch.notify.minute_line import gpu_line

NOW: dict[str, Any] = {
    "gpu_count": 8.0,
    "gpu_count_source": "declared, DCGM agrees",
    "gpu_utilization_ratio": 0.99,
    "gpu_power_watts": 540.4,
    "gpu_sm_clock_hertz": 1.155e9,
    "gpu_clock_event_reasons": "none",
    "gpus_lost": 0.0,
}
BEFORE = {"gpu_sm_clock_hertz": 1.98e9, "gpu_utilization_ratio": 0.98, "gpu_power_watts": 540.0}


def test_numbers_side_by_side() -> None:
    assert gpus_text(NOW) == "SM clock 1,155 MHz, GPU_UTIL 99 %, power 540 W"


def test_from_to_where_the_reference_knows_it() -> None:
    said = gpus_text(NOW, BEFORE)
    assert said is not None
    assert said.startswith("SM clock 1,980 → 1,155 MHz, GPU_UTIL 99 %")
    assert said.endswith("power 540 W")  # prints alike before and now


@pytest.mark.parametrize(
    ("change", "ending"),
    [
        ({"gpu_clock_event_reasons": "sw_power_cap"}, "; clock held down by sw_power_cap"),
        ({"gpu_clock_event_reasons": None}, "; the reason is not collected (clock events)"),
        ({"gpu_clock_event_reasons": None, "gpu_sm_clock_hertz": 1.98e9}, "power 540 W"),
        (
            {"tokens_per_second_per_gpu_ratio": 0.57},
            "; GPU_UTIL stays while tokens/s/GPU -43 %: it only shows that a kernel is loaded",
        ),
        ({"tokens_per_second_per_gpu_ratio": 0.9}, "power 540 W"),
        ({"tokens_per_second_per_gpu_ratio": 0.57, "gpu_utilization_ratio": 0.5}, "power 540 W"),
        ({"gpus_lost": 1.0}, ", 1 lost"),
    ],
)
def test_what_is_said_beside_the_numbers(change: dict[str, Any], ending: str) -> None:
    said = gpus_text(NOW | change, BEFORE)
    assert said is not None
    assert said.endswith(ending)


def test_an_unknown_is_left_out_and_never_zero() -> None:
    assert gpus_text({}) is None
    assert gpus_text(dict.fromkeys(NOW)) is None
    assert gpu_line(dict.fromkeys(NOW)) is None
    assert gpus_text({"gpu_power_watts": 92.0}) == "power 92 W"
    # 0 that was measured is 0
    assert gpus_text({"gpu_utilization_ratio": 0.0}) == "GPU_UTIL 0 %"


@pytest.mark.parametrize(
    ("found", "source", "said"),
    [
        (8.0, "declared, DCGM agrees", "8 GPUs (declared = DCGM)"),
        (2.0, "declared 2, DCGM shows 4", "2 GPUs (declared 2, DCGM shows 4)"),
        (1.0, "declared", "1 GPU (declared)"),
        (
            2.0,
            "declared, DCGM agrees; divided among 4 engines",
            "2 GPUs (declared = DCGM; divided among 4 engines)",
        ),
        (None, None, "GPU count unknown"),
    ],
)
def test_the_count_says_where_it_came_from(
    found: float | None, source: str | None, said: str
) -> None:
    assert gpu_count_text({"gpu_count": found, "gpu_count_source": source}) == said


def test_a_minute_says_the_count_first() -> None:
    said = "8 GPUs (declared = DCGM): SM clock 1,155 MHz, GPU_UTIL 99 %, power 540 W"
    assert gpu_line(NOW) == said
