"""Which GPU readings belong to which server, and what part of a GPU that gives it.

vLLM tells nothing of its GPUs. In order of trust: the Kubernetes workload that the reading names,
the UUIDs declared for the pool on the server's host, and, where one server runs on the own host,
the GPUs in use there. For one server the first way that finds anything counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import polars as pl

# the ways, in order of trust, as they are printed
WAYS = ("pod", "hostname and UUID", "own host")
# GPUs read more rarely than the minute: so far back of the window's start the newest reading holds
LOOK_BACK = timedelta(minutes=2)
# Nobody computes on a GPU with less in use. One context takes hundreds of MiB, an idle GPU a few.
IN_USE_BYTES = 64 * 2.0**20

# What is known of a target that can join it to its GPUs; one row per engine.
GPU_TARGET_SCHEMA: Mapping[str, pl.DataType | type[pl.DataType]] = {
    "instance": pl.String,
    "engine": pl.String,
    "cluster": pl.String,  # label of that name; NULL: none
    "namespace": pl.String,
    "pod": pl.String,
    "host": pl.String,  # hostname or node label, else the instance's host
    "own_host": pl.Boolean,  # the machine that driftwatch runs on
    "gpu_uuids": pl.List(pl.String),  # declared for its pool
    "gpus_declared": pl.Float64,  # gpus_per_replica: of all engines of the instance
}

_DEVICE = ["exporter", "time", "device"]


def servers(targets: pl.DataFrame) -> pl.DataFrame:
    """One row per instance of :data:`GPU_TARGET_SCHEMA`, with ``engines``: how many it has."""
    columns = [c for c in GPU_TARGET_SCHEMA if c not in ("instance", "engine")]
    return targets.group_by("instance", maintain_order=True).agg(
        pl.col(columns).first(), engines=pl.len()
    )


def linked(gpus: pl.DataFrame, hosts: pl.DataFrame) -> pl.DataFrame:
    """Every reading of every server's GPUs.

    ``gpus``: GPU table (:data:`driftwatch.collect.gpus.GPU_SCHEMA`); ``hosts``: from
    :func:`servers`.
    Returns: the readings with ``instance``, ``device`` (a GPU or a MIG instance of one), ``way``
    (its number in WAYS), ``share`` (of the GPU: 1 over those that share it), ``pods`` and
    ``servers`` that share it, ``clusters``: how many those servers are in; by instance and time. A
    GPU that a pod's readings name comes with what exporters that know no pods read of it.
    """
    readings = gpus.with_row_index("reading").with_columns(device=_device())
    ways = [_by_pod(readings, hosts), _by_uuid(readings, hosts), _by_own_host(readings, hosts)]
    links = pl.concat(
        each.unique(maintain_order=True).with_columns(way=pl.lit(number, dtype=pl.Int8))
        for number, each in enumerate(ways)
    )
    links = links.filter(pl.col("way") == pl.col("way").min().over("instance"))
    links = links.join(
        hosts.select("instance", target_cluster="cluster"), on="instance", maintain_order="left"
    )
    links = links.with_columns(
        servers=pl.len().over("reading"),
        clusters=pl.col("target_cluster").drop_nulls().n_unique().over("reading"),
    ).drop("target_cluster")
    joined = links.join(_with_pods(readings), on="reading")
    # only the pod's own rows tell who else has the GPU; a declared GPU is the server's
    pods = pl.when(pl.col("way") == 0).then(pl.col("pods")).otherwise(1)
    joined = joined.with_columns(pods=pods, share=1.0 / (pods * pl.col("servers")))
    return pl.concat([joined, _of_other_exporters(readings, joined)]).sort(
        "instance", "time", "reading"
    )


def _of_other_exporters(readings: pl.DataFrame, links: pl.DataFrame) -> pl.DataFrame:
    """What exporters that know no pods read of a pod's GPUs, rows of the links' columns.

    A GPU is whose the exporter that names pods last said it to be; a lost one stays so, since it
    is then no longer listed there.
    """
    of_pods = links.filter(pl.col("way") == 0)
    near = readings.filter(pl.col("uuid").is_not_null()).join(
        of_pods.select("device").unique(), on="device", how="semi"
    )
    naming = near.filter(pl.col("pod").is_not_null()).select("exporter", "device").unique()
    bare = near.join(naming, on=["exporter", "device"], how="anti")
    if bare.is_empty():
        return links.clear()
    naming_rows = (
        near.join(naming, on=["exporter", "device"], how="semi")
        .select("device", "exporter", "time", at="time")
        .unique()
        .sort("at", "exporter")
        .rename({"exporter": "namer", "time": "named_at"})
    )
    latest = bare.sort("time").join_asof(
        naming_rows, left_on="time", right_on="at", by="device", check_sortedness=False
    )
    fresh = pl.col("time") - pl.col("named_at") <= LOOK_BACK
    latest = latest.filter(
        fresh | (pl.col("lost").fill_null(False) & pl.col("named_at").is_not_null())
    )
    whose = of_pods.select(
        "instance",
        "device",
        *("way", "servers", "clusters", "pods", "share"),
        namer="exporter",
        named_at="time",
    ).unique(["instance", "device", "namer", "named_at"], maintain_order=True)
    rows = latest.join(whose, on=["device", "namer", "named_at"])
    return rows.select(pl.col(name).cast(links.schema[name]) for name in links.columns)


def _device() -> pl.Expr:
    """One name per GPU, whoever reads it; its index on its host where nobody tells the UUID."""
    whole = pl.coalesce("uuid", pl.format("{} gpu {}", _short("hostname"), "gpu"), "exporter")
    return (
        pl.when(pl.col("mig_instance").is_null())
        .then(whole)
        .otherwise(pl.concat_str(whole, pl.lit("/"), "mig_instance"))
    )


def node() -> pl.Expr:
    """The machine that a reading's GPU is in, of a window's rows: its name, exporter and cluster.

    Exporters that show the same GPU are on one machine; the names of machines repeat in clusters.
    """
    of = ("window", "device")
    return pl.concat_str(
        _short("hostname").drop_nulls().first().over(of),
        pl.format("({})", pl.col("exporter").min().over(of)),
        pl.format("in {}", pl.col("cluster").drop_nulls().first().over(of)),
        separator=" ",
        ignore_nulls=True,
    )


def _short(column: str) -> pl.Expr:
    """The host's name without its domain; an address stays whole."""
    name = pl.col(column).str.to_lowercase().str.strip_chars("[]")
    address = name.str.contains(r"^[0-9.]+$|:")
    return pl.when(address).then(name).otherwise(name.str.split(".").list.first())


