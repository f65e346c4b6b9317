"""Where on a page each column of the scrape table stands, worked out once per list of series.

A page with the same series as the one before differs only in its values, so the work per page
is to pick numbers by index. Rows of the same :class:`Shape` become one matrix and are checked
and tabled together, whatever server they come from.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from driftwatch.collect.pages.foreign import NOT_AN_ENGINE, ROUTER_NAMES, without_vllm
from driftwatch.collect.pages.series import Reading, Series
from driftwatch.collect.registry import BY_COLUMN, Metric

Floats = npt.NDArray[np.float64]
Sample = tuple[int, Series, Reading]
Chosen = tuple[int, Reading]

# One page of vLLM shows the engines of one data-parallel deployment; each is a target to judge.
MAX_ENGINES = 256
# Names of targets: they stand in every row, page and file name.
MAX_NAME_CHARACTERS = 256

_SHOWN_CHARACTERS = 160


@dataclass(frozen=True, slots=True)
class Shape:
    """What one row's vector holds: the summands of each scalar column, then the histograms."""

    scalars: tuple[tuple[str, int], ...]  # (column, how many numbers are added up to it)
    # (column, bucket edges with inf last); its numbers are the cumulative buckets, then sum, then
    # count
    histograms: tuple[tuple[str, tuple[float, ...]], ...]

    def slots(self) -> Iterable[tuple[str, int, int]]:
        """(column, first slot, slot after the last), in vector order."""
        at = 0
        for column, width in self.scalars:
            yield column, at, at + width
            at += width
        for column, edges in self.histograms:
            yield column, at, at + len(edges) + 2
            at += len(edges) + 2


@dataclass(frozen=True, slots=True)
class EngineLayout:
    """One engine's row of a page."""

    engine: str  # engine label, "0" where the page has none
    model_name: str | None  # first one of this engine on the page
    cache_config: str | None  # labels of cache_config_info without ``engine``, sorted compact JSON
    shape: Shape  # what the row's vector holds
    take: npt.NDArray[np.intp]  # sample index of each slot of the vector
    # (slot, sample index) of a series that is on the page a second time
    repeats: tuple[tuple[int, int], ...]
    problems: tuple[str, ...]  # what cannot be read from these series, whatever their values


@dataclass(frozen=True, slots=True)
class Layout:
    """A page's series and the rows they make."""

    series: tuple[Series, ...]  # every sample's series, in page order
    # one per engine; empty where the page is not that of an engine of vLLM
    engines: tuple[EngineLayout, ...]
    several_api_servers: bool  # neither the process' start nor a ``_created`` is on the page
    # why no row is made of it, or what the page is of; "" where it has engines
    why_no_engine: str = ""


def lay_out(series: Sequence[Series]) -> Layout:
    """Samples of a page, in its order → where each column stands."""
    vllm = [s for s in series if s.name.startswith("vllm:")]
    if not vllm:
        return Layout(tuple(series), (), False, without_vllm(s.name for s in series))
    if not ROUTER_NAMES.isdisjoint(s.name for s in vllm):
        return Layout(tuple(series), (), False, NOT_AN_ENGINE)
    labelled = {s.labels["engine"] for s in vllm if s.labels.get("engine")}
    refused = _refused(labelled, {s.labels.get("model_name", "") for s in vllm})
    if refused:
        return Layout(tuple(series), (), False, refused)
    # by length first: engine 10 comes after engine 2
    engines = tuple(sorted(labelled, key=lambda e: (len(e), e))) or ("0",)
    samples: dict[str, dict[str, list[Sample]]] = {engine: {} for engine in engines}
    models: dict[str, dict[str, None]] = {engine: {} for engine in engines}  # in page order
    homeless: list[str] = []
    for s in vllm:
        model = s.labels.get("model_name")
        for engine in _homes(s, engines):
            if model:
                models[engine][model] = None
    for index, s in enumerate(series):
        for reading in s.readings:
            homes = _metric_homes(s, reading.metric, engines)
            if not homes:
                homeless.append(
                    f"{short_name(s)} carries no engine label on a page of {len(engines)} engines"
                )
            for engine in homes:
                samples[engine].setdefault(reading.metric.column, []).append((index, s, reading))
    started = any(
        s.name == "process_start_time_seconds"
        or (s.name.startswith("vllm:") and s.name.endswith("_created"))
        for s in series
    )
    rows = tuple(
        _engine(
            engine, samples[engine], list(models[engine]), homeless if engine == engines[0] else []
        )
        for engine in engines
    )
    return Layout(tuple(series), rows, not started)


def _refused(engines: Collection[str], models: Collection[str]) -> str:
    """Why a page with these engines and models is none of a vLLM server; "" where it may be."""
    if len(engines) > MAX_ENGINES:
        return f"page refused: {len(engines)} engines, more than {MAX_ENGINES}"
    for label, values in (("engine", engines), ("model_name", models)):
        longest = max(map(len, values), default=0)
        if longest > MAX_NAME_CHARACTERS:
            return (
                f"page refused: a label {label} of {longest} characters, "
                f"more than {MAX_NAME_CHARACTERS}"
            )
    return ""


