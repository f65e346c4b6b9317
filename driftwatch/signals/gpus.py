"""How many GPUs a target has, and what they did in a window.

A GPU that several pods or servers share counts as one for each; engines of a server divide its
GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import numpy as np
import orjson
import polars as pl

from driftwatch.collect.gpus import GPU_IDLE, TIME, clock_events
from driftwatch.signals.gpu_links import GPU_TARGET_SCHEMA, WAYS, linked, servers
from driftwatch.signals.windows import MinuteWindows, Spans

# how long the newest reading holds after its minute, for GPUs that are read more rarely
_HOLDS_MINUTES = 2
# readings of one pass over a host's GPUs lie closer together than this
_ONE_PASS = timedelta(seconds=5)
# An idle GPU lowers its clock by itself, and a reading may fall between two steps. So the highest
# reading of a minute counts, and only while a kernel was resident for this share of the time: then
# both of two readings fall between steps in 6 % of the minutes.
_BUSY_RATIO = 0.75

# evidence column → column of the GPU table
_MEANS: Mapping[str, str] = {
    "gpu_utilization_ratio": "utilization_ratio",
    "gpu_power_watts": "power_watts",
    "gpu_sm_clock_hertz": "sm_clock_hertz",
}
_SOURCES = {
    **_MEANS,
    "gpu_clock_event_reasons": "clock_event_reasons",
    "gpus_lost": "lost",
}
# What a minute row keeps of its GPU readings (:func:`gpu_columns`).
GPU_COLUMNS: dict[str, pl.DataType | type[pl.DataType]] = {
    "gpu_count": pl.Float64,
    "gpu_count_source": pl.String,
    **dict.fromkeys(_MEANS, pl.Float64),
    "gpu_clock_event_reasons": pl.String,
    "gpus_lost": pl.Float64,
    "gpus_lost_names": pl.String,
    "gpus_of_server": pl.Float64,
    "gpu_model": pl.String,  # of all GPUs of the server
    "gpu_reasons": pl.String,
}
# the GPUs of a window
_WINDOW_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "window": pl.get_index_type(),
    "gpus_found": pl.Float64,
    "gpus_found_origin": pl.String,
    "way": pl.Int8,
    "exporters": pl.String,  # several show the pod at one time: then no value is known
    **dict.fromkeys(_MEANS, pl.Float64),
    "gpu_clock_event_reasons": pl.String,
    "gpus_lost": pl.Float64,
    "gpus_lost_names": pl.String,
    "gpu_model": pl.String,
    **{f"why_{name}": pl.String for name in _SOURCES},
}

_CLOCK_WHILE_IDLE = "the GPU was idle at every reading; an idle GPU lowers its clock by itself"
_CLOCK_WITHOUT_UTILIZATION = "no GPU utilization beside the clock, so an idle GPU is not ruled out"
NO_READING = "no DCGM or NVML reading of the target's GPUs"
_NONE_IN_WINDOW = "no reading of its GPUs in this window or in the 2 min before it"
# the reason where readings of several pods of one name cannot be separated
MIXED = "several pods have the target's name"


def gpu_columns(
    minutes: pl.DataFrame, gpus: pl.DataFrame | None, targets: pl.DataFrame | None
) -> pl.DataFrame:
    """The GPU columns of the evidence table, one row per minute, in the minutes' order.

    A minute's readings are those in it; where there is none, those of the newest pass in the 2 min
    before it. Means are over readings, then over GPUs.

    ``minutes``: instance, engine, start of a whole minute; ``gpus``: GPU table
    (:data:`driftwatch.collect.gpus.GPU_SCHEMA`), None = none read; ``targets``:
    :data:`GPU_TARGET_SCHEMA`, None = nothing known.
    Returns: ``gpu_count`` (of the engine), ``gpu_count_source``, a mean per reading,
    ``gpu_clock_event_reasons``, ``gpus_lost``; NULL where nothing is known. Besides these
    ``gpus_found`` (of the server, as read), ``gpus_found_origin``, ``gpus_lost_names`` (index, host
    and UUID of each), ``gpus_of_server`` (declared, else found), and ``gpu_reasons``: a JSON
    object, column → why it is unknown.
    """
    hosts = servers(pl.DataFrame(schema=dict(GPU_TARGET_SCHEMA)) if targets is None else targets)
    spans = minutes.select("instance", "start")
    distinct = spans.unique(maintain_order=True).with_row_index("window")
    links = None
    if gpus is not None and len(gpus) and len(hosts) and len(distinct):
        # only older readings show the server of a lost GPU
        is_lost = pl.col("lost").fill_null(False).any().over("uuid")
        earliest = distinct["start"].dt.offset_by(f"-{_HOLDS_MINUTES}m").min()
        links = linked(gpus.filter((pl.col("time") >= earliest) | is_lost), hosts)
    rows = (
        distinct.join(hosts, on="instance", how="left", maintain_order="left")
        .join(_window_readings(distinct, links), on="window", how="left", maintain_order="left")
        .with_columns(
            gpu_count=pl.coalesce("gpus_declared", "gpus_found") / pl.col("engines"),
            gpus_of_server=pl.coalesce("gpus_declared", "gpus_found"),
            gpu_count_source=_source_text(),
            gpu_reasons=_reasons_json(_unread(links, gpus)),
        )
    )
    return spans.join(rows, on=["instance", "start"], how="left", maintain_order="left").select(
        "gpus_found", "gpus_found_origin", *GPU_COLUMNS
    )


def gpu_counts(gpus: pl.DataFrame, targets: pl.DataFrame, until: datetime) -> pl.DataFrame:
    """GPUs of each target by the readings of the last 2 min, beside the declared ones.

    ``gpus``: GPU table; ``targets``: :data:`GPU_TARGET_SCHEMA`; ``until``: now, aware.
    Returns: one row per target: instance, engine, ``gpus_declared`` and ``gpus_found`` (both of the
    whole server; NULL = not declared, not read), ``contradicted`` (both known and different), and
    the columns of :func:`gpu_columns`.
    """
    own = targets.select("instance", "engine", "gpus_declared")
    minutes = own.with_columns(start=pl.lit(until, dtype=TIME).dt.truncate("1m"))
    contradicted = pl.col("gpus_declared") != pl.col("gpus_found")
    return own.with_columns(gpu_columns(minutes, gpus, targets)).with_columns(
        contradicted=contradicted
    )


def window_gpus(minutes: MinuteWindows, spans: Spans) -> pl.DataFrame:
    """:data:`GPU_COLUMNS` of windows: means over their minutes, the rest as the last one has it."""
    filled = spans.filled
    at_last = minutes.at_end(list(GPU_COLUMNS), spans)
    if (spans.first == spans.last)[filled].all():
        return at_last
    means = pl.col(list(_MEANS)).mean()
    of_minutes = minutes.of_minutes(spans, list(_MEANS)).group_by("window").agg(means)
    windows = pl.DataFrame({"window": np.arange(len(filled))}).cast({"window": pl.UInt32})
    of_windows = windows.join(of_minutes, on="window", how="left", maintain_order="left")
    return at_last.with_columns(of_windows.drop("window"))


def reasons_of(text: str | None) -> dict[str, str]:
    """The reasons of one row's ``gpu_reasons``."""
    reasons: Mapping[str, str | None] = orjson.loads(text) if text else {}
    return {name: why for name, why in reasons.items() if why}


