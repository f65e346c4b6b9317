"""DCGM: whose GPU a series of dcgm-exporter is of, and samples of its fields → the GPU table.

Labels as dcgm-exporter writes them (its ``rendermetrics`` templates): gpu, UUID, modelName,
GPU_I_ID (of a MIG instance), Hostname (hostname since May 2026), and with
its Kubernetes option container, namespace, pod. A label with an empty value is an absent one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

import orjson
import polars as pl

from driftwatch.collect.gpus import (
    BLANK_FROM,
    GPU_FIELDS,
    GPU_SCHEMA,
    TIME,
    GpuField,
    empty_gpus,
)
from driftwatch.collect.page_text import PageText
from driftwatch.collect.registry import Labels, short_name
from driftwatch.collect.schema import Collected, SourceProblem, empty_scrapes, folded

DCGM_NAMES = frozenset(name for field in GPU_FIELDS for name in field.dcgm_names)

_UUID = ("UUID", "uuid")  # the second with --use-old-namespace
_HOSTNAME = ("Hostname", "hostname", "node", "nodeName")  # the last two by relabelling
# the last ones by relabelling, as Prometheus' own example of Kubernetes does
_POD_OF_SCRAPE = ("kubernetes_pod_name", "kubernetes_pod")
_POD = ("pod", "pod_name", *_POD_OF_SCRAPE)
_NAMESPACE = ("namespace", "pod_namespace", "kubernetes_namespace")
_EXPORTED = ("exported_pod", "exported_namespace", "exported_container")


# Agents of managed clusters write names, labels and UUIDs in lower case (dcgm-exporter#577).
_AS_WRITTEN: Mapping[str, str] = {
    "uuid": "UUID",
    "modelname": "modelName",
    "gpu_i_id": "GPU_I_ID",
}


def canonical(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels of a series with DCGM's own as dcgm-exporter writes them.

    >>> canonical({"__name__": "dcgm_fi_dev_gpu_util", "uuid": "gpu-1f"})
    {'__name__': 'DCGM_FI_DEV_GPU_UTIL', 'UUID': 'GPU-1f'}
    """
    name = labels.get("__name__", "")
    if not name.islower():
        return dict(labels)
    own = {_AS_WRITTEN.get(label, label): value for label, value in labels.items()}
    own["__name__"] = name.upper()
    if own.get("UUID", "").startswith("gpu-"):
        own["UUID"] = "GPU-" + own["UUID"].removeprefix("gpu-")
    return own


DIVIDED = "GPUs that are divided into MIG instances are left out"


class Gpu(NamedTuple):
    """The GPU and workload of a row of the GPU table; columns of that name."""

    exporter: str
    hostname: str | None
    gpu: str | None
    uuid: str
    gpu_model: str | None
    namespace: str | None = None
    pod: str | None = None
    cluster: str | None = None

    @property
    def key(self) -> tuple[str | None, ...]:
        """What makes it another row: not what only describes it."""
        return (self.exporter, self.uuid, self.namespace, self.pod)


def gpu_of(labels: Labels, exporter: str, own: frozenset[str] = frozenset()) -> Gpu | str:
    """The GPU of a series, or why it is unknown.

    ``exporter``: host:port that it was read from; ``own``: pods of exporters themselves (see
    :func:`own_pods`); none on a page that one wrote.
    """
    uuid = _first(labels, _UUID)
    if uuid is None:
        return f"{short_name(labels)}: no UUID label: it cannot be told which GPU it is of"
    if labels.get("GPU_I_ID"):
        return DIVIDED
    namespace, pod = _workload(labels, own)
    # without the node's name the exporter takes that of its own pod: it names no host
    hostnames = (labels.get(name) for name in _HOSTNAME)
    return Gpu(
        exporter=exporter,
        hostname=next((host for host in hostnames if host and host not in own), None),
        gpu=labels.get("gpu") or None,
        uuid=uuid,
        gpu_model=labels.get("modelName") or None,
        namespace=namespace,
        pod=pod,
        cluster=labels.get("cluster") or None,
    )


def own_pods(series: Iterable[Labels], up: Iterable[Labels]) -> frozenset[str]:
    """Pods of exporters themselves, as Prometheus labelled their series.

    A scrape adds the labels of its target. With ``honorLabels: false`` those win, and the
    workload's come as ``exported_*``; a GPU that nobody uses has none, so that its series carry
    the exporter's pod alone. With ``honorLabels: true`` the workload's win, and again an idle GPU
    carries the exporter's. In both cases the exporter's pod is the one that ``up`` of the same
    scrape carries, and with the first also any that stands beside ``exported_*``.

    ``up``: labels of their ``up`` series.
    """
    pods = {_first(one, ("pod", *_POD_OF_SCRAPE)) for one in up}
    for one in series:
        relabelled = _first(one, _POD_OF_SCRAPE)
        # a relabelled name takes nothing from the workload's: they stand beside each other
        if any(one.get(name) for name in (*_EXPORTED, *(("pod",) if relabelled else ()))):
            pods.add(relabelled or one.get("pod"))
    return frozenset(pod for pod in pods if pod)


