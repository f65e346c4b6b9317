"""Speed, flags and reasons of each target and minute, on their way into evidence columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from driftwatch.arrays import Codes, Flags, Floats, Indices, Texts
from driftwatch.detect.speed.change import Limits, Past
from driftwatch.detect.speed.learner import Reference
from driftwatch.detect.speed.load import FOR_GOOD, WHY_NOT

NUMBERS = (
    "speed_at_equal_load_ratio",
    "speed_at_equal_load_upper_ratio",
    "speed_at_equal_demand_ratio",
    "speed_threshold_ratio",
    "speed_change_ratio",
    "speed_change_threshold_ratio",
    "speed_smallest_detectable_loss_ratio",
    "pool_speed_at_equal_load_ratio",
    "speed_against_pool_ratio",
)
FLAGS = ("slower_at_equal_load", "speed_recovered", "slower_than_pool")
TEXTS = ("speed_reference", "speed_calibration", "speed_unknown_reason")
COLUMNS: dict[str, pl.DataType | type[pl.DataType]] = {
    **dict.fromkeys(NUMBERS, pl.Float64),
    **dict.fromkeys(FLAGS, pl.Boolean),
    **dict.fromkeys(TEXTS, pl.String),
}
_NO, _YES, _UNKNOWN = 0, 1, -1
_TOO_FEW = "fewer than 6 of the last 10 minutes are known"
_BEYOND = "outside the tuned range: a pin that saw such load would settle it"


@dataclass(frozen=True, slots=True)
class Output:
    """Arrays of (target, minute)."""

    numbers: dict[str, Floats]  # by column; NaN is unknown
    flags: dict[str, Codes]  # by column; -1 is unknown
    texts: dict[str, Texts]  # by column

    @classmethod
    def of(cls, targets: int, minutes: int) -> Output:
        """With nothing replaced."""
        shape = (targets, minutes)
        return cls(
            {name: np.full(shape, np.nan) for name in NUMBERS},
            {name: np.full(shape, _UNKNOWN, dtype=np.int8) for name in FLAGS},
            {name: np.full(shape, None, dtype=object) for name in TEXTS},
        )

    def write(
        self,
        minutes: slice,
        here: slice,
        references: Sequence[Reference],
        missing: Texts,
        pasts: tuple[Past, Past],
        limits: tuple[Limits, Limits],
        states: tuple[Flags, Flags, Flags, Flags],
        beyond: Floats,
        pool: Floats,
    ) -> None:
        """What a part of the stretch says.

        ``minutes``: of the stretch; ``here``: the same minutes in the statistics; ``references``:
        of each target; ``missing``: why there is no model; ``pasts``: of ln r, and of ln r less the
        peers'; ``limits``: own, and of peers; ``states``: slower; slower since shortly; than its
        peers; since shortly; ``beyond``: by how much the model may be too low here, median of the
        last 10 min; ``pool``: ln r of the peers, median of the last 10 min.
        """
        plain, peers = pasts
        slower, fresh, than_peers, fresh_peers = states
        own, _peer = limits
        low = own.level[:, None]
        with np.errstate(invalid="ignore"):
            outside = beyond > 0.0
            level = plain.level[:, here]
            # the median of the last 10 min would still count minutes from before the loss
            speed = np.where(fresh, plain.now[:, here], plain.median[:, here])
            against = np.where(fresh_peers, peers.now[:, here], peers.median[:, here])
            # the model says slower, yet it may be wrong by as much out there
            doubtful = (level <= low) & ~(plain.bound[:, here] <= low) & ~slower
        is_known = ~np.isnan(speed)
        in_logs: dict[str, Any] = {
            "speed_at_equal_load_ratio": speed,
            "speed_at_equal_load_upper_ratio": level,
            "speed_at_equal_demand_ratio": np.where(outside, speed + beyond, np.nan),
            "speed_threshold_ratio": low,
            "speed_change_ratio": plain.change[:, here],
            "speed_change_threshold_ratio": own.change[:, None],
            "pool_speed_at_equal_load_ratio": pool,
            "speed_against_pool_ratio": against,
        }
        for name, values in in_logs.items():
            self.numbers[name][:, minutes] = np.exp(values)
        smallest = self.numbers["speed_smallest_detectable_loss_ratio"]
        smallest[:, minutes] = own.smallest[:, None]

        state = np.where(slower, _YES, np.where(doubtful, _UNKNOWN, _NO))
        back = np.where(np.isnan(plain.back[:, here]), _UNKNOWN, _YES)
        flags = {
            "slower_at_equal_load": np.where(is_known, state, _UNKNOWN),
            "speed_recovered": np.where(is_known, np.where(slower, _NO, back), _UNKNOWN),
            "slower_than_pool": np.where(np.isnan(against), _UNKNOWN, than_peers),
        }
        for name, codes in flags.items():
            self.flags[name][:, minutes] = codes

        self._write_references(minutes, references, outside)
        self.texts["speed_calibration"][:, minutes] = own.source[:, None]
        armed = np.array([one.model is not None for one in references], dtype=bool)[:, None]
        why = missing.copy()
        why[armed & ~is_known] = _TOO_FEW
        why[armed & is_known & doubtful] = _BEYOND
        self.texts["speed_unknown_reason"][:, minutes] = why

    def _write_references(
        self, minutes: slice, references: Sequence[Reference], outside: Flags
    ) -> None:
        """Which reference answered, and for the same load or for the same demand."""
        for load, where in (("equal load", ~outside), ("equal demand", outside)):
            names = [None if one.name is None else f"{one.name}, {load}" for one in references]
            self.texts["speed_reference"][:, minutes][where] = np.broadcast_to(
                np.array(names, dtype=object)[:, None], where.shape
            )[where]

    def frame(self, why: Codes, target: Indices, minute: Indices) -> pl.DataFrame:
        """The columns of rows.

        ``why``: (target, minute), index into :data:`driftwatch.detect.speed.load.WHY_NOT`;
        ``target``: of each row; ``minute``: of each row.
        """
        series = [
            pl.Series(name, values[target, minute], dtype=pl.Float64).fill_nan(None)
            for name, values in self.numbers.items()
        ]
        for name, codes in self.flags.items():
            of_rows = codes[target, minute]
            flags = pl.Series(name, of_rows == _YES)
            is_known = pl.Series("known", of_rows != _UNKNOWN)
            series.append(pl.select(pl.when(is_known).then(flags).alias(name)).to_series())
        texts = {name: values[target, minute] for name, values in self.texts.items()}
        # the minute's own reason says more than that there are too few, and where it is one that
        # no waiting helps against, more than what is missing for a model
        reason = texts["speed_unknown_reason"]
        codes_of_rows = why[target, minute]
        replaced = (reason == _TOO_FEW) & (codes_of_rows > 0)
        replaced |= (reason != None) & np.isin(codes_of_rows, FOR_GOOD)  # noqa: E711 (of objects)
        reason[replaced] = np.array(WHY_NOT, dtype=object)[codes_of_rows[replaced]]
        series += [
            pl.Series(name, values.tolist(), dtype=pl.String) for name, values in texts.items()
        ]
        return pl.DataFrame(series)
