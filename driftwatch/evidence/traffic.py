"""Whether the pool's traffic changed, is uneven, or has left the pinned lengths behind."""

from __future__ import annotations

from driftwatch.evidence.schema import NO_DAY_PINNED, NO_PAST, NO_TWINS, Column, column

_LENGTHS = ("prompt_tokens", "generation_tokens")

TRAFFIC: tuple[Column, ...] = (
    column(
        "traffic_shifted",
        "1",
        "the pool's lengths changed against every context",
        *_LENGTHS,
        off=NO_PAST,
        dtype="bool",
        alias=("traffic shift",),
        needs=("own_past",),
    ),
    column(
        "traffic_shift_over",
        "1",
        "the pool's lengths have been usual for 15 min",
        *_LENGTHS,
        off=NO_PAST,
        dtype="bool",
        needs=("own_past",),
    ),
    column(
        "traffic_uneven",
        "1",
        "the target's lengths differ from its twins' while it is not slower than they are",
        *_LENGTHS,
        off=NO_TWINS,
        dtype="bool",
        alias=("sticky client", "routing"),
        needs=("pool_of_three",),
    ),
    column(
        "traffic_uneven_over",
        "1",
        "the target's lengths have been those of its twins for 15 min",
        *_LENGTHS,
        off=NO_TWINS,
        dtype="bool",
        needs=("pool_of_three",),
    ),
    column(
        "pin_lengths_moved",
        "1",
        "lengths of the last 24 h differ from the pin's beyond what is usual: the tune is stale",
        *_LENGTHS,
        off=NO_DAY_PINNED,
        dtype="bool",
        alias=("stale tune",),
        needs=("baseline", "own_past"),
    ),
    column(
        "pin_age_seconds",
        "seconds",
        "time since the end of the pinned window",
        off="no pin",
        needs=("baseline",),
    ),
)
