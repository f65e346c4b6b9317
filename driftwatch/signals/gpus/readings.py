"""What the GPU readings of a window say of a server: means, counts, and why one is missing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import polars as pl

from driftwatch.signals.gpus.joins import LOOK_BACK, node
from driftwatch.signals.gpus.words import (
    CLOCK_WHILE_IDLE,
    CLOCK_WITHOUT_UTILIZATION,
    clock_events,
    is_idle,
    reasons_by_origin,
)

# readings of one pass over a host's GPUs lie closer together than this
ONE_PASS = timedelta(seconds=5)

# evidence column → column of the GPU table; GPU_UTIL says nothing under MIG
MEANS: Mapping[str, str] = {
    "gpu_utilization_ratio": "utilization_ratio",
    "gpu_tensor_active_ratio": "tensor_active_ratio",
    "gpu_dram_active_ratio": "dram_active_ratio",
    "gpu_power_watts": "power_watts",
    "gpu_sm_clock_hertz": "sm_clock_hertz",
}
_OTHER: Mapping[str, str] = {
    "gpu_clock_event_reasons": "clock_event_reasons",
    "gpus_lost": "lost",
}
# An idle GPU lowers its clock by itself, and the clock is read at one instant, which may fall
# between two steps. So the highest reading of a minute counts, where a kernel was resident for so
# much of the time that hardly ever all of them fall there: both of two in 6 % of the minutes.
BUSY_RATIO = 0.75
# what a person finds a GPU by
_IDENTITY = ("gpu", "hostname", "uuid", "mig_instance")
SOURCES = {**MEANS, **_OTHER}


def window_readings(windows: pl.DataFrame, links: pl.DataFrame | None) -> pl.DataFrame:
    """One row per window of what its readings say; NULL without a reading."""
    index = windows.select("window")
    inside = None if links is None else _inside(windows, links)
    if inside is None or inside.is_empty():
        return index.join(pl.DataFrame(schema=_SCHEMA), on="window", how="left")
    mixed = _mixed(inside)
    inside = inside.join(mixed, on="window", how="anti", maintain_order="left")
    # GPU_UTIL says nothing of a MIG instance
    whole = pl.col("mig_instance").is_null() & pl.col("mig_profile").is_null()
    busy = pl.when(whole).then(pl.col("utilization_ratio")).otherwise("engine_active_ratio")
    inside = _with_whys(inside.with_columns(utilization_ratio=busy, whole=whole))
    inside = _with_busy_clock(inside)
    rows = _per_window(_per_device(inside)).join(_counted(inside), on="window")
    rows = pl.concat([rows, mixed], how="diagonal")
    return index.join(rows, on="window", how="left", maintain_order="left").select(
        pl.col(name).cast(dtype) for name, dtype in _SCHEMA.items()
    )


_SCHEMA: Mapping[str, pl.DataType | type[pl.DataType]] = {
    "window": pl.get_index_type(),
    "gpus_found": pl.Float64,
    "gpus_found_origin": pl.String,
    "way": pl.Int8,
    "pods": pl.Int64,
    "servers": pl.Int64,
    "profiles": pl.String,
    "gpus": pl.Int64,
    "late_seconds": pl.Float64,
    "nodes": pl.String,  # several that show the pod at one time: nothing is read then
    **dict.fromkeys(MEANS, pl.Float64),
    "gpu_clock_event_reasons": pl.String,
    "gpus_lost": pl.Float64,
    "gpus_lost_names": pl.String,
    **{f"known_{name}": pl.Int64 for name in SOURCES},
    **{f"why_{name}": pl.String for name in SOURCES},
}


def _inside(windows: pl.DataFrame, links: pl.DataFrame) -> pl.DataFrame:
    """Each window's readings, with ``late_seconds``: how long before it they were taken."""
    links = links.with_row_index("row")
    times = links.select("instance", "row", at="time").sort("at")
    last = windows.sort("end").join_asof(
        times.rename({"row": "last"}),
        left_on="end",
        right_on="at",
        by="instance",
        strategy="backward",
        allow_exact_matches=False,
        check_sortedness=False,
    )
    start, at = pl.col("start"), pl.col("at")
    since = pl.when(at >= start).then(start).when(at >= start - LOOK_BACK).then(at - ONE_PASS)
    late = (start - at).dt.total_milliseconds() / 1000
    last = last.select(
        "window", "instance", "last", since=since, late_seconds=pl.when(late > 0).then(late)
    ).drop_nulls("since")
    spans = last.sort("since").join_asof(
        times.rename({"row": "first"}),
        left_on="since",
        right_on="at",
        by="instance",
        strategy="forward",
        check_sortedness=False,
    )
    rows = spans.select(
        "window", "late_seconds", row=pl.int_ranges("first", pl.col("last") + 1)
    ).explode("row", empty_as_null=True)
    return (
        rows.with_columns(pl.col("row").cast(links.schema["row"]))
        .join(links, on="row")
        .sort("window", "row")
    )


