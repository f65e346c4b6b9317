"""The answer to ``selector[range]``: raw samples, as they were scraped, as one long table."""

from __future__ import annotations

import gc
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from driftwatch.collect.identity import Identity, identity_of
from driftwatch.collect.registry import OWN_LABELS, Labels
from driftwatch.collect.samples import NONE, Attempt, Samples, SeriesReader, unit_of
from driftwatch.errors import BadPage


@dataclass(frozen=True, slots=True)
class SeriesText:
    """Series of a matrix as text: an answer is nearly all labels, the same as in the last one, so
    they are not parsed again.
    """

    heads: pl.Series  # labels of each series, a JSON object without its braces
    values: pl.Series  # samples of each: ``,"values":[[0,"1"],[15,"2"]]``


_FIRST, _LAST = b'"result":[{"metric":{', b"]]}]"
_METRIC, _VALUES, _BETWEEN = '"metric":', ',"values":[[', "],["


def split_series(body: bytes) -> tuple[bytes, SeriesText] | None:
    """The text around the series of a matrix, and the series.

    None where an answer is not written as Prometheus writes it, or a label has braces.
    """
    start, end = body.find(_FIRST), body.rfind(_LAST)
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
    is_whole = len(between) == len(heads) - 1 and bool((between == _METRIC).all())
    if not is_whole or heads.null_count() or not values.str.starts_with(_VALUES).all():
        return None
    around = b'%b"result":[]%b' % (body[:start], body[end + len(_LAST) :])
    return around, SeriesText(heads, values)


