"""What detectors remember: arrays with a place per key (a target, a pool).

One memory for all detectors: it grows and forgets by key, and goes to the store and back. A value:
every method gives a new one, and no array is changed in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from driftwatch.arrays import Indices

Array = npt.NDArray[Any]
_PACKED: dict[str, Any] = {
    "name": pl.String,
    "dtype": pl.String,
    "shape": pl.List(pl.Int64),
    "data": pl.Binary,
}


@dataclass(frozen=True, slots=True)
class Field:
    """One array."""

    # of a key's share; -1 is a size that changes (as many bucket edges as are known)
    shape: tuple[int, ...] = ()
    dtype: str = "float64"  # NumPy's name
    fill: Any = 0  # of a key that is new; a number, or an array of the share's shape
    axis: int = 0  # of the array that counts the keys


@dataclass(frozen=True, slots=True)
class Arrays:
    """Arrays of the same keys."""

    keys: pl.DataFrame  # a row per key: the key columns and what else is known of it
    key: tuple[str, ...]  # which columns those are
    fields: Mapping[str, Field]  # what each array is
    values: Mapping[str, Array]  # the arrays by name

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, name: str) -> Array:
        return self.values[name]

    def with_arrays(self, **values: Array) -> Arrays:
        """The same with some other arrays."""
        return replace(self, values={**self.values, **values})

    def places(self, keys: pl.DataFrame) -> Indices:
        """The place of each of these keys; -1 of one that is not here."""
        places = self.keys.select(self.key).with_row_index("place")
        joined = keys.select(self.key).join(
            places, on=self.key, how="left", maintain_order="left", nulls_equal=True
        )
        return joined["place"].cast(pl.Int64).fill_null(-1).to_numpy().astype(np.intp)

    def with_keys(self, now: pl.DataFrame, *, in_order: bool = False) -> Arrays:
        """Room for these keys (each once), and what else their rows say where it is known.

        Keys stay in their places and new ones come last, unless all are to be ``in_order``.
        """
        places = self.places(now)
        fresh = places < 0
        others = [c for c in now.columns if c not in self.key]
        keys = self.keys.join(
            now, on=self.key, how="left", maintain_order="left", suffix="_now"
        ).with_columns(pl.coalesce(f"{c}_now", c).alias(c) for c in others)
        keys = pl.concat([keys.select(self.keys.columns), now.filter(fresh)], how="diagonal")
        rows = np.concatenate([np.arange(len(self)), np.full(int(fresh.sum()), -1)])
        if in_order:
            numbered = keys.with_row_index("row").sort(self.key)
            keys, rows = numbered.drop("row"), rows[numbered["row"].to_numpy()]
        if len(rows) == len(self) and (rows == np.arange(len(rows))).all():
            return replace(self, keys=keys)
        return self._with_rows(keys, rows.astype(np.intp))

    def without(self, leaving: pl.DataFrame) -> Arrays:
        """Less the keys of these rows, which may have some of the key columns only."""
        key = [c for c in self.key if c in leaving.columns]
        mark = leaving.select(key).unique().with_columns(gone=True)
        stays = self.keys.join(mark, on=key, how="left", maintain_order="left")["gone"].is_null()
        if stays.all():
            return self
        return self._with_rows(self.keys.filter(stays), np.flatnonzero(stays.to_numpy()))

    def _with_rows(self, keys: pl.DataFrame, rows: Indices) -> Arrays:
        """These keys with the arrays' rows of these numbers; -1 is new."""
        new = rows < 0
        values: dict[str, Array] = {}
        for name, array in self.values.items():
            field = self.fields[name]
            shape = (*array.shape[: field.axis], len(rows), *array.shape[field.axis + 1 :])
            copied = np.full(shape, field.fill, dtype=array.dtype)
            np.moveaxis(copied, field.axis, 0)[~new] = np.moveaxis(array, field.axis, 0)[rows[~new]]
            values[name] = copied
        return replace(self, keys=keys, values=values)

    def frames(self) -> dict[str, pl.DataFrame]:
        """Name → frame, from which :func:`arrays_from` makes the same again."""
        rows = [
            (name, array.dtype.str, list(array.shape), np.ascontiguousarray(array).tobytes())
            for name, array in self.values.items()
        ]
        return {"keys": self.keys, "arrays": pl.DataFrame(rows, schema=_PACKED, orient="row")}


def no_arrays(
    key: Sequence[str], fields: Mapping[str, Field], also: Mapping[str, Any] | None = None
) -> Arrays:
    """Arrays without keys; ``also`` are further columns of the keys, all texts."""
    columns = dict.fromkeys((*key, *(also or ())), pl.String)
    return Arrays(pl.DataFrame(schema=columns), tuple(key), fields, dict(_fresh(fields, 0)))


def _fresh(fields: Mapping[str, Field], keys: int) -> Iterator[tuple[str, Array]]:
    for name, field in fields.items():
        shape = [max(size, 1) if size == -1 else size for size in field.shape]
        shape.insert(field.axis, keys)
        yield name, np.full(shape, field.fill, dtype=np.dtype(field.dtype))


def arrays_from(frames: Mapping[str, pl.DataFrame], empty: Arrays) -> Arrays:
    """The arrays of :meth:`Arrays.frames`; one that has another shape now begins anew.

    ``empty`` is of :func:`no_arrays`.
    """
    keys = frames["keys"]
    stored = {name: row for name, *row in frames["arrays"].iter_rows()}
    values = dict(_fresh(empty.fields, len(keys)))
    for name, field in empty.fields.items():
        if name not in stored:
            continue
        dtype, shape, data = stored[name]
        wanted = [*field.shape[: field.axis], len(keys), *field.shape[field.axis :]]
        if len(shape) == len(wanted) and all(
            now in (-1, then) for now, then in zip(wanted, shape, strict=True)
        ):
            values[name] = np.frombuffer(data, dtype=np.dtype(dtype)).reshape(shape).copy()
    return replace(empty, keys=keys.select(empty.keys.columns), values=values)


def named(frames: Mapping[str, pl.DataFrame], part: str) -> dict[str, pl.DataFrame]:
    """The frames with the part's name before theirs."""
    return {f"{part}.{name}": frame for name, frame in frames.items()}


def part_of(frames: Mapping[str, pl.DataFrame], part: str) -> dict[str, pl.DataFrame]:
    """Those of :func:`named`, by their own names."""
    start = f"{part}."
    return {name[len(start) :]: f for name, f in frames.items() if name.startswith(start)}