def _window_readings(minutes: pl.DataFrame, links: pl.DataFrame | None) -> pl.DataFrame:
    """:data:`_WINDOW_SCHEMA` of the minutes that have a reading."""
    inside = None if links is None else _inside(minutes, links)
    if inside is None or inside.is_empty():
        return pl.DataFrame(schema=_WINDOW_SCHEMA)
    return _per_window(_per_device(_with_busy_clock(_with_whys(inside))))


def _inside(minutes: pl.DataFrame, links: pl.DataFrame) -> pl.DataFrame:
    """Each minute's readings: those in it, else the newest pass of the 2 min before it."""
    own = pl.col("time").dt.truncate("1m")
    later = [own.dt.offset_by(f"{number}m") for number in range(_HOLDS_MINUTES + 1)]
    near = links.with_columns(start=pl.concat_list(later)).explode("start", empty_as_null=True)
    near = near.join(minutes, on=["instance", "start"])
    inside = pl.col("time") >= pl.col("start")
    newest = pl.col("time") > pl.col("time").max().over("window") - _ONE_PASS
    held = pl.when(inside.any().over("window")).then(inside).otherwise(newest)
    return near.filter(held).sort("window", "time", "reading")


def _with_whys(inside: pl.DataFrame) -> pl.DataFrame:
    """Beside each reading why a column of it is NULL, in the origin's words."""
    distinct = inside["reasons"].drop_nulls().unique(maintain_order=True).to_frame()
    origins = distinct.with_columns(
        pl.col("reasons").str.json_path_match(f"$.{column}").alias(f"origin_{column}")
        for column in _SOURCES.values()
    )
    return inside.join(origins, on="reasons", how="left", maintain_order="left")


