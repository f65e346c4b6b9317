"""Which GPU readings belong to which server.

vLLM's page does not name its GPUs. Ways to find them, in order of trust: the Kubernetes workload
that the reading names, the UUIDs declared for the pool on the server's host, and, for the only
server of driftwatch's own host, the GPUs in use there. The first way that finds any GPU counts.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

# the ways, in order of trust, as they are printed
WAYS = ("pod", "hostname and UUID", "own host")
# A GPU with less memory in use is idle: one CUDA context takes hundreds of MiB.
_IN_USE_BYTES = 64 * 2.0**20

# What joins a target to its GPUs; one row per engine.
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
    Returns: the readings with ``instance``, ``device`` (a GPU), ``way`` (its number in the order of
    trust) and ``clusters`` (number of clusters of the servers it joins); by instance and time.
    """
    whole = pl.coalesce("uuid", pl.format("{} gpu {}", _short("hostname"), "gpu"), "exporter")
    readings = gpus.with_row_index("reading").with_columns(device=whole)
    ways = (_by_pod(readings, hosts), _by_uuid(readings, hosts), _by_own_host(readings, hosts))
    links = pl.concat(
        each.unique(maintain_order=True).with_columns(way=pl.lit(number, dtype=pl.Int8))
        for number, each in enumerate(ways)
    )
    links = links.filter(pl.col("way") == pl.col("way").min().over("instance"))
    of_clusters = hosts.select("instance", target_cluster="cluster")
    clusters = pl.col("target_cluster").drop_nulls().n_unique().over("reading")
    links = links.join(of_clusters, on="instance", maintain_order="left")
    links = links.with_columns(clusters=clusters).drop("target_cluster")
    return links.join(readings, on="reading").sort("instance", "time", "reading")


def _short(column: str) -> pl.Expr:
    """The host's name without its domain; an address stays whole."""
    name = pl.col(column).str.to_lowercase().str.strip_chars("[]")
    address = name.str.contains(r"^[0-9.]+$|:")
    return pl.when(address).then(name).otherwise(name.str.split(".").list.first())


def _by_pod(readings: pl.DataFrame, hosts: pl.DataFrame) -> pl.DataFrame:
    """Namespace and pod; the pod alone where a side lacks the namespace and no second one has it.

    Where both sides name a cluster, it must be the same.
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
        hosts.select("instance", "own_host", host=_short("host"), uuid="gpu_uuids")
        .filter(pl.col("uuid").list.len() > 0)
        .explode("uuid", empty_as_null=True)
        .with_columns(servers=pl.len().over("uuid"))
    )
    both = readings.select(
        "reading",
        "uuid",
        hostname=_short("hostname"),
        is_own="own_host",
        exporter_host=pl.col("exporter").str.replace(r":\d+$", "").str.strip_chars("[]"),
    ).join(declared, on="uuid")
    host = pl.col("host")
    here = (host == pl.col("hostname")) | (host == pl.col("exporter_host"))
    here |= pl.col("own_host") & pl.col("is_own")
    found = both.filter(here.fill_null(False) | (pl.col("servers") == 1))
    return found.select("instance", "reading")


def _by_own_host(readings: pl.DataFrame, hosts: pl.DataFrame) -> pl.DataFrame:
    """On the own host: the GPUs in use are those of its only server."""
    here = hosts.filter("own_host")["instance"]
    own = readings.filter(pl.col("own_host").fill_null(False) & pl.lit(len(here) == 1))
    used = pl.col("framebuffer_used_bytes") > _IN_USE_BYTES
    # a lost GPU has no readings: it stays with its server
    lost = pl.col("lost").fill_null(False) & used.any().over("device")
    instance = here[0] if len(here) else None
    return own.filter(used | lost).select(
        pl.lit(instance, dtype=pl.String).alias("instance"), "reading"
    )
