"""Where a GPU count came from, why a GPU number is unknown, what a clock event is called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import orjson
import polars as pl

from driftwatch.signals.gpus.joins import WAYS

# nvml.h, nvmlClocksEventReason*
_GPU_IDLE = 0x1
CLOCK_EVENTS: Mapping[int, str] = {
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}

CLOCK_WHILE_IDLE = "the GPU was idle at every reading; an idle GPU lowers its clock by itself"
CLOCK_WITHOUT_UTILIZATION = "no GPU utilization beside the clock, so an idle GPU is not ruled out"
NO_READING = "no DCGM or NVML reading of the target's GPUs"
_NOT_DECLARED = "gpus_per_replica not declared"


def clock_events(mask: int) -> str:
    """The reasons in a bit mask that hold the clocks down; ``none`` without one.

    An idle GPU clocks down by itself: that is no hold-down.

    >>> clock_events(0x24), clock_events(0x1), clock_events(0x200)
    ('sw_power_cap, sw_thermal_slowdown', 'none', 'unknown bits 0x200')
    """
    words = [word for bit, word in CLOCK_EVENTS.items() if mask & bit]
    rest = mask & ~(_GPU_IDLE | sum(CLOCK_EVENTS))
    if rest:
        words.append(f"unknown bits {rest:#x}")
    return ", ".join(words) or "none"


def is_idle(mask: pl.Expr) -> pl.Expr:
    """NVML says that the GPU was idle when a bit mask of clock events was read; NULL unread."""
    whole = pl.when(mask >= 0).then(mask)
    return (whole.cast(pl.Int64, strict=False) & _GPU_IDLE) > 0


def agrees() -> pl.Expr:
    """Declared and read GPU count are the same; NULL where one of them is unknown."""
    return (pl.col("gpus_declared") - pl.col("gpus_found")).abs() < 1e-6


def source_text() -> pl.Expr:
    """Where ``gpu_count`` came from: ``declared, DCGM agrees``, ``declared 2, DCGM shows 4``, ...

    Of columns gpus_declared, gpus_found, gpus_found_origin, way, profiles, pods, servers, engines.
    """
    origin = pl.col("gpus_found_origin")
    way = pl.col("way").replace_strict(dict(enumerate(WAYS)), return_dtype=pl.String)
    declared = pl.col("gpus_declared").is_not_null()
    source = (
        pl.when(declared & agrees())
        .then(pl.format("declared, {} agrees", origin))
        .when(declared & origin.is_not_null())
        .then(
            pl.format(
                "declared {}, {} shows {}", _number("gpus_declared"), origin, _number("gpus_found")
            )
        )
        .when(declared)
        .then(pl.lit("declared"))
        .when(origin.is_not_null())
        .then(pl.format("{} by {}", origin, way))
    )
    notes = [
        pl.when(pl.col("profiles") != "").then(pl.format("MIG {}", "profiles")),
        pl.when(pl.col("pods") > 1).then(pl.format("shared by {} pods", "pods")),
        pl.when(pl.col("servers") > 1).then(pl.format("shared by {} servers", "servers")),
        pl.when(pl.col("engines") > 1).then(pl.format("divided among {} engines", "engines")),
    ]
    return pl.when(source.is_not_null()).then(
        pl.concat_str([source, *(pl.lit("; ") + note for note in notes)], ignore_nulls=True)
    )


def _number(column: str) -> pl.Expr:
    """A count as text: whole where it is whole, else with two digits."""
    value = pl.col(column)
    whole = value == value.round()
    return (
        pl.when(whole)
        .then(value.cast(pl.Int64).cast(pl.String))
        .otherwise(value.round(2).cast(pl.String))
    )


def unjoined_text() -> pl.Expr:
    """Readings came, and none is this target's: what it was looked for by."""
    pod = (
        pl.when(pl.col("pod").is_null())
        .then(pl.lit("the target has no pod label"))
        .otherwise(pl.format("none names pod {}", pl.concat_str("namespace", "pod", separator="/")))
    )
    pod = pl.coalesce(pod, pl.format("none names pod {}", "pod"))
    uuids = (
        pl.when(pl.col("gpu_uuids").list.len() > 0)
        .then(pl.format("none has a declared UUID on host {}", pl.col("host").fill_null("unknown")))
        .otherwise(pl.lit("gpu_uuids not declared"))
    )
    own = pl.when("own_host").then(pl.lit("it is not the only server of this machine"))
    reasons = pl.concat_str([pod, uuids, own], separator=", ", ignore_nulls=True)
    return pl.format("no GPU reading joins the target: {}", reasons)


# what is there where the readings of several pods of one name cannot be told apart
MIXED = "several pods have the target's name"


def mixed_text() -> pl.Expr:
    """The readings are of several pods of one name: on which nodes."""
    pod = pl.coalesce(pl.concat_str("namespace", "pod", separator="/"), "pod")
    return pl.format(
        MIXED + " at one time ({} on {}): give servers and GPU readings a label cluster, or watch "
        "each cluster by itself",
        pod,
        "nodes",
    )


def reasons_json(sources: Mapping[str, str], unread: pl.Expr) -> pl.Expr:
    """A JSON object, evidence column → reason; NULL where there is none.

    ``sources``: evidence column → column of the GPU table; ``unread``: why the window has no
    reading; NULL where it has one, and where that is all there is to say.

    Of columns ``gpus`` (how many were read), ``late_seconds``, and for each evidence column
    ``known_<column>`` (of how many GPUs) and ``why_<column>`` (the origin's reason).
    """
    source = {column: _why(column, unread) for column in sources}
    nothing = pl.col("gpus_declared").is_null() & pl.col("gpus_found").is_null()
    count = pl.when(nothing & unread.is_not_null()).then(
        pl.format("{}; {}", pl.lit(_NOT_DECLARED), unread)
    )
    source |= {"gpu_count": count, "gpu_count_source": count}
    text = pl.struct(expr.alias(name) for name, expr in source.items())
    return pl.when(pl.any_horizontal(expr.is_not_null() for expr in source.values())).then(
        text.struct.json_encode()
    )


def _why(column: str, unread: pl.Expr) -> pl.Expr:
    with_value, every = pl.col(f"known_{column}"), pl.col("gpus")
    why = pl.col(f"why_{column}").fill_null("not read")
    late = pl.format("read {} s before the window", pl.col("late_seconds").round().cast(pl.Int64))
    return (
        pl.when(every.is_null())
        .then(unread)
        .when(with_value == 0)
        .then(why)
        .when(with_value < every)
        .then(pl.format("of {} of {} GPUs: {}", with_value, every, why))
        .otherwise(late)
    )


def reasons_of(text: str | None) -> dict[str, str]:
    """The reasons of one row, as :func:`reasons_json` wrote them."""
    reasons: Mapping[str, str | None] = orjson.loads(text) if text else {}
    return {name: why for name, why in reasons.items() if why}


def reasons_by_origin(reasons: pl.Series, columns: Iterable[str]) -> pl.DataFrame:
    """Distinct values of the GPU table's ``reasons`` with one column per wanted GPU column."""
    distinct = reasons.drop_nulls().unique(maintain_order=True)
    return distinct.to_frame("reasons").with_columns(
        pl.col("reasons").str.json_path_match(f"$.{column}").alias(f"origin_{column}")
        for column in columns
    )
