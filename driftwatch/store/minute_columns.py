"""What is kept of one target and one minute, how minutes become longer rows, and rows as bytes.

Bytes are Arrow in zlib for what a tick writes, in xz for what stays; known by the first bytes. Of
1,000 minutes xz takes a third of zlib's bytes and fifteen times its time.
"""

from __future__ import annotations

import io
import lzma
import zlib
from collections.abc import Mapping
from functools import cache

import numpy as np
import polars as pl
from polars.exceptions import PolarsError

from driftwatch.collect.registry import BUCKETED
from driftwatch.collect.schema import KEY_COLUMNS, TIME
from driftwatch.diagnose.evidence_table import ROW_SCHEMA
from driftwatch.diagnose.states import DTYPES
from driftwatch.errors import StoreError
from driftwatch.evidence import BY_NAME, COLUMNS, DETECTED, TEXTS
from driftwatch.minutes.schema import COUNTS, QUEUED, SUMS
from driftwatch.signals.minutes import FLAGGED, GAUGED, MINUTE_SCHEMA, minutes

_BESIDE_EVIDENCE: dict[str, pl.DataType | type[pl.DataType]] = {
    "model_name": pl.String,
    "cache_config": pl.String,
    "gpu_reasons": pl.String,
    "gpus_lost_names": pl.String,
    "kv_block_tokens": pl.Float64,
    "binding_requests": pl.Float64,
    "step_tokens_max_of_process": pl.Float64,
    # first of the last ten minutes' scrapes of which there is a share
    "binding_since": TIME,
    "deferred_since": TIME,
    **dict.fromkeys(TEXTS, pl.String),
}
# Values of a row's last minute: they are neither added up nor averaged.
LAST: dict[str, pl.DataType | type[pl.DataType]] = {
    **{
        name: DTYPES[BY_NAME[name].dtype]
        for name in (*(c.name for c in COLUMNS if c.stored), *DETECTED)
        if name not in MINUTE_SCHEMA
    },
    **_BESIDE_EVIDENCE,
}
# What of a minute row no other column has: the next minutes are evaluated with it.
ROW: dict[str, pl.DataType | type[pl.DataType]] = {
    name: dtype
    for name, dtype in ROW_SCHEMA.items()
    if name not in MINUTE_SCHEMA and name not in LAST
}
STORED_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {**MINUTE_SCHEMA, **LAST, **ROW}
_NO_ROWS = pl.DataFrame(schema=STORED_SCHEMA)

ADDED = ("scrapes", "duration_seconds", "forward_passes", *SUMS, *COUNTS)
_SETTINGS = ("kv_cache_tokens", "max_num_seqs", "max_num_batched_tokens", "gpu_count")
_OF_LAST_MINUTES = ("limit_binding_share_10m_ratio", "seconds_since_last_token")
AVERAGED = tuple(c for c in GAUGED if c not in (*_SETTINGS, *_OF_LAST_MINUTES))


def no_minutes() -> pl.DataFrame:
    """No stored minute."""
    return _NO_ROWS.clone()


