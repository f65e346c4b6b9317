"""Speed, flags and reasons of each target and minute, as evidence columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from driftwatch.arrays import Codes, Flags, Floats, Indices, Texts
from driftwatch.detect.output import Schema, frame_of
from driftwatch.detect.speed.change import Limits, Past
from driftwatch.detect.speed.learner import Reference
from driftwatch.detect.speed.load import FOR_GOOD, WHY_NOT, Unknown

SCHEMA: Schema = {
    **dict.fromkeys(
        (
            "speed_at_equal_load_ratio",
            "speed_at_equal_load_upper_ratio",
            "speed_at_equal_demand_ratio",
            "speed_threshold_ratio",
            "speed_change_ratio",
            "speed_change_threshold_ratio",
            "speed_smallest_detectable_loss_ratio",
            "pool_speed_at_equal_load_ratio",
            "speed_against_pool_ratio",
        ),
        pl.Float64,
    ),
    **dict.fromkeys(("slower_at_equal_load", "speed_recovered", "slower_than_pool"), pl.Boolean),
    "speed_reference": pl.String,
    "speed_calibration": pl.String,
    "speed_unknown_reason": pl.String,
    "speed_unknown_code": pl.String,
    "speed_missing_minutes": pl.Float64,
}
_TOO_FEW = Unknown("too_few_minutes", "fewer than 6 of the last 10 minutes are known")
_BEYOND = Unknown(
    "out_of_range", "outside the tuned range: a baseline that has such load in it would settle it"
)


def speed_columns(
    past: Past, own: Limits, slower: Flags, fresh: Flags, beyond: Floats, unknown: Texts
) -> dict[str, Any]:
    """What targets say of themselves, (target, minute) by column; NaN is unknown.

    ``beyond``: by how much the model may be too low, median of 10 min; ``unknown``: why no model.
    """
    low = own.level[:, None]
    with np.errstate(invalid="ignore"):
        outside = beyond > 0.0
        # the median of the last 10 min would still count minutes from before the loss
        speed = np.where(fresh, past.now, past.median)
        # the model says slower, yet it may be wrong by as much out there
        doubtful = (past.level <= low) & ~(past.bound <= low) & ~slower
    is_known = ~np.isnan(speed)
    state = np.where(slower, 1.0, np.where(doubtful, np.nan, 0.0))
    back = np.where(slower, 0.0, np.where(np.isnan(past.back), np.nan, 1.0))
    why = unknown.copy()
    has_model = ~np.isnan(low) & np.ones_like(is_known)
    why[has_model & ~is_known] = _TOO_FEW
    why[has_model & is_known & doubtful] = _BEYOND
    return {
        "speed_at_equal_load_ratio": np.exp(speed),
        "speed_at_equal_load_upper_ratio": np.exp(past.level),
        "speed_at_equal_demand_ratio": np.exp(np.where(outside, speed + beyond, np.nan)),
        "speed_threshold_ratio": np.exp(_wide(own.level, speed)),
        "speed_change_ratio": np.exp(past.change),
        "speed_change_threshold_ratio": np.exp(_wide(own.change, speed)),
        "speed_smallest_detectable_loss_ratio": _wide(own.smallest, speed),
        "slower_at_equal_load": np.where(is_known, state, np.nan),
        "speed_recovered": np.where(is_known, back, np.nan),
        "speed_calibration": _wide(own.source, speed),
        "outside": outside,
        "unknown": why,
    }


def peer_columns(peers: Past, slower: Flags, fresh: Flags, pool: Floats) -> dict[str, Any]:
    """What a comparison with the peers says; ``pool``: their ln r, median of the last 10 min."""
    against = np.where(fresh, peers.now, peers.median)
    return {
        "pool_speed_at_equal_load_ratio": np.exp(pool),
        "speed_against_pool_ratio": np.exp(against),
        "slower_than_pool": np.where(np.isnan(against), np.nan, slower),
    }


def reference_names(references: Sequence[Reference], outside: Flags) -> Texts:
    """Which reference answered, and for the same load or for the same demand."""
    named = [
        [None if one.name is None else f"{one.name}, {load}" for one in references]
        for load in ("equal load", "equal demand")
    ]
    at_load, at_demand = np.array(named, dtype=object)[..., None]
    names: Texts = np.where(outside, at_demand, at_load)
    return names


def frame(
    parts: Sequence[Mapping[str, Any]], why: Codes, target: Indices, minute: Indices
) -> pl.DataFrame:
    """Parts of a stretch, one after the other → the columns of rows.

    ``why``: (target, minute), index into :data:`driftwatch.detect.speed.load.WHY_NOT`.
    """
    names = {*SCHEMA, "unknown"} & parts[0].keys()
    values = {n: np.concatenate([p[n] for p in parts], axis=1)[target, minute] for n in names}
    # the minute's own reason says more than that there are too few, and where it is one that no
    # waiting helps against, more than what is missing for a model
    reasons, codes = values["unknown"], why[target, minute]
    is_unknown = reasons != None  # noqa: E711 (of objects)
    replaced = (reasons == _TOO_FEW) & (codes > 0) | is_unknown & np.isin(codes, FOR_GOOD)
    reasons[replaced] = np.array(WHY_NOT, dtype=object)[codes[replaced]]
    for name, part in (
        ("speed_unknown_reason", "text"),
        ("speed_unknown_code", "code"),
    ):
        parts_of = [None if one is None else getattr(one, part) for one in reasons]
        values[name] = np.array(parts_of, dtype=object)
    values["speed_missing_minutes"] = np.array(
        [np.nan if one is None else one.missing_minutes for one in reasons]
    )
    return frame_of(values, SCHEMA)


def _wide(of_targets: Any, like: Floats) -> Any:
    return np.broadcast_to(of_targets[:, None], like.shape)
