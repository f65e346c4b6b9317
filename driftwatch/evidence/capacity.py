"""The service targets, and what a replay says of the capacity within them."""

from __future__ import annotations

from driftwatch.evidence.schema import Column, Need, column

_NOT_REPLAYED = (
    "asked only while lengths moved and a limit binds; driftwatch recommend TARGET says it"
)

_TARGETS: tuple[tuple[str, Need], ...] = (("ttft", "slo_ttft"), ("tpot", "slo_tpot"))

SLO: tuple[Column, ...] = (
    column(
        "slo_missed",
        "1",
        "over the last 10 min fewer than the SLO's share of requests met a target; not missed "
        "where TTFT's is met, or TPOT's where no TTFT target is set",
        "ttft_seconds",
        "tpot_seconds",
        off="no slo in the configuration, or the target lies inside a bucket that decides",
        dtype="bool",
        alias=("slo",),
        needs=("slo",),
        optional=("ttft_seconds", "tpot_seconds"),
    ),
    *(
        column(
            f"{name}_missed",
            "1",
            f"over the last 10 min fewer than the SLO's share of requests met the {name.upper()} "
            "target",
            f"{name}_seconds",
            off=f"no slo.{name}_seconds, fewer than 20 requests, or the target lies inside a "
            "bucket that decides",
            dtype="bool",
            alias=("slo",),
            needs=(need,),
        )
        for name, need in _TARGETS
    ),
    column(
        "ttft_in_target_10m_ratio",
        "1",
        "share of requests of the last 10 min within the TTFT "
        "target (lower bound unless the target is a bucket edge)",
        "ttft_seconds",
        off="no slo.ttft_seconds",
        needs=("slo_ttft",),
    ),
    column(
        "tpot_in_target_10m_ratio",
        "1",
        "share within the TPOT target (lower bound unless the target is a bucket edge)",
        "tpot_seconds",
        off="no slo.tpot_seconds",
        needs=("slo_tpot",),
    ),
)

CAPACITY: tuple[Column, ...] = (
    column(
        "capacity_ratio",
        "1",
        "capacity within the SLO at today's lengths over the reference's, by replay: every 10 min "
        "while lengths moved, a limit binds and no target is known to be missed; on a page, of "
        "its advice",
        off=_NOT_REPLAYED,
        alias=("headroom",),
        needs=("lengths_reference",),
    ),
    column(
        "utilization_ratio",
        "1",
        "offered rate over that capacity",
        off=_NOT_REPLAYED,
        alias=("headroom", "rho"),
    ),
    column(
        "capacity_requests_per_second",
        "1/s",
        "that capacity: the highest rate of one engine at which the share of requests in target "
        "is met",
        off=_NOT_REPLAYED,
        alias=("headroom",),
    ),
    column(
        "capacity_unknown_reason",
        "1",
        "why it was asked and is not known",
        off="the capacity is known, or was not asked",
        dtype="string",
        alias=("headroom",),
    ),
)
