"""The engines of a fleet and what their series are called: labels kept once, numbers told apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

Labels = Mapping[str, str]
Numbers = npt.NDArray[np.int64]

SUFFIXES = ("", "_bucket", "_sum", "_count")

_SHOWN_CHARACTERS = 200


class Roster:
    """Every origin (labels that must agree for numbers to belong together) and its engine.

    Attributes:
        texts: labels of each origin as sorted JSON.
        engine: number of each origin's engine.
        engines: (instance, engine) of each engine.
    """

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self.engines: list[tuple[str, str]] = []
        self._engine: list[int] = []
        self._models: list[str | None] = []
        self._origin_of: dict[bytes, int] = {}
        self._engine_of: dict[tuple[str, str], int] = {}
        self._labels: dict[int, Labels] = {}
        self._made: dict[str, tuple[int, npt.NDArray[np.int64] | pl.Series]] = {}

    def add(self, labels: Labels) -> int:
        """The origin with these labels, ``instance`` among them."""
        text = orjson.dumps(labels, option=orjson.OPT_SORT_KEYS)
        origin = self._origin_of.get(text)
        if origin is None:
            text = bytes(memoryview(text))  # orjson's own is cut out of a block of kilobytes
            origin = self._origin_of[text] = len(self.texts)
            name = (str(labels["instance"]), str(labels.get("engine") or "0"))
            engine = self._engine_of.get(name)
            if engine is None:
                engine = self._engine_of[name] = len(self.engines)
                self.engines.append(name)
            model = labels.get("model_name")
            self.texts.append(text)
            self._engine.append(engine)
            self._models.append(None if model is None else str(model))
        return origin

    def labels(self, origin: int) -> Labels:
        """The labels of an origin."""
        return labels_of(self.texts[origin])

    def kept_labels(self, origin: int) -> Labels:
        """The labels of an origin that is asked for every time: the same object."""
        found = self._labels.get(origin)
        if found is None:
            found = self._labels[origin] = self.labels(origin)
        return found

    @property
    def engine(self) -> Numbers:
        """Engine of each origin."""
        made = self._made.get("engine")
        if made is None or made[0] != len(self._engine):
            made = self._made["engine"] = len(self._engine), np.array(self._engine, np.int64)
        assert isinstance(made[1], np.ndarray)  # noqa: S101 - for mypy
        return made[1]

    def named(self, engines: Numbers, repeated: int) -> list[pl.Series]:
        """``instance`` and ``engine`` of engines, each of them so many times."""
        names = [
            self._series("instance", len(self.engines), (i for i, _ in self.engines)),
            self._series("engine", len(self.engines), (e for _, e in self.engines)),
        ]
        rows = np.repeat(engines, repeated)
        return [name.gather(rows) for name in names]

    def models(self, origins: Numbers) -> pl.Series:
        """``model_name`` of origins."""
        return self._series("model_name", len(self._models), self._models).gather(origins)

    def _series(self, name: str, size: int, values: Iterable[str | None]) -> pl.Series:
        made = self._made.get(f"{name} series")
        if made is None or made[0] != size:
            made = size, pl.Series(name, list(values), pl.String)
            self._made[f"{name} series"] = made
        assert isinstance(made[1], pl.Series)  # noqa: S101 - for mypy
        return made[1]


class Variants:
    """What tells the series of one origin and query apart: name, part of a histogram, edge.

    Attributes:
        rank: of each variant's name, 0 is the current one.
        suffix: index of its suffix: "", _bucket, _sum, _count.
        edge: upper edge of a bucket, NaN where it has none or ``le`` is no number.
        labels: its metric's name and the labels that the origin does not have.
    """

    def __init__(self) -> None:
        self.labels: list[Labels] = []
        self._rows: list[tuple[int, int, float]] = []
        self._known: dict[tuple[str | None, ...], int] = {}
        self._made: npt.NDArray[np.float64] = np.empty((0, 3))

    def add(
        self, kind: tuple[str | None, ...], named: tuple[int, str], summed: Sequence[str]
    ) -> int:
        """The variant of a kind: name, ``le`` and the labels that are summed away."""
        variant = self._known.get(kind)
        if variant is None:
            variant = self._known[kind] = len(self.labels)
            pairs = zip(("__name__", "le", *summed), kind, strict=True)
            labels = {name: value for name, value in pairs if value is not None}
            rank, suffix = named
            edge = _edge(labels) if suffix == "_bucket" else math.nan
            self.labels.append(labels)
            self._rows.append((rank, SUFFIXES.index(suffix), edge))
        return variant

    def _table(self) -> npt.NDArray[np.float64]:
        if len(self._made) != len(self._rows):
            self._made = np.array(self._rows, np.float64).reshape(-1, 3)
        return self._made

    @property
    def rank(self) -> npt.NDArray[np.float64]:
        """Of each variant."""
        return self._table()[:, 0]

    @property
    def suffix(self) -> npt.NDArray[np.float64]:
        """Of each variant."""
        return self._table()[:, 1]

    @property
    def edge(self) -> npt.NDArray[np.float64]:
        """Of each variant."""
        return self._table()[:, 2]


def labels_of(head: bytes) -> dict[str, str]:
    """The labels that a head holds."""
    labels: dict[str, str] = orjson.loads(head)
    return labels


def shown(labels: Labels) -> str:
    """A series as problems name it, shortened."""
    rest = ",".join(f'{k}="{v}"' for k, v in sorted(labels.items()) if k != "__name__")
    text = f"{labels.get('__name__', '')}{{{rest}}}"
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"


def common(one: Labels, other: Labels) -> Labels:
    """The labels that both have with the same value."""
    return one if one == other else {k: v for k, v in one.items() if other.get(k) == v}


def _edge(labels: Mapping[str, str]) -> float:
    try:
        return float(labels["le"])
    except (KeyError, ValueError):
        return math.nan
