"""Slow drift over days, and what a change of throughput comes from."""

from __future__ import annotations

from driftwatch.evidence.schema import LOAD, Column, Need, column

_FEW_DAYS = "fewer than 7 days with enough minutes (trend_unknown_reason)"


def _trend(name: str, what: str, *sources: str) -> tuple[Column, ...]:
    return (
        column(
            f"{name}_slope_14d_ratio",
            "1",
            f"Theil-Sen slope of {what} over days, times 14 days",
            *sources,
            off=_FEW_DAYS,
            alias=("slow drift", "creep"),
            needs=("own_past",),
        ),
        column(
            f"{name}_slope_14d_lower_ratio",
            "1",
            "lower end of its 95 % interval",
            *sources,
            off=_FEW_DAYS,
            needs=("own_past",),
        ),
        column(
            f"{name}_slope_14d_upper_ratio",
            "1",
            "upper end of its 95 % interval",
            *sources,
            off=_FEW_DAYS,
            needs=("own_past",),
        ),
        column(
            f"{name}_trend_p_value",
            "1",
            f"Mann-Kendall p of no trend in {what}",
            *sources,
            off=_FEW_DAYS,
            needs=("own_past",),
        ),
    )


TRENDS: tuple[Column, ...] = (
    *_trend("speed", "daily ln speed at equal load", *LOAD),
    *_trend("e2e_p50", "daily ln p50 end-to-end time at equal lengths", "e2e_seconds"),
    *_trend("e2e_p99", "daily ln p99 end-to-end time at equal lengths", "e2e_seconds"),
    column(
        "latency_creeps",
        "1",
        "a slow drift of the speed at equal load, or of p50 or p99 end-to-end time at equal "
        "lengths: the 95 % interval excludes 0 and 14 days make 3 % or more",
        "e2e_seconds",
        off="fewer than 7 days with enough minutes",
        dtype="bool",
        alias=("slow drift", "creep"),
        needs=("own_past",),
    ),
    column(
        "trend_unknown_reason",
        "1",
        "which slow drifts cannot be told, and why: how many days there are, or that their lengths "
        "or load lie too far apart",
        off="all of them are known",
        dtype="string",
        alias=("slow drift",),
    ),
)

_NO_PAST_WINDOW = "no pin, or one whose window did not measure it"

_FACTORS: tuple[tuple[str, str, tuple[Need, ...], str], ...] = (
    ("batch", "the effective batch size", ("baseline",), _NO_PAST_WINDOW),
    (
        "load",
        "what a step has to do: the load model's inter-token latency",
        ("speed_pin",),
        "no speed at equal load (speed_unknown_reason)",
    ),
    (
        "speed",
        "the speed at equal load",
        ("speed_pin",),
        "no speed at equal load (speed_unknown_reason)",
    ),
    ("first_tokens", "first tokens per later token", ("baseline",), _NO_PAST_WINDOW),
    (
        "gpus",
        "the number of GPUs",
        ("baseline", "gpu_count"),
        "no GPU count now, or none in the pinned window",
    ),
)

ATTRIBUTION: tuple[Column, ...] = tuple(
    column(
        f"throughput_factor_{name}_ratio",
        "1",
        "factor of the last 10 min's tokens/s/GPU against the pinned window that comes from "
        f"{meaning}",
        *LOAD,
        off=off,
        alias=("attribution",),
        needs=needs,
    )
    for name, meaning, needs, off in _FACTORS
)
