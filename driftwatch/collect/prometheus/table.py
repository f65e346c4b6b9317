"""LongAnswer of range queries → the columns of the scrape table.

The numbers of a query are one array, series by grid times. Engines whose series are whole and one
of each kind, nearly all of them, become columns as arrays; for the others a choice is made.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.collect.prometheus.choice import chosen
from driftwatch.collect.prometheus.columns import Block, Column, Gathered, says_engine
from driftwatch.collect.prometheus.numbers import NEVER, ArrayAnswer
from driftwatch.collect.prometheus.placement import Placement
from driftwatch.collect.prometheus.query import Labels, Numbers, short_name
from driftwatch.collect.registry import Metric
from driftwatch.collect.schema import SourceProblem


def gather(
    placement: Placement,
    answer: ArrayAnswer,
    scraped_as: Mapping[str, Labels],
    into: Gathered,
    *,
    at_once: bool = True,
) -> None:
    """Read the columns of one query.

    Args:
        placement: where the series of the answer belong.
        scraped_as: instance → labels of its ``up`` series; of two series at the same time the one
            that carries them is read.
        into: where columns, labels and problems go.
        at_once: read whole engines as arrays; the table is the same without.
    """
    query = placement.query
    if placement.nameless:
        reason = f"{short_name(placement.nameless[min(placement.nameless)])} has no instance label"
        into.problems.append(SourceProblem(query.text, f"{reason}: not read"))
    for column in placement.columns:
        metric = column.metric
        into.alive.append((column, _newest(column, placement, answer)))
        frames: list[pl.DataFrame] = []
        rest = [column.rest]
        for block in column.blocks:
            good = np.zeros(len(block.engines), np.bool_)
            if at_once:
                good = _sound(block, metric, answer)
            rest.append(block.engines[~good])
            if good.any():
                if not good.all():
                    block = Block(
                        block.engines[good], block.origins[good], block.series[good], block.edges
                    )
                frames.append(_at_once(block, metric, answer, placement, into))
        _note_repeated(metric, placement, answer, into)
        engines = np.unique(np.concatenate(rest))
        if len(engines):
            frames.append(chosen(column, placement, engines, answer, scraped_as, into))
        into.frames[metric.column] = pl.concat(frames)
        if metric.type == "info":
            into.texts[metric.column] = placement


def _newest(column: Column, placement: Placement, answer: ArrayAnswer) -> Numbers:
    """When each origin of the column has its last sample."""
    if answer.there is None and len(answer.times):  # nearly always
        return np.full(len(column.origins), answer.times[-1])
    origin = placement.origins[placement.query.metrics.index(column.metric)]
    series = np.nonzero(origin >= 0)[0]
    newest = np.full(len(column.origins), NEVER)
    np.maximum.at(newest, np.searchsorted(column.origins, origin[series]), answer.newest[series])
    return newest


def _note_repeated(
    metric: Metric, placement: Placement, answer: ArrayAnswer, into: Gathered
) -> None:
    origins = placement.origins[placement.query.metrics.index(metric)]
    for index in answer.twice:
        if origins[index] >= 0:
            labels = short_name(placement.labels(metric, index))
            reason = f"{labels} is in the answer twice, with different numbers: not read"
            into.problems.append(SourceProblem(placement.query.text, reason))


def _sound(block: Block, metric: Metric, answer: ArrayAnswer) -> npt.NDArray[np.bool_]:
    """Engines whose series have a number at every time that needs no second look."""
    value = answer.value
    good = (value >= 0) & (value <= metric.largest)  # NaN is neither
    if metric.type == "info":
        good = np.ones_like(good)
    if answer.there is not None:
        good &= answer.there
    whole: npt.NDArray[np.bool_] = np.all(good, axis=1)
    sound: npt.NDArray[np.bool_] = np.all(whole[block.series], axis=1)
    if metric.type == "histogram":
        buckets = value[block.series[:, :-2]]
        sound &= (np.diff(buckets, axis=1) >= 0).all(axis=(1, 2))
        sound &= (buckets[:, -1] == value[block.series[:, -1]]).all(axis=1)
    return sound


def _at_once(
    block: Block, metric: Metric, answer: ArrayAnswer, placement: Placement, into: Gathered
) -> pl.DataFrame:
    """Rows by engine and time."""
    roster, times = placement.roster, answer.times
    keys = [*roster.named(block.engines, len(times)), _tiled("at", times, len(block.engines))]
    if says_engine(metric):
        new = into.unseen("engine", times, block.engines)
        if len(new):
            into.present.append(_keys(block.engines[new], times, placement))
    if metric.per_engine and metric.type in ("gauge", "counter"):
        models = roster.models(block.origins)
        into_models = into.unseen("model", times, block.engines[models.is_not_null().to_numpy()])
        if len(into_models):
            named = block.engines[models.is_not_null().to_numpy()][into_models]
            model = models.drop_nulls().gather(np.repeat(into_models, len(times)))
            into.models.append(_keys(named, times, placement).with_columns(model))
    value = answer.value
    if metric.type == "info":
        return pl.DataFrame([*keys, pl.Series("series", np.repeat(block.series[:, 0], len(times)))],
                            ).cast({"series": pl.UInt32})  # fmt: skip
    if metric.type != "histogram":
        total = value[block.series[:, 0]]
        for summand in block.series.T[1:]:
            total = total + value[summand]
        return pl.DataFrame([*keys, pl.Series(metric.column, total.reshape(-1))])
    name = metric.column
    buckets = value[block.series[:, :-2]].transpose(0, 2, 1).reshape(-1, len(block.edges))
    edges = np.broadcast_to(np.array(block.edges), buckets.shape)
    return pl.DataFrame(
        [
            *keys,
            pl.Series(f"{name}_sum", value[block.series[:, -2]].reshape(-1)),
            pl.Series(f"{name}_count", value[block.series[:, -1]].reshape(-1)),
            _lists(f"{name}_buckets", buckets),
            _lists(f"{name}_edges", edges),
        ]
    )


def _lists(name: str, table: npt.NDArray[np.float64]) -> pl.Series:
    return pl.Series(name, np.ascontiguousarray(table)).arr.to_list()


def _tiled(name: str, times: npt.NDArray[np.int64], count: int) -> pl.Series:
    return pl.Series(name, np.tile(times, count), pl.Int64)


def _keys(engines: Numbers, times: npt.NDArray[np.int64], placement: Placement) -> pl.DataFrame:
    return pl.DataFrame(
        [*placement.roster.named(engines, len(times)), _tiled("at", times, len(engines))]
    )