def stored_rows(rows: pl.DataFrame, minute_rows: pl.DataFrame) -> pl.DataFrame:
    """Evidence rows of the minute grid and the minute rows beside them → what is stored of both.

    Both as a tick's outcome has them; without a column where no minute was evaluated.
    """
    if rows.width == 0:
        return no_minutes()
    of_evidence = rows.select(
        (pl.col(name) if name in rows.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in LAST.items()
    )
    return minutes(rows).hstack(of_evidence).hstack(minute_rows.select(*ROW))


def minute_rows_of(stored: pl.DataFrame) -> pl.DataFrame:
    """The minute rows (:data:`driftwatch.diagnose.evidence_table.ROW_SCHEMA`) of stored rows."""
    return stored.select(pl.col(name).cast(dtype) for name, dtype in ROW_SCHEMA.items())


def rolled_up(rows: pl.DataFrame, seconds: int) -> pl.DataFrame:
    """Minutes (or longer rows) → rows of so many seconds, aligned to the clock.

    Counters and histograms add up, gauges are averaged over the time they stand for, a flag holds
    where it held in any minute, and the rest is that of the last observed minute. A sum is unknown
    where it is so in a minute that was observed; so are histograms whose edges changed.

    ``rows``: :data:`STORED_SCHEMA`, by instance, engine and end; ``end`` belongs to the row;
    ``seconds``: of a row; divides a day.
    """
    span = pl.duration(seconds=seconds)
    begins = (pl.col("end") - pl.duration(microseconds=1)).dt.truncate(f"{seconds}s")
    numbered = rows.with_columns(end=(begins + span).cast(MINUTE_SCHEMA["end"]))
    return added_up(numbered, [*KEY_COLUMNS, "end"])


def added_up(rows: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """One row of :data:`STORED_SCHEMA` per value of ``by``, as :func:`rolled_up` has it.

    ``rows``: :data:`STORED_SCHEMA`, those of one row next to each other and in order of time;
    ``by``: columns of it.
    """
    groups = rows.with_columns(group=pl.struct(by).rle_id())
    added = groups.group_by("group", maintain_order=True).agg(*_sums(tuple(by)))
    for histogram in BUCKETED:
        added = added.join(
            _summed(groups, f"{histogram}_buckets"), on="group", how="left", maintain_order="left"
        ).with_columns(
            pl.when(histogram).then(f"{histogram}_buckets").alias(f"{histogram}_buckets")
        )
    # single scrapes are no longer known
    added = added.with_columns(pl.lit(None).alias(name) for name in QUEUED)
    return added.select(pl.col(c).cast(dtype) for c, dtype in STORED_SCHEMA.items())


@cache
def _sums(by: tuple[str, ...]) -> tuple[pl.Expr, ...]:
    """What each column of the rows of one group becomes, and whether its buckets add up."""
    weight = pl.col("duration_seconds").fill_null(0.0)
    observed = pl.col("scrapes") > 0
    was_observed = pl.col("duration_seconds") > 0

    def all_known(name: str) -> pl.Expr:
        return (pl.col(name).is_not_null() | ~was_observed.fill_null(False)).all()

    def total(name: str) -> pl.Expr:
        known = pl.col(name).is_not_null().any()
        return pl.when(known & all_known(name)).then(pl.col(name).sum()).alias(name)

    def mean(name: str) -> pl.Expr:
        mine = weight.filter(pl.col(name).is_not_null())
        weighted = (pl.col(name) * weight).sum() / mine.sum()
        return pl.when(mine.sum() > 0).then(weighted).otherwise(pl.col(name).mean()).alias(name)

    def last(name: str) -> pl.Expr:
        return pl.coalesce(
            pl.when(observed.any()).then(pl.col(name).filter(observed).last()),
            pl.when(~observed.any()).then(pl.col(name).last()),
        ).alias(name)

    def flag(name: str) -> pl.Expr:
        # unknown where no minute says so, but one that was observed does not know
        return pl.col(name).filter(observed).any(ignore_nulls=False).alias(name)

    plain = [c for c, t in STORED_SCHEMA.items() if not isinstance(t, pl.List) and c not in by]
    return (
        *[pl.col(c).first() for c in by],
        *[
            total(c)
            if c in ADDED
            else mean(c)
            if c in AVERAGED
            else flag(c)
            if c in FLAGGED
            else last(c)
            for c in plain
        ],
        *[
            (all_known(f"{h}_buckets") & (pl.col(f"{h}_edges").drop_nulls().n_unique() <= 1)).alias(
                h
            )
            for h in BUCKETED
        ],
        *[pl.col(f"{h}_edges").drop_nulls().last() for h in BUCKETED],
    )


def _summed(groups: pl.DataFrame, name: str) -> pl.DataFrame:
    """Group → its lists added up, element by element."""
    flat = groups.select("group", name).filter(pl.col(name).list.len() > 0)
    cells = flat.with_columns(cell=pl.int_ranges(pl.col(name).list.len())).explode(
        name, "cell", empty_as_null=True
    )
    return (
        cells.group_by("group", "cell", maintain_order=True)
        .agg(pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).sum()))
        .sort("group", "cell")
        .group_by("group", maintain_order=True)
        .agg(name)
    )