def _with_busy_clock(inside: pl.DataFrame) -> pl.DataFrame:
    """The SM clock of busy readings alone; elsewhere NULL, with its reason."""
    clock, origin = pl.col("sm_clock_hertz"), pl.col("origin_sm_clock_hertz")
    busy = pl.coalesce("utilization_ratio", "engine_active_ratio")
    mask = pl.col("clock_event_reasons")
    idle = pl.when(mask >= 0).then(mask).cast(pl.Int64, strict=False) & GPU_IDLE
    why = (
        pl.when(clock.is_null())
        .then(origin)
        .when(((busy < _BUSY_RATIO) | (idle > 0)).fill_null(False))
        .then(pl.lit(_CLOCK_WHILE_IDLE))
        .when(busy.is_null())
        .then(pl.lit(_CLOCK_WITHOUT_UTILIZATION))
    )
    return inside.with_columns(
        sm_clock_hertz=pl.when(why.is_null())
        .then(clock)
        .max()
        .over("window", "device", "exporter"),
        origin_sm_clock_hertz=why,
    )


def _per_device(inside: pl.DataFrame) -> pl.DataFrame:
    """One row per window and GPU, from the exporter with the most fields."""
    values = [*_MEANS.values(), "clock_event_reasons"]
    mask = pl.col("clock_event_reasons")
    each = inside.group_by("window", "device", "exporter", maintain_order=True).agg(
        pl.col([*_MEANS.values()]).mean(),
        # the bits of all readings; a mask is whole and not negative
        mask.filter(mask >= 0).cast(pl.Int64).bitwise_or(),
        pl.col("lost", "gpu", "hostname", "uuid", "gpu_model").drop_nulls().last(),
        pl.col("origin", "way", "pod").first(),
        pl.col("clusters").max(),
        *(pl.col(f"origin_{c}").drop_nulls().last() for c in _SOURCES.values()),
        first=pl.col("time").min(),
        last=pl.col("time").max(),
        readings=pl.len(),
    )
    full = pl.sum_horizontal(pl.col(c).is_not_null() for c in values)
    each = each.with_columns(full=full, lost=pl.col("lost").max().over("window", "device"))
    order = ["window", "device", "full", "readings", "exporter"]
    each = each.sort(order, descending=[False, False, True, True, False])
    return each.unique(["window", "device"], keep="first", maintain_order=True)


def _per_window(devices: pl.DataFrame) -> pl.DataFrame:
    """One row per window: means over its GPUs, their number, and why values are unknown.

    A pod runs on one node. Where two exporters show it at one time, or a reading joins servers of
    two clusters, two pods have one name: then only ``exporters`` is known. A pod that moved shows
    on one exporter after the other.
    """
    exporter = pl.col("exporter")
    at_one_time = pl.col("first").max() < pl.col("last").min() + _ONE_PASS
    of_two = ((exporter.n_unique() > 1) & at_one_time) | (pl.col("clusters").max() > 1)
    lost = _named().filter(pl.col("lost") > 0)
    models = pl.col("gpu_model").drop_nulls().unique().sort()
    rows = devices.group_by("window", maintain_order=True).agg(
        pl.col("way").first(),
        **{name: pl.col(column).mean() for name, column in _MEANS.items()},
        # a pod that restarted on other GPUs within the window never had both
        gpus_found=(pl.col("last") > pl.col("last").max() - _ONE_PASS).sum().cast(pl.Float64),
        gpus_found_origin=pl.col("origin").first(),
        gpu_clock_event_reasons=pl.col("clock_event_reasons").drop_nulls().bitwise_or(),
        gpus_lost=pl.when(pl.col("lost").count() > 0).then(pl.col("lost").sum()),
        gpus_lost_names=pl.when(lost.len() > 0).then(lost.sort().str.join("; ")),
        gpu_model=pl.when(models.len() > 0).then(models.str.join(", ")),
        exporters=pl.when(of_two & (pl.col("way").first() == 0)).then(
            exporter.unique().sort().str.join(", ")
        ),
        **{
            f"why_{name}": pl.col(f"origin_{column}").drop_nulls().first()
            for name, column in _SOURCES.items()
        },
    )
    words = pl.col("gpu_clock_event_reasons").map_elements(clock_events, return_dtype=pl.String)
    rows = rows.with_columns(gpu_clock_event_reasons=words)
    known = pl.col("exporters").is_null()
    return rows.select(
        (pl.col(n) if n in ("window", "exporters") else pl.when(known).then(n)).cast(dtype)
        for n, dtype in _WINDOW_SCHEMA.items()
    )