def parsed_json(body: bytes) -> Any:
    """The document of a JSON text; None where it is not JSON.

    Python's collector is held back: it would look through a large answer's objects several times
    while they are made, which takes longer than making them.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    finally:
        if collects:
            gc.enable()


@dataclass(frozen=True, slots=True)
class RawSamples:
    """Series and their samples, series after series."""

    heads: pl.Series  # labels of each series, with ``__name__``, as JSON without braces
    series: npt.NDArray[np.int32]  # of each sample
    time: npt.NDArray[np.int64]  # unix microseconds
    value: npt.NDArray[np.float64]  # NaN where it is no number
    native: Sequence[Labels] = ()  # series of native histograms: they are not read

    @property
    def labels(self) -> list[dict[str, str]]:
        """Labels of each series; for what is small."""
        return list(map(labels_of, self.heads))


def labels_of(head: str) -> dict[str, str]:
    """The labels of a series."""
    labels: dict[str, str] = orjson.loads(f"{{{head}}}")
    return labels


def raw_samples(result: SeriesText | Sequence[Any], first_ms: int) -> RawSamples:
    """``data.result`` of a matrix → its samples from a time on.

    Raises BadPage: a series is not as the API promises.
    """
    native: list[Labels] = []
    try:
        if isinstance(result, SeriesText):
            heads, lines = result.heads, result.values.str.join("\n").item().encode()
            counts = result.values.str.count_matches(_BETWEEN, literal=True).to_numpy() + 1
        else:
            texts = [orjson.dumps({**one["metric"]})[1:-1].decode() for one in result]
            heads = pl.Series(texts, dtype=pl.String)
            lists = [one.get("values") or () for one in result]
            counts = np.array(list(map(len, lists)), np.int64)
            lines = "\n".join(f"{at},{text}" for values in lists for at, text in values).encode()
            native = [one["metric"] for one in result if one.get("histograms")]
        table = _pairs(lines)
        series = np.repeat(np.arange(len(heads), dtype=np.int32), counts)
        if len(series) != len(table) or table["seconds"].null_count():
            raise ValueError
    except (KeyError, TypeError, ValueError, AttributeError, pl.exceptions.PolarsError) as error:
        raise BadPage(f"a series of the answer is malformed ({type(error).__name__})") from None
    ms = np.rint(table["seconds"].to_numpy() * 1000).astype(np.int64)
    value = table["value"].fill_null(np.nan).to_numpy()
    inside = ms >= first_ms
    return RawSamples(heads, series[inside], ms[inside] * 1000, value[inside], native)


def _pairs(lines: bytes) -> pl.DataFrame:
    """``seconds,value`` a line → two columns; NULL where there is no number."""
    schema = {"seconds": pl.Float64, "value": pl.Float64}
    for written, wanted in ((_VALUES, b""), (_BETWEEN, b"\n")):
        lines = lines.replace(written.encode(), wanted)
    lines = lines.translate(None, b'[]"')
    if not lines:
        return pl.DataFrame(schema=schema)
    return pl.read_csv(lines, has_header=False, quote_char=None, schema=schema, ignore_errors=True)


# In place of a slot's number where a series' labels are its value: minus 2, 3, … for the first,
# second, … configuration.
_CONFIGURATION = -2
_SPARE = 10_000  # series that are kept though they are gone
_KNOWN = {"hash": pl.UInt64, "unit": pl.Int32, "slot": pl.Int32}


class Reader:
    """Numbers the series of answers, and remembers the numbers from answer to answer."""

    def __init__(self) -> None:
        self._labelled: frozenset[str] = frozenset()  # labels of series that every engine has
        self._prefixes: frozenset[str] = frozenset()
        self._seed = secrets.randbits(63)
        self._series = 0  # in the last answers
        self._forget(frozenset())
        self.begin(())

    def begin(self, prefixes: Iterable[str]) -> None:
        """Nothing is read yet.

        ``prefixes``: what stands before vLLM's names, beside ``vllm:``.
        """
        known = sum(one.height for one in self._known.values())
        if (held := frozenset(prefixes)) != self._prefixes or known > 2 * self._series + _SPARE:
            self._prefixes = held
            self._forget(self._reader.server_labels)
        self.samples = Samples(self._reader)
        self.has_learnt = False
        self._series = 0

    def _forget(self, server_labels: frozenset[str]) -> None:
        self._reader = SeriesReader(self._prefixes, server_labels)
        self.samples = Samples(self._reader)
        self._units: dict[Identity, int] = {}  # labels without name and le → number
        self._configurations: list[str] = []
        self._known: dict[str, pl.DataFrame] = {}  # by question

    def learn(self, answers: Sequence[RawSamples], names: tuple[str, ...]) -> None:
        """Learn the labels that distinguish servers: those of series that every engine has one of.

        ``names``: what these end with.
        """
        heads = pl.concat([pl.Series(dtype=pl.String), *(answer.heads for answer in answers)])
        named = heads.filter(heads.str.contains_any([f'{name}"' for name in names]))
        series = list(map(labels_of, named))
        self._labelled |= frozenset[str]().union(*series) - OWN_LABELS
        server_labels = self._labelled
        if not server_labels:
            server_labels = frozenset[str]().union(*map(labels_of, heads)) - OWN_LABELS
        if server_labels != self._reader.server_labels:
            self._forget(server_labels)
        self.has_learnt = bool(series)

    def add(self, answer: RawSamples, question: str) -> None:
        """Read an answer to a question."""
        if not len(answer.series):
            return
        found = self._found(answer.heads, question)
        found = found.filter(pl.col("unit") != NONE)  # a series without instance is nobody's
        of_labels = found.filter(pl.col("slot") <= _CONFIGURATION)
        for series, unit, slot in of_labels.iter_rows():
            times = answer.time[slice(*np.searchsorted(answer.series, (series, series + 1)))]
            text = self._configurations[_CONFIGURATION - slot]
            self.samples.configurations += [(unit, at, text) for at in times.tolist()]
        samples = {"series": answer.series, "time": answer.time, "value": answer.value}
        joined = pl.DataFrame(samples).join(found.filter(pl.col("slot") >= 0), on="series")
        self.samples.add(joined.select("unit", "slot", "time", "value"))

    def _found(self, heads: pl.Series, question: str) -> pl.DataFrame:
        """Number (``series``), unit and slot of each series, several times if it has several."""
        hashes = pl.DataFrame({"hash": heads.hash(self._seed)})
        hashes = hashes.with_row_index("series").cast({"series": pl.Int32})
        known = self._known.get(question, pl.DataFrame(schema=_KNOWN))
        found = hashes.join(known, on="hash", how="left", maintain_order="left")
        if found["unit"].null_count():
            new = found.filter(pl.col("unit").is_null())["series"]
            rows = [
                (hash_of, *place)
                for hash_of, one in zip(hashes["hash"].gather(new), new, strict=True)
                for place in self._places(labels_of(heads[one]))
            ]
            table = pl.DataFrame(rows, _KNOWN, orient="row").unique()
            known = pl.concat([known, table], rechunk=True)
            found = hashes.join(known, on="hash", how="left", maintain_order="left")
        self._known[question] = known
        self._series += len(heads)
        return found.select("series", "unit", "slot")

    def _places(self, labels: Labels) -> list[tuple[int, int]]:
        """Unit and slot of each cell that a series fills."""
        cells = self._reader.cells(labels)
        if cells is None:
            self._configurations.append(self._reader.configuration(labels))
            cells = (_CONFIGURATION - len(self._configurations) + 1,)
        unit = self._unit(labels)
        return [(unit, slot) for slot in (cells if unit != NONE else ()) or (NONE,)]

    def _unit(self, labels: Labels) -> int:
        """The number of a series' unit; nearly all differ in name and edge only."""
        if not labels.get("instance"):
            return NONE
        rest = tuple(one for one in labels.items() if one[0] not in ("__name__", "le"))
        if rest not in self._units:
            server_labels = self._reader.server_labels
            server = identity_of({k: v for k, v in rest if k in server_labels}, ())
            self._units[rest] = self._reader.unit(unit_of(server, labels))
        return self._units[rest]


def attempts_of(up: RawSamples) -> list[Attempt]:
    """A scrape for each sample of ``up``."""
    servers = [identity_of(labels, ("__name__",)) for labels in up.labels]
    return [
        Attempt(servers[series], time, None if value == 1 else "up == 0")
        for series, time, value in zip(
            up.series.tolist(), up.time.tolist(), up.value.tolist(), strict=True
        )
    ]
