"""The answer to ``selector[range]``: raw samples, as they were scraped, as one long table."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from driftwatch.collect.cells import (
    CHOSEN_NAMES,
    OWN_LABELS,
    Labels,
    Slot,
    short_name,
    slots_of,
    wire_names_of,
)
from driftwatch.collect.identity import identity_of
from driftwatch.collect.samples import NONE, Attempt, Samples, Unit
from driftwatch.errors import BadPage

_FIRST, _END = b'"result":[{"metric":{', b"]]}"
_BETWEEN, _VALUES = '"metric":', ',"values":['
_PAIR = {"at": pl.Float64, "value": pl.Float64}


@dataclass(frozen=True, slots=True)
class Cut:
    """Series of an answer as they are written, not parsed: an answer is nearly all labels, and
    they are those of the last answer."""

    heads: pl.Series  # labels of each series, a JSON object without its braces
    values: pl.Series  # samples of each: ``,"values":[[0,"1"],[15,"2"]]``


def cut(body: bytes) -> tuple[bytes, Cut] | None:
    """What stands around the series of a matrix, and these; None where it is written in any other
    way than Prometheus does, or has braces in a label.
    """
    start, end = body.find(_FIRST), body.rfind(_END)
    if start < 0 or end < 0:
        return None
    try:
        # a line to each opening brace, a column to each closing one
        table = pl.read_csv(
            body[start + len(_FIRST) : end + 2],
            has_header=False,
            separator="}",
            eol_char="{",
            quote_char=None,
            truncate_ragged_lines=True,
            columns=[0, 1],
            infer_schema=False,
        )
    except pl.exceptions.PolarsError:
        return None
    heads, values = table.gather_every(2).get_columns()
    between = table.gather_every(2, 1).to_series()
    is_whole = len(between) == len(heads) - 1 and bool((between == _BETWEEN).all())
    if not is_whole or heads.null_count() or not values.str.starts_with(_VALUES).all():
        return None
    return body[: body.find(b"{", start)] + body[end + len(_END) :], Cut(heads, values)


def _labels(head: str) -> dict[str, str]:
    labels: dict[str, str] = orjson.loads(f"{{{head}}}")
    return labels


@dataclass(frozen=True, slots=True)
class RawSamples:
    """Series and their samples, series after series."""

    heads: pl.Series  # labels of each series, with ``__name__``, as JSON without braces
    series: npt.NDArray[np.int32]  # of each sample
    time: npt.NDArray[np.int64]  # unix microseconds
    value: npt.NDArray[np.float64]  # NaN where it is no number
    native: Sequence[Labels] = ()  # series of native histograms, of which nothing is read

    @property
    def labels(self) -> list[dict[str, str]]:
        """Labels of each series; for what is small."""
        return list(map(_labels, self.heads))

    def labels_like(self, names: Collection[str]) -> list[dict[str, str]]:
        """Labels of the series whose names end so."""
        alike = self.heads.str.contains_any([f'{name}"' for name in names])
        return list(map(_labels, self.heads.filter(alike)))


def raw_samples(result: Cut | Sequence[Any], first_ms: int) -> RawSamples:
    """``data.result`` of a matrix → its samples from a time on.

    Raises BadPage: a series is not as the API promises.
    """
    if isinstance(result, Cut):
        counts = result.values.str.count_matches("[", literal=True) - 1
        text = result.values.str.join("\n").item().encode()
        for written, wanted in ((_VALUES.encode(), b""), (b"],[", b"\n")):
            text = text.replace(written, wanted)
        text = text.translate(None, b'[]"')
        try:
            table = pl.read_csv(text, has_header=False, quote_char=None, schema=_PAIR)
            if counts.sum() == len(table) and not any(table.null_count().row(0)):
                seconds, value = (table[name].to_numpy() for name in _PAIR)
                return _from(result.heads, counts, seconds, value, first_ms)
        except pl.exceptions.PolarsError:
            pass
        result = _parsed(result)
    try:
        labels = [one["metric"] for one in result]
        if not all(isinstance(one, dict) for one in labels):
            raise TypeError
        lists = [one.get("values") or () for one in result]
        native = [one["metric"] for one in result if one.get("histograms")]
        seconds = np.array([at for one in lists for at, _ in one], np.float64)
        texts = pl.Series([text for one in lists for _, text in one], dtype=pl.String)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise BadPage(f"a series of the answer is malformed ({type(error).__name__})") from None
    value = texts.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
    heads = [orjson.dumps(one, option=orjson.OPT_SORT_KEYS)[1:-1].decode() for one in labels]
    numbers = pl.Series(list(map(len, lists)), dtype=pl.Int64)
    return _from(pl.Series(heads, dtype=pl.String), numbers, seconds, value, first_ms, native)


def _parsed(result: Cut) -> Sequence[Any]:
    """The series of an answer, with all that is in them."""
    pairs = zip(result.heads, result.values, strict=True)
    written = ",".join(f'{{"metric":{{{head}}}{values}}}' for head, values in pairs)
    series: Sequence[Any] = orjson.loads(f"[{written}]")
    return series


def _from(
    heads: pl.Series,
    counts: pl.Series,
    seconds: npt.NDArray[np.float64],
    value: npt.NDArray[np.float64],
    first_ms: int,
    native: Sequence[Labels] = (),
) -> RawSamples:
    series = np.repeat(np.arange(len(heads), dtype=np.int32), counts.to_numpy())
    ms = np.rint(seconds * 1000).astype(np.int64)
    inside = ms >= first_ms
    if not inside.all():
        series, ms, value = series[inside], ms[inside], value[inside]
    return RawSamples(heads, series, ms * 1000, value, native)


# no quote in a JSON string is without a backslash before it
_NAME, _EDGE = r'(?:^|,)"__name__":"([^"]*)"', r'(?:^|,)"le":"([^"]*)"'
_CONFIG = -2  # in place of a slot: the labels of the series are its value
_PLAIN = 1e11  # every metric may have a number up to there
_SPARE = 10_000  # series that are kept though they are gone
_KNOWN = {"hash": pl.UInt64, "unit": pl.Int32, "slot": pl.Int32, "more": pl.Int32}


class Reader:
    """Puts the series of answers where they belong, and remembers where from answer to answer."""

    def __init__(self) -> None:
        self._labelled: frozenset[str] = frozenset()  # labels of series that every engine has
        self._prefixes: frozenset[str] = frozenset()
        self._seed = secrets.randbits(63)
        self._seen = 0  # series of the last answers
        self._forget(frozenset())
        self.begin(())

    def begin(self, prefixes: Iterable[str]) -> None:
        """Nothing is read yet.

        ``prefixes``: what stands before vLLM's names, beside ``vllm:``.
        """
        known = sum(one.height for one in self._known.values())
        if (held := frozenset(prefixes)) != self._prefixes or known > 2 * self._seen + _SPARE:
            self._prefixes = held
            self._forget(self.telling)
        self.samples = Samples(self._slots, self._units)
        self.nameless: list[Labels] = []  # series without an instance
        self.has_learnt = False
        self._seen = 0

    def _forget(self, telling: frozenset[str]) -> None:
        self.telling = telling  # labels that tell servers apart
        self._wire_names = wire_names_of(self._prefixes)
        self._chosen_names = [o for o, name in self._wire_names.items() if name in CHOSEN_NAMES]
        self._slots: dict[Slot, int] = {}
        self._units: dict[Unit, int] = {}
        self._configs: list[str] = []
        self._known: dict[str, pl.DataFrame] = {}  # by question
        self.samples = Samples(self._slots, self._units)

    @property
    def is_empty(self) -> bool:
        """Nothing was read."""
        return not self.samples.any

    def learn(self, answers: Sequence[RawSamples], names: Collection[str]) -> None:
        """The labels that tell servers apart: those of series that every engine has one of.

        ``names``: what these end with.
        """
        series = [labels for answer in answers for labels in answer.labels_like(names)]
        self._labelled |= frozenset[str]().union(*series) - OWN_LABELS
        if not self._labelled:
            series = [labels for answer in answers for labels in answer.labels]
        telling = self._labelled or frozenset[str]().union(*series) - OWN_LABELS
        if telling != self.telling:
            self._forget(telling)
        self.has_learnt = bool(series)

    def add(self, answer: RawSamples, question: str) -> None:
        """Read an answer to a question."""
        if not len(answer.series):
            return
        found = self._found(answer.heads, question)
        unit, slot, more = (found[name].to_numpy() for name in ("unit", "slot", "more"))
        nobody, config = unit == NONE, slot == _CONFIG
        self.nameless += map(_labels, answer.heads.filter(pl.Series(nobody)))
        for index in np.flatnonzero(config & ~nobody).tolist():
            times = answer.time[slice(*np.searchsorted(answer.series, (index, index + 1)))]
            self.samples.add_config(int(unit[index]), times.tolist(), self._configs[more[index]])
        slot, more = (np.where(nobody | config, NONE, one) for one in (slot, more))
        # with a number that none may have, of two in one cell, or of no engine
        odd = pl.Series(unit.astype(np.int64) << 32 | slot).is_duplicated().to_numpy()
        odd |= np.array([*(one.engine is None for one in self._units), False])[unit]
        odd[answer.series[~((answer.value >= 0) & (answer.value <= _PLAIN))]] = True
        self.samples.add(
            answer.series,
            answer.time,
            answer.value,
            unit=unit,
            slots=[one for one in (slot, more) if (one != NONE).any()],
            text=_Texts(answer.heads, odd & ~nobody & (slot != NONE)),
        )

    def _found(self, heads: pl.Series, question: str) -> pl.DataFrame:
        """Unit and slots of each series."""
        known = self._known.get(question, pl.DataFrame(schema=_KNOWN))
        hashes = heads.hash(self._seed).alias("hash").to_frame()
        found = hashes.join(known, on="hash", how="left", maintain_order="left")
        new = found["unit"].is_null()
        if new.any():
            learnt = self._learnt(heads.filter(new))
            table = pl.concat([hashes.filter(new), learnt], how="horizontal")
            known = pl.concat([known, table.unique("hash")], rechunk=True)
            found = hashes.join(known, on="hash", how="left", maintain_order="left")
        self._known[question] = known
        self._seen += len(heads)
        return found

    def _learnt(self, heads: pl.Series) -> pl.DataFrame:
        """Unit and slots of series; nearly all differ in name and edge only."""
        head, name, chosen = pl.col("head"), pl.col("name"), self._chosen_names
        parts = heads.alias("head").to_frame().select(
            head, head.str.extract(_NAME).fill_null("").alias("name"),
            head.str.extract(_EDGE).fill_null("").alias("le"),
            head.str.replace(_NAME, "").str.replace(_EDGE, "").alias("rest"),
        )  # fmt: skip
        apart = pl.when(name.is_in(chosen)).then("rest").otherwise(pl.lit(""))
        parts = parts.with_columns(chosen=apart)

        def joined(by: list[str], of: Callable[[Labels], Sequence[int]], into: list[str]) -> None:
            nonlocal parts
            firsts = parts.group_by(by, maintain_order=True).agg(head.first())
            found = [of(_labels(one)) for one in firsts["head"]]
            values = pl.DataFrame(found, schema=dict.fromkeys(into, pl.Int32), orient="row")
            firsts = pl.concat([firsts.drop("head"), values], how="horizontal")
            parts = parts.join(firsts, on=by, how="left", maintain_order="left")

        joined(["rest"], lambda labels: [self._unit(labels)], ["unit"])
        joined(["name", "le", "chosen"], self._cells, ["slot", "more"])
        unit, slot, more = (np.array(parts[one]) for one in ("unit", "slot", "more"))
        for index in np.flatnonzero(slot == _CONFIG).tolist():
            unit[index], more[index] = self._config(_labels(heads[index]))
        return pl.DataFrame({"unit": unit, "slot": slot, "more": more})

    def _unit(self, labels: Labels) -> int:
        if not labels.get("instance"):
            return NONE
        server = identity_of({k: v for k, v in labels.items() if k in self.telling}, ())
        return self.samples.unit(server, labels.get("engine"), labels.get("model_name"))

    def _config(self, labels: dict[str, str]) -> tuple[int, int]:
        """The labels that the server itself set, as the page shows them."""
        outer = self.telling | {"__name__", "le", "engine"}
        ours = {k: v for k, v in labels.items() if k not in outer}
        self._configs.append(orjson.dumps(ours, option=orjson.OPT_SORT_KEYS).decode())
        labels.pop("model_name", None)
        return self._unit(labels), len(self._configs) - 1

    def _cells(self, labels: Labels) -> tuple[int, int]:
        found = slots_of(self._wire_names.get(labels.get("__name__", ""), ""), labels)
        if any(slot.part == "labels" for slot in found):
            return _CONFIG, NONE
        slot, more = (*map(self.samples.slot, found), NONE, NONE)[:2]
        return slot, more


class _Texts:
    """Series as problems name them: those that one can be of. The others are let go."""

    def __init__(self, heads: pl.Series, kept: npt.NDArray[np.bool_]) -> None:
        self._places, self._heads = np.flatnonzero(kept), heads.filter(pl.Series(kept))

    def __call__(self, index: int) -> str:
        return short_name(_labels(self._heads[int(np.searchsorted(self._places, index))]))


def attempts_of(up: RawSamples) -> list[Attempt]:
    """Every scrape that the ``up`` series tell of."""
    servers = [identity_of(labels, ("__name__",)) for labels in up.labels]
    return [
        Attempt(servers[series], time, None if value == 1 else "up == 0")
        for series, time, value in zip(
            up.series.tolist(), up.time.tolist(), up.value.tolist(), strict=True
        )
    ]