def _named() -> pl.Expr:
    """``2 on node-1, GPU-...``: which GPU it is, as far as it is known."""
    index, host = pl.col("gpu").cast(pl.String), pl.col("hostname")
    at = pl.when(host.is_null()).then(index).otherwise(pl.format("{} on {}", index, host))
    return pl.concat_str(pl.coalesce(at, host), "uuid", separator=", ", ignore_nulls=True)


def _source_text() -> pl.Expr:
    """Where ``gpu_count`` came from: ``declared, DCGM agrees``, ``declared 2, DCGM shows 4``, …"""
    origin, declared = pl.col("gpus_found_origin"), pl.col("gpus_declared")
    way = pl.col("way").replace_strict(dict(enumerate(WAYS)), return_dtype=pl.String)
    numbers = (pl.col(c).cast(pl.Int64).cast(pl.String) for c in ("gpus_declared", "gpus_found"))
    first, shown = numbers
    source = (
        pl.when(declared == pl.col("gpus_found"))
        .then(pl.format("declared, {} agrees", origin))
        .when(declared.is_not_null() & origin.is_not_null())
        .then(pl.format("declared {}, {} shows {}", first, origin, shown))
        .when(declared.is_not_null())
        .then(pl.lit("declared"))
        .when(origin.is_not_null())
        .then(pl.format("{} by {}", origin, way))
    )
    note = pl.when(pl.col("engines") > 1).then(
        pl.format("; divided among {} engines", pl.col("engines"))
    )
    return pl.concat_str(source, note.fill_null(""))


def _unread(links: pl.DataFrame | None, gpus: pl.DataFrame | None) -> pl.Expr:
    """Why a target has no reading in a window."""
    if gpus is None or gpus.is_empty():
        return pl.lit(NO_READING)
    mine = [] if links is None else links["instance"].unique().to_list()
    pod = pl.coalesce(pl.concat_str("namespace", "pod", separator="/"), "pod")
    mixed = pl.format(
        MIXED + " at one time ({} on {}): give servers and GPU readings a label cluster, or watch "
        "each cluster by itself",
        pod,
        "exporters",
    )
    looked_for = [
        pl.coalesce(pl.format("none names pod {}", pod), pl.lit("the target has no pod label")),
        pl.when(pl.col("gpu_uuids").list.len() > 0)
        .then(pl.format("none has a declared UUID on host {}", pl.col("host").fill_null("unknown")))
        .otherwise(pl.lit("gpu_uuids not declared")),
        pl.when("own_host").then(pl.lit("it is not the only server of this machine")),
    ]
    reasons = pl.concat_str(looked_for, separator=", ", ignore_nulls=True)
    return (
        pl.when(pl.col("engines").is_null())
        .then(pl.lit(NO_READING))
        .when(pl.col("exporters").is_not_null())
        .then(mixed)
        .when(pl.col("instance").is_in(mine))
        .then(pl.lit(_NONE_IN_WINDOW))
        .otherwise(pl.format("no GPU reading joins the target: {}", reasons))
    )


def _reasons_json(unread: pl.Expr) -> pl.Expr:
    """A JSON object, evidence column → why it is NULL; NULL where none is."""
    is_read = pl.col("gpus_found").is_not_null()
    reasons = {
        name: pl.when(pl.col(name).is_null()).then(
            pl.when(is_read).then(pl.col(f"why_{name}").fill_null("not read")).otherwise(unread)
        )
        for name in _SOURCES
    }
    count = pl.when(pl.col("gpus_declared").is_null() & ~is_read).then(
        pl.format("gpus_per_replica not declared; {}", unread)
    )
    reasons["gpu_count"] = count
    text = pl.struct(expr.alias(name) for name, expr in reasons.items())
    return pl.when(pl.any_horizontal(expr.is_not_null() for expr in reasons.values())).then(
        text.struct.json_encode()
    )