def short_name(series: Series) -> str:
    """A series as problems name it, shortened."""
    text = series.text
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"


def _homes(series: Series, engines: tuple[str, ...]) -> tuple[str, ...]:
    """The engines that a series says something of."""
    engine = series.labels.get("engine")
    if engine:
        return (engine,) if engine in engines else ()
    return engines if len(engines) == 1 else ()


def _metric_homes(series: Series, metric: Metric, engines: tuple[str, ...]) -> tuple[str, ...]:
    if metric.per_engine or series.labels.get("engine"):
        return _homes(series, engines)
    # a gauge of the process holds for each engine; a counter must be counted once
    return engines if metric.type == "gauge" else engines[:1]


def _engine(
    engine: str, samples: dict[str, list[Sample]], models: list[str], problems: list[str]
) -> EngineLayout:
    problems = list(problems)
    model = models[0] if models else None
    if len(models) > 1:
        problems.append(f"engine {engine} has several model_name values: read {models[0]} only")
    scalars: list[tuple[str, int]] = []
    histograms: list[tuple[str, tuple[float, ...]]] = []
    take: list[int] = []
    tail: list[int] = []
    repeats: dict[int, list[int]] = {}
    config: str | None = None
    for column, metric in BY_COLUMN.items():
        picked = _pick(metric, samples.get(column, []), model, problems)
        if not picked:
            continue
        if metric.type == "info":
            config = _config(picked, problems)
            continue
        firsts = _firsts(metric, picked, repeats)
        if metric.type != "histogram":
            scalars.append((column, len(firsts)))
            take.extend(index for index, _ in firsts)
        elif (histogram := _histogram(picked[0][1], firsts, problems)) is not None:
            edges, indexes = histogram
            histograms.append((column, edges))
            tail.extend(indexes)
    take += tail
    return EngineLayout(
        engine,
        model,
        config,
        Shape(tuple(scalars), tuple(histograms)),
        np.array(take, dtype=np.intp),
        tuple((slot, other) for slot, index in enumerate(take) for other in repeats.get(index, ())),
        tuple(problems),
    )


def _pick(
    metric: Metric, samples: list[Sample], model: str | None, problems: list[str]
) -> list[Sample]:
    """The series that a column is read from: one wire name, one model, one set of other labels."""
    ours = [f for f in samples if f[1].labels.get("model_name", model) == model]
    if not ours:
        return []
    rank = min(reading.rank for _, _, reading in ours)
    ours = [f for f in ours if f[2].rank == rank]
    if metric.type == "info":
        return ours
    label_names = {
        "engine",
        "model_name",
        "le",
        *metric.sum_over,
        *(name for name, _ in metric.labels),
    }
    others = [{k: v for k, v in s.labels.items() if k not in label_names} for _, s, _ in ours]
    if any(other != others[0] for other in others):
        names = sorted({k for other in others for k in other})
        problems.append(
            f"{metric.wire_name} has several series that differ in {', '.join(names)}: "
            "it is not known whether they may be added"
        )
        return []
    return ours


def _firsts(metric: Metric, picked: list[Sample], repeats: dict[int, list[int]]) -> list[Chosen]:
    """Each series once; the indexes of its repetitions go to ``repeats``."""
    firsts: dict[tuple[Any, ...], Chosen] = {}
    for index, s, reading in picked:
        key = (reading.part, reading.edge, *(s.labels.get(name) for name in metric.sum_over))
        if key in firsts:
            repeats.setdefault(firsts[key][0], []).append(index)
        else:
            firsts[key] = (index, reading)
    return list(firsts.values())


def _histogram(
    series: Series, firsts: list[Chosen], problems: list[str]
) -> tuple[tuple[float, ...], list[int]] | None:
    """Edges, and the sample indexes of the buckets, the sum and the count."""
    reading = firsts[0][1]
    wire = series.name.removesuffix(f"_{reading.part}")
    buckets = {r.edge: index for index, r in firsts if r.part == "bucket" and r.edge is not None}
    parts = {r.part: index for index, r in firsts if r.part != "bucket"}
    missing = [f"_{part}" for part in ("sum", "count") if part not in parts]
    if math.inf not in buckets:
        missing.insert(0, 'le="+Inf"')
    if any(math.isnan(edge) for edge in buckets):
        problems.append(f"{wire} has a bucket whose le is not a number")
        return None
    if missing:
        problems.append(f"{wire} is incomplete: no {', no '.join(missing)}")
        return None
    edges = tuple(sorted(buckets))
    return edges, [*(buckets[edge] for edge in edges), parts["sum"], parts["count"]]


def _config(picked: list[Sample], problems: list[str]) -> str:
    texts = [
        orjson.dumps(
            {k: v for k, v in s.labels.items() if k != "engine"}, option=orjson.OPT_SORT_KEYS
        ).decode()
        for _, s, _ in picked
    ]
    if any(text != texts[0] for text in texts):
        problems.append(
            f"{picked[0][1].name} has {len(texts)} series with different labels: read the last"
        )
    return texts[-1]