def _mixed(inside: pl.DataFrame) -> pl.DataFrame:
    """Windows whose readings are of several pods of one name, and the ``nodes`` of those.

    A pod is on one node. Two that show it at one time are of two clusters, as is a reading that
    joins servers of two. A pod that moved was on the one first, and then on the other.
    """
    of_pods = inside.filter((pl.col("way") == 0) & pl.col("pod").is_not_null())
    of_pods = of_pods.with_columns(node=node())
    each = of_pods.group_by("window", "node").agg(
        first=pl.col("time").min(), last=pl.col("time").max(), clusters=pl.col("clusters").max()
    )
    each = each.sort("window", "first", "node").with_columns(
        before=pl.col("last").cum_max().shift(1).over("window")
    )
    both = (pl.col("first") < pl.col("before") + ONE_PASS).fill_null(False)
    return (
        each.group_by("window", maintain_order=True)
        .agg(
            mixed=(both | (pl.col("clusters") > 1)).any(),
            nodes=pl.col("node").unique().sort().str.join(", "),
        )
        .filter("mixed")
        .drop("mixed")
    )


def _with_whys(inside: pl.DataFrame) -> pl.DataFrame:
    """Beside each reading why a column of it is NULL, in the origin's words."""
    columns = {*SOURCES.values(), "engine_active_ratio"}
    origins = reasons_by_origin(inside["reasons"], sorted(columns))
    inside = inside.join(origins, on="reasons", how="left", maintain_order="left")
    busy = pl.when("whole").then("origin_utilization_ratio").otherwise("origin_engine_active_ratio")
    return inside.with_columns(origin_utilization_ratio=busy)


def _with_busy_clock(inside: pl.DataFrame) -> pl.DataFrame:
    """The SM clock of busy readings alone; elsewhere NULL, with its reason."""
    clock, origin = pl.col("sm_clock_hertz"), pl.col("origin_sm_clock_hertz")
    busy = pl.coalesce("utilization_ratio", "engine_active_ratio")
    idle = (busy < BUSY_RATIO) | is_idle(pl.col("clock_event_reasons"))
    why = (
        pl.when(clock.is_null())
        .then(origin)
        .when(idle.fill_null(False))
        .then(pl.lit(CLOCK_WHILE_IDLE))
        .when(busy.is_null())
        .then(pl.lit(CLOCK_WITHOUT_UTILIZATION))
    )
    minute = ["window", "device", "exporter", pl.col("time").dt.truncate("1m")]
    return inside.with_columns(
        sm_clock_hertz=pl.when(why.is_null()).then(clock).max().over(minute),
        origin_sm_clock_hertz=why,
    )