def _with_pods(readings: pl.DataFrame) -> pl.DataFrame:
    """How many pods a GPU was given to when it was read: time-slicing repeats it for each."""
    named = readings.filter(pl.col("pod").is_not_null())
    counted = (
        named.select(*_DEVICE, "namespace", "pod").unique().group_by(_DEVICE).agg(pods=pl.len())
    )
    return readings.join(
        counted, on=_DEVICE, how="left", maintain_order="left", nulls_equal=True
    ).with_columns(pods=pl.col("pods").fill_null(1))


def _by_pod(readings: pl.DataFrame, hosts: pl.DataFrame) -> pl.DataFrame:
    """Namespace and pod; the pod alone where a side has no namespace and one is in question.

    Where both sides have a cluster it is the same one.
    """
    named = readings.select("reading", "namespace", "pod", "cluster").drop_nulls("pod")
    wanted = hosts.select("instance", "namespace", "pod", "cluster").drop_nulls("pod")
    exact = named.join(wanted, on=["namespace", "pod"])
    spaces = pl.concat([named.select("pod", "namespace"), wanted.select("pod", "namespace")])
    alone = spaces.group_by("pod").agg(pl.col("namespace").drop_nulls().n_unique())
    alone = alone.filter(pl.col("namespace") <= 1).select("pod")
    vague = named.join(alone, on="pod", how="semi").join(wanted, on="pod")
    vague = vague.filter(pl.col("namespace").is_null() | pl.col("namespace_right").is_null())
    apart = (pl.col("cluster") != pl.col("cluster_right")).fill_null(False)
    return pl.concat(
        [frame.filter(~apart).select("instance", "reading") for frame in (exact, vague)]
    )


def _by_uuid(readings: pl.DataFrame, hosts: pl.DataFrame) -> pl.DataFrame:
    """Declared UUIDs on the server's host; a UUID declared for one server alone needs no host."""
    declared = (
        hosts.select("instance", "host", "own_host", uuid="gpu_uuids")
        .filter(pl.col("uuid").list.len() > 0)
        .explode("uuid", empty_as_null=True)
    )
    if declared.is_empty():
        return _none()
    declared = declared.with_columns(servers=pl.len().over("uuid"), short=_short("host"))
    latest = readings.select(
        "reading",
        "uuid",
        "hostname",
        gpu_short=_short("hostname"),
        gpu_own="own_host",
        exporter_host=pl.col("exporter").str.replace(r":\d+$", "").str.strip_chars("[]"),
    ).join(declared, on="uuid")
    host, name = pl.col("host"), pl.col("hostname")
    # two full names with different domains are two machines
    one_short = ~(host.str.contains(".", literal=True) & name.str.contains(".", literal=True))
    here = (
        (host.str.to_lowercase() == name.str.to_lowercase())
        | ((pl.col("short") == pl.col("gpu_short")) & one_short)
        | (host.str.strip_chars("[]") == pl.col("exporter_host"))
        | (pl.col("own_host") & pl.col("gpu_own"))
    )
    return latest.filter(here.fill_null(False) | (pl.col("servers") == 1)).select(
        "instance", "reading"
    )


def _by_own_host(readings: pl.DataFrame, hosts: pl.DataFrame) -> pl.DataFrame:
    """On the own host: the GPUs in use are those of its only server."""
    own = readings.filter(pl.col("own_host").fill_null(False))
    here = hosts.filter("own_host")["instance"]
    if own.is_empty() or len(here) != 1:
        return _none()
    used = own.filter(pl.col("framebuffer_used_bytes") > IN_USE_BYTES)
    # nothing is read of a lost GPU any more: it is whose it was
    lost = own.filter(pl.col("lost").fill_null(False))
    lost = lost.join(used.select("device"), on="device", how="semi")
    every = pl.concat([used, lost]).unique("reading", maintain_order=True)
    return every.select(pl.lit(here[0]).alias("instance"), "reading")


def _none() -> pl.DataFrame:
    return pl.DataFrame(schema={"instance": pl.String, "reading": pl.get_index_type()})