Schema = Mapping[str, pl.DataType | type[pl.DataType]]

# Of packed numbers so much is kept: they are off by 1.5e-5 of their value at most; all is printed
# with three digits, and the noise of a minute is a hundred times that. Counts stay exact.
SIGNIFICANT_BITS = 15
_LARGEST_SINGLE = 2.0**24  # up to which a float32 holds every whole number
_XZ, _ZLIB = b"\xfd7zXZ\x00", b"\x78\x01"
# lp and pb: numbers of four bytes beside each other
_FILTER = {"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 0, "lp": 2, "pb": 2}
_DICTIONARY_BYTES = 8 << 20


def encode(rows: pl.DataFrame) -> bytes:
    """A frame as bytes, exactly; the same frame gives the same bytes."""
    return zlib.compress(_arrow(rows), 1)


def pack(rows: pl.DataFrame) -> bytes:
    """A frame as few bytes, its Float64 columns rounded; the same frame gives the same bytes."""
    names = [name for name, dtype in rows.schema.items() if dtype == pl.Float64]
    raw = _arrow(rows.with_columns(_rounded(rows[name]) for name in names))
    # a dictionary larger than all of it costs time alone
    size = min(_DICTIONARY_BYTES, 1 << max(len(raw).bit_length(), 12))
    return lzma.compress(raw, check=lzma.CHECK_CRC32, filters=[{**_FILTER, "dict_size": size}])


def decode(blob: bytes, schema: Schema) -> pl.DataFrame:
    """Bytes → a frame in today's schema.

    Columns that a later version added are NULL, columns that it dropped are left out.

    Raises StoreError: these are no such bytes, or damaged ones.
    """
    try:
        if blob.startswith(_ZLIB):
            arrow = zlib.decompress(blob)
        elif blob.startswith(_XZ):
            arrow = lzma.decompress(blob)
        else:
            raise StoreError("a stored table is in no known form", code="corrupt")
        written = pl.read_ipc_schema(io.BytesIO(arrow))
        # one for the height where none is wanted
        wanted = [name for name in written if name in schema] or [next(iter(written))]
        frame = pl.read_ipc(io.BytesIO(arrow), columns=wanted)
    except (lzma.LZMAError, zlib.error, PolarsError) as error:
        raise StoreError(f"a stored table is damaged: {error}", code="corrupt") from error
    return frame.select(
        (pl.col(name) if name in frame.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in schema.items()
    )


def to_arrow(frame: pl.DataFrame) -> bytes:
    """Any frame as bytes; the same frame gives the same bytes."""
    buffer = io.BytesIO()
    frame.write_ipc(buffer, compression="zstd")
    return buffer.getvalue()


def from_arrow(data: bytes) -> pl.DataFrame:
    """The frame that :func:`to_arrow` was given."""
    return pl.read_ipc(io.BytesIO(data))


def _arrow(rows: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    rows.write_ipc(buffer, compression="uncompressed")
    return buffer.getvalue()


def _rounded(column: pl.Series) -> pl.Series:
    """As Float32 where that holds all; whole numbers and unix seconds stay exact; NaN is NULL."""
    column = column.fill_nan(None)
    values = column.fill_null(0.0).to_numpy()
    mantissa, exponent = np.frexp(values)
    near = np.ldexp(np.rint(np.ldexp(mantissa, SIGNIFICANT_BITS)), exponent - SIGNIFICANT_BITS)
    is_exact = (values == np.rint(values)) | (np.abs(values) >= _LARGEST_SINGLE)
    rounded = np.where(is_exact, values, near)
    with np.errstate(over="ignore"):
        single = rounded.astype(np.float32)
    fits = bool((single.astype(np.float64) == rounded).all())
    stored = pl.Series(column.name, single if fits else rounded)
    return pl.select(pl.when(column.is_not_null()).then(stored).alias(column.name)).to_series()