def pod_of(labels: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Namespace and pod of a target, as its scrape labelled it.

    >>> pod_of({"kubernetes_namespace": "ml", "kubernetes_pod_name": "rag-0"})
    ('ml', 'rag-0')
    """
    return _first(labels, _NAMESPACE), _first(labels, _POD)


def _workload(labels: Mapping[str, str], own: frozenset[str]) -> tuple[str | None, str | None]:
    """Namespace and pod; both None where no workload is mapped to the GPU."""
    if any(labels.get(name) for name in _EXPORTED):
        return labels.get("exported_namespace") or None, labels.get("exported_pod") or None
    pod = _first(labels, _POD)
    if pod is None or pod in own:
        return None, None
    return _first(labels, _NAMESPACE), pod


def _first(labels: Mapping[str, str], names: Iterable[str]) -> str | None:
    return next((value for name in names if (value := labels.get(name))), None)


SAMPLE_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "gpu": pl.Int32,  # number, from :meth:`GpuSamples.number`
    "name": pl.String,  # of the field, as dcgm-exporter writes it
    "time": pl.Int64,  # unix microseconds
    "value": pl.Float64,  # in DCGM's unit
}
# dcgm_structs.h: DCGM_FP64_BLANK and DCGM_INT32_BLANK, and one, two and three above each
_BLANKS = [first + more for first in (2.0**47, float(0x7FFFFFF0)) for more in range(4)]
_LIVE = ("utilization_ratio", "engine_active_ratio", "sm_clock_hertz")  # of a GPU that answers
_GONE_XID = 79  # "GPU has fallen off the bus" (NVIDIA's list of XID errors)
_KEYS = ("exporter", "uuid", "namespace", "pod", "time")


NOT_DCGM = "not dcgm-exporter's page: none of the DCGM_ fields that are read is on it"


class GpuSamples:
    """Samples of GPUs, made into one table at the end.

    ``text``: reads pages, and is kept between calls to a source.
    """

    def __init__(self, text: PageText[Labels] | None = None) -> None:
        self._text = text or PageText(canonical)
        self._problems: list[SourceProblem] = []
        self._gpus: list[Gpu] = []
        self._numbers: dict[tuple[str | None, ...], int] = {}
        self._frames = [pl.DataFrame(schema=dict(SAMPLE_SCHEMA))]

    def number(self, gpu: Gpu) -> int:
        """The GPU's number; labels that earlier series lacked are added."""
        number = self._numbers.setdefault(gpu.key, len(self._gpus))
        if number == len(self._gpus):
            self._gpus.append(gpu)
        else:
            both = zip(self._gpus[number], gpu, strict=True)
            self._gpus[number] = Gpu._make(b if a is None else a for a, b in both)
        return number

    def add(self, samples: pl.DataFrame) -> None:
        """Samples in :data:`SAMPLE_SCHEMA`."""
        self._frames.append(samples)

    def problem(self, where: str, reason: str, time: datetime | None) -> None:
        """Something that could not be read."""
        self._problems.append(SourceProblem(where, reason, time))

    def page(self, exporter: str, time: datetime, body: bytes) -> bool:
        """Read a page of dcgm-exporter; False where it has no GPU, with the reason as a problem."""
        page = self._text.samples(body)
        if isinstance(page, str):
            self.problem(exporter, page, time)
            return False
        is_other = DCGM_NAMES.isdisjoint(one["__name__"] for one in page.series)
        for doubt in (*page.doubts, *([NOT_DCGM] if is_other else ())):
            self.problem(exporter, doubt, time)
        values = pl.DataFrame({"value": page.values}, {"value": pl.Float64})
        samples = values.with_row_index("series").cast({"series": pl.Int32})
        samples = samples.with_columns(time=pl.lit(round(time.timestamp() * 1_000_000)))
        return self.read(page.series, samples, exporter, time)

    def read(
        self,
        series: Sequence[Labels],
        samples: pl.DataFrame,
        where: str,
        time: datetime,
        own: frozenset[str] = frozenset(),
    ) -> bool:
        """Add the samples of series; returns whether any is of a GPU.

        Several may show one value: two jobs that scrape one exporter, the replicas of a Prometheus,
        two shares of a GPU in one pod. The first in the order of labels counts.

        ``samples``: series (its number), time, value; ``where``: who shows them: the exporter of
        those without a label ``instance``; ``own``: from :func:`own_pods`.
        """
        rows = []
        numbered = [(n, one) for n, one in enumerate(series) if one["__name__"] in DCGM_NAMES]
        for number, labels in sorted(numbered, key=lambda pair: sorted(pair[1].items())):
            gpu = gpu_of(labels, labels.get("instance") or where, own)
            if isinstance(gpu, str):
                self.problem(where, gpu, time)
            else:
                rows.append((number, self.number(gpu), labels["__name__"]))
        schema = {"series": pl.Int32, "gpu": pl.Int32, "name": pl.String}
        named = pl.DataFrame(rows, schema, orient="row")
        found = named.join(samples, on="series", maintain_order="left_right")
        self.add(found.select(*SAMPLE_SCHEMA))
        return bool(rows)

    def collected(self, unread: str | None = None) -> Collected:
        """The table (see :meth:`table`) and the problems, repeats folded."""
        gpus = self.table(unread)
        return Collected(empty_scrapes(), {}, folded(self._problems), gpus=gpus)

    def table(self, unread: str | None = None) -> pl.DataFrame:
        """A row per GPU, workload and time, of all samples since the last call.

        Of two samples with the same GPU, time and name the first counts. ``unread``: why a field
        that is missing could not be asked for.
        """
        samples, self._frames = pl.concat(self._frames), self._frames[:1]
        if samples.is_empty():
            return empty_gpus()
        names = [name for field in GPU_FIELDS for name in field.dcgm_names]
        cells = samples.group_by("gpu", "time", maintain_order=True).agg(
            pl.col("value").filter(pl.col("name") == name).first().alias(name) for name in names
        )
        whys = cells.select(_why(field, unread).alias(field.column) for field in GPU_FIELDS)
        values = cells.select(
            # a share that rounding put above the whole is the whole
            pl.when(whys[field.column].is_null())
            .then(_value(field).clip(upper_bound=1.0 if field.is_share else None))
            .alias(field.column)
            for field in GPU_FIELDS
        )
        live = pl.any_horizontal(pl.col(column).is_not_null() for column in _LIVE)
        schema = {name: GPU_SCHEMA[name] for name in Gpu._fields}
        listed = pl.DataFrame(self._gpus, schema=schema, orient="row")
        table = listed.select(pl.all().gather(cells["gpu"])).hstack(values)
        table = table.with_columns(
            cells["time"].cast(TIME),
            _as_json(whys),
            origin=pl.lit("DCGM"),
            own_host=pl.lit(False),
            # the XID stays on the gauge after the GPU is back (dcgm-exporter#500); readings do not
            # come from one that is lost
            lost=(pl.col("xid_code") == _GONE_XID) & ~live,
        )
        return table.select(list(GPU_SCHEMA)).sort(_KEYS, maintain_order=True)


def _value(field: GpuField) -> pl.Expr:
    return pl.coalesce(field.dcgm_names) * field.factor


def _why(field: GpuField, unread: str | None) -> pl.Expr:
    """Why the field is NULL; NULL where it is not."""
    name, raw = field.dcgm_names[0], pl.coalesce(field.dcgm_names)
    absent = f"{' or '.join(field.dcgm_names)} not exported"
    absent += f": {field.absent}" if field.absent else ""
    is_blank = raw.is_in(_BLANKS) | (raw.is_finite() & (raw >= BLANK_FROM))
    is_odd = ~raw.is_finite() | (raw < 0) | (_value(field) > field.most)
    odd = pl.when(is_odd & ~is_blank).then(raw)
    return (
        pl.when(raw.is_null())
        .then(pl.lit(unread or absent))
        .when(is_blank)
        .then(pl.lit(f"not supported: {name} is DCGM's mark for no value"))
        .otherwise(odd.map_elements(partial(_odd, field), return_dtype=pl.String))
    )


def _odd(field: GpuField, value: float) -> str:
    if math.isfinite(value):
        text = f"{value:.12g}: {'negative' if value < 0 else field.why_most}"
    else:
        text = "NaN" if math.isnan(value) else "infinite"
    return f"{field.dcgm_names[0]} is {text}"


def _as_json(whys: pl.DataFrame) -> pl.Series:
    """The column ``reasons``; rows with the same gaps share one text."""
    distinct = whys.unique(maintain_order=True)
    known = [{k: v for k, v in row.items() if v} for row in distinct.iter_rows(named=True)]
    texts = [orjson.dumps(one).decode() if one else None for one in known]
    named = distinct.with_columns(reasons=pl.Series(texts, dtype=pl.String))
    return whys.join(named, on=whys.columns, how="left", nulls_equal=True, maintain_order="left")[
        "reasons"
    ]