def _per_device(inside: pl.DataFrame) -> pl.DataFrame:
    """One row per window and GPU: the fullest exporter's means, what it lacks from the others."""
    key = ["window", "device"]
    values = [*MEANS.values(), "clock_event_reasons"]
    origins = inside.group_by([*key, "exporter"], maintain_order=True).agg(
        pl.col([*MEANS.values()]).mean(),
        # the bits of all readings; a mask is whole and not negative
        pl.col("clock_event_reasons")
        .filter(pl.col("clock_event_reasons") >= 0)
        .cast(pl.Int64)
        .bitwise_or(),
        pl.col("lost").drop_nulls().last(),
        pl.col("mig_profile").drop_nulls().last(),
        pl.col(*_IDENTITY).drop_nulls().last(),
        pl.col("late_seconds").first(),
        *(pl.col(f"origin_{c}").drop_nulls().last() for c in dict.fromkeys(SOURCES.values())),
        readings=pl.len(),
    )
    full = pl.sum_horizontal(pl.col(c).is_not_null() for c in values)
    origins = origins.with_columns(full=full).sort(
        [*key, "full", "readings", "exporter"], descending=[False, False, True, True, False]
    )
    return origins.group_by(key, maintain_order=True).agg(
        pl.col([*values, "mig_profile", *_IDENTITY]).drop_nulls().first(),
        pl.col("lost").max(),
        pl.col("late_seconds").first(),
        *(pl.col(f"origin_{c}").drop_nulls().first() for c in dict.fromkeys(SOURCES.values())),
    )


def _per_window(devices: pl.DataFrame) -> pl.DataFrame:
    """One row per window: means over its GPUs, of how many, and why of no more."""
    why = {
        f"why_{name}": pl.col(f"origin_{column}")
        .filter(pl.col(column).is_null())
        .drop_nulls()
        .first()
        for name, column in SOURCES.items()
    }
    lost = _named().filter(pl.col("lost") > 0)
    rows = devices.group_by("window", maintain_order=True).agg(
        **{name: pl.col(column).mean() for name, column in MEANS.items()},
        mask=pl.col("clock_event_reasons").drop_nulls().bitwise_or(),
        gpus_lost=pl.when(pl.col("lost").count() > 0).then(pl.col("lost").sum()),
        gpus_lost_names=pl.when(lost.len() > 0).then(lost.sort().str.join("; ")),
        gpus=pl.len(),
        late_seconds=pl.col("late_seconds").first(),
        profiles=pl.col("mig_profile").drop_nulls().unique().sort().str.join(", "),
        **{f"known_{name}": pl.col(column).count() for name, column in SOURCES.items()},
        **why,
    )
    words = {mask: clock_events(mask) for mask in rows["mask"].drop_nulls().unique()}
    return rows.with_columns(
        gpu_clock_event_reasons=pl.when(pl.col("known_gpu_clock_event_reasons") > 0).then(
            pl.col("mask").replace_strict(words, return_dtype=pl.String)
        )
    )


def _named() -> pl.Expr:
    """``2 on node-1, GPU-...``: which GPU it is, as far as it is told."""
    index, host = pl.col("gpu").cast(pl.String), pl.col("hostname")
    at = pl.when(host.is_null()).then(index).otherwise(pl.format("{} on {}", index, host))
    mig = pl.format("MIG {}", pl.col("mig_instance"))
    return pl.concat_str(pl.coalesce(at, host), "uuid", mig, separator=", ", ignore_nulls=True)


def _counted(inside: pl.DataFrame) -> pl.DataFrame:
    """How many GPUs a server has: as many as one exporter shows at one time, by shares.

    A pod that was reborn on other GPUs within the window never had both at one time, and a GPU
    that two exporters tell counts once.
    """
    at = ["window", "exporter", "time"]
    each = inside.group_by([*at, "device"], maintain_order=True).agg(
        pl.col("share").max(), pl.col("origin", "way", "pods", "servers").first()
    )
    counted = each.group_by(at, maintain_order=True).agg(
        devices=pl.len(),
        gpus_found=pl.col("share").sum(),
        gpus_found_origin=pl.col("origin").first(),
        way=pl.col("way").first(),
        pods=pl.col("pods").max(),
        servers=pl.col("servers").max(),
    )
    return (
        counted.sort(
            ["window", "devices", "gpus_found_origin", "time", "exporter"],
            descending=[False, True, False, True, False],
        )
        .unique("window", keep="first", maintain_order=True)
        .drop("exporter", "time", "devices")
    )
