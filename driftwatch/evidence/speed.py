"""Speed at equal load: against the pinned load model, and against the twins."""

from __future__ import annotations

from driftwatch.evidence.schema import LOAD, NO_PIN, Column, column

_NO_POOL = "a pool of fewer than three, or no load model"

SPEED: tuple[Column, ...] = (
    column(
        "speed_at_equal_load_ratio",
        "1",
        "speed of the engine over that of the pinned load model at this load: median of the last "
        "10 min, or of the minutes since a loss that is younger",
        *LOAD,
        off=NO_PIN,
        alias=("equal load", "slower"),
        needs=("speed_pin",),
    ),
    column(
        "speed_at_equal_load_upper_ratio",
        "1",
        "90 % quantile of the same minutes: nearly every one is at most so fast",
        *LOAD,
        off=NO_PIN,
        needs=("speed_pin",),
    ),
    column(
        "speed_at_equal_demand_ratio",
        "1",
        "the same where the load lies above the tuned range, with what the load model may be too "
        "low by out there: an upper bound",
        *LOAD,
        off=f"{NO_PIN}; or the load lies inside the tuned range",
        alias=("equal demand",),
        needs=("speed_pin",),
    ),
    column(
        "speed_threshold_ratio",
        "1",
        "at or below it the upper ratio counts as slower: what its own past knows, at most 0.87",
        off=NO_PIN,
        needs=("speed_pin",),
    ),
    column(
        "speed_change_ratio",
        "1",
        "speed at equal load of nearly every one of the last 8 min over that of the minutes before",
        *LOAD,
        off=NO_PIN,
        alias=("sudden", "abrupt"),
        needs=("speed_pin",),
    ),
    column(
        "speed_change_threshold_ratio",
        "1",
        "at or below it a change counts as sudden loss: what its own past knows, at most 0.915",
        off=NO_PIN,
        needs=("speed_pin",),
    ),
    column(
        "slower_at_equal_load",
        "1",
        "the engine is slower than its pin, from a sudden change or a low level on until the speed "
        "is back; at equal load, or at equal demand",
        *LOAD,
        off=NO_PIN,
        dtype="bool",
        alias=("slower",),
        needs=("speed_pin",),
    ),
    column(
        "speed_recovered",
        "1",
        "no loss of speed holds: most of it was regained over 15 min, or by a jump",
        *LOAD,
        off=NO_PIN,
        dtype="bool",
        needs=("speed_pin",),
    ),
    column(
        "speed_smallest_detectable_loss_ratio",
        "1",
        "the smallest share of speed whose loss would be found here in 95 of 100 cases",
        off=NO_PIN,
        needs=("speed_pin",),
    ),
    column(
        "speed_reference",
        "1",
        "which reference answered: own pin, pool pin, provisional; equal load or equal demand",
        dtype="string",
    ),
    column(
        "speed_calibration",
        "1",
        "whose past set the thresholds: own, pool or shipped (uncalibrated)",
        off=NO_PIN,
        dtype="string",
    ),
    column(
        "speed_unknown_reason",
        "1",
        "why there is no speed at equal load: arming and what is missing, idle, saturated, outside "
        "the tuned range, or work of a kind that the baseline does not answer for",
        off="the speed is known",
        dtype="string",
        alias=("arming",),
    ),
    column(
        "pool_speed_at_equal_load_ratio",
        "1",
        "speed at equal load of the pool's other targets: their median",
        *LOAD,
        off=_NO_POOL,
        needs=("pool_of_three",),
    ),
    column(
        "speed_against_pool_ratio",
        "1",
        "speed at equal load over that of the pool's other targets in the same minutes",
        *LOAD,
        off=_NO_POOL,
        alias=("twins", "peers", "replica"),
        needs=("pool_of_three",),
    ),
    column(
        "speed_against_pool_threshold_ratio",
        "1",
        "at or below it the target counts as slower than its twins",
        off=_NO_POOL,
        needs=("pool_of_three",),
    ),
    column(
        "slower_than_pool",
        "1",
        "the engine is slower than its twins at equal load",
        *LOAD,
        off=_NO_POOL,
        dtype="bool",
        alias=("twins", "peers", "replica"),
        needs=("pool_of_three",),
    ),
)
