"""Targets that have left. Pure.

If a source scrapes other targets in a minute and does not try this one, it no longer lists it.
After 15 such minutes the target is *retired*. A target that is listed and does not answer is
*lost*: its scrapes fail, and ``CoverageLost`` opens a ticket.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import polars as pl

from driftwatch.collect.schema import KEY_COLUMNS, TIME
from driftwatch.model import TargetKey

_KEY = list(KEY_COLUMNS)
_MINUTE = timedelta(minutes=1)
RETIRED_AFTER = timedelta(minutes=15)
NOT_LISTED = f"the server is gone (not listed for {RETIRED_AFTER // _MINUTE} min)"

LOOKS_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {"source": pl.String, "start": TIME}


@dataclass(frozen=True, slots=True)
class Departures:
    """Arrivals and departures, as one tick hands them to the next."""

    # target → name of the source that listed it last
    origins: Mapping[TargetKey, str] = field(default_factory=dict)
    # retired targets that a source lists for ever, as a recording does
    retired: frozenset[TargetKey] = frozenset()

    def after(self, retired: Collection[TargetKey], not_listed: frozenset[TargetKey]) -> Departures:
        """Without the targets that were retired."""
        if not retired:
            return self
        return replace(
            self,
            origins={k: o for k, o in self.origins.items() if k not in retired},
            # only these must be remembered: a source still lists them, without a scrape
            retired=self.retired | (set(retired) - not_listed),
        )


def no_looks() -> pl.DataFrame:
    """No minute in which a source was scraped for another batch."""
    return pl.DataFrame(schema=LOOKS_SCHEMA)


def with_looks(
    rows: pl.DataFrame,
    scrapes: pl.DataFrame,
    origins: Mapping[TargetKey, str],
    pages: Collection[str],
    late: Mapping[str, tuple[str, datetime]],
    looks: pl.DataFrame,
    doubtful: Collection[str] = (),
    not_listed: Collection[TargetKey] = (),
) -> pl.DataFrame:
    """Minute rows whose ``looks`` are 0 where the source was asked and does not list the target.

    NULL stays where no source was asked. A minute that is missing because its source is late, or
    because the answer is doubtful, counts as one failed scrape.

    ``scrapes``: of the same minutes; ``pages``: sources that answer for each of their targets;
    ``late``: source that no longer delays the others → why, and its last collected time;
    ``looks``: :data:`LOOKS_SCHEMA`, minutes in which targets of other batches were scraped;
    ``not_listed``: targets whose source answered that it does not know them.
    """
    listing = _frame([(*key, name) for key, name in origins.items()], *_KEY, "source")
    start = (pl.col("end") - _MINUTE).cast(TIME)
    of_sources = scrapes.select(*_KEY, start=pl.col("time").dt.truncate("1m")).join(
        listing, on=_KEY
    )
    answered = pl.concat([of_sources.select("source", "start"), looks]).unique()
    owed = _frame([(name, *why) for name, why in sorted(late.items())], "source", "owed", "until")
    gone = _frame([tuple(key) for key in not_listed], *_KEY).with_columns(gone=pl.lit(True))
    joined = rows.with_columns(start=start)
    for beside, on in (
        (listing, _KEY),
        (answered.with_columns(answered=pl.lit(True)), ["source", "start"]),
        (owed, ["source"]),
        (gone, _KEY),
    ):
        joined = joined.join(beside, on=on, how="left", maintain_order="left")
    nobody = pl.col("looks").is_null()
    is_late = nobody & (pl.col("start") + _MINUTE / 2 >= pl.col("until")).fill_null(False)
    asked = pl.col("answered").fill_null(False) | pl.col("gone").fill_null(False)
    missing = nobody & asked & ~pl.col("source").is_in(sorted(pages))
    is_doubtful = pl.col("source").is_in(sorted(doubtful))
    return joined.with_columns(
        looks=pl.when(is_late | (missing & is_doubtful))
        .then(1.0)
        .when(missing)
        .then(0.0)
        .otherwise("looks"),
        failure=pl.when(is_late)
        .then("owed")
        .when(missing)
        .then(pl.lit("not scraped by ") + pl.col("source"))
        .otherwise("failure"),
    ).select(rows.columns)


def _frame(rows: Sequence[tuple[object, ...]], *columns: str) -> pl.DataFrame:
    """Texts in rows; ``until`` is a time."""
    schema = {name: TIME if name == "until" else pl.String for name in columns}
    return pl.DataFrame(rows, schema=schema, orient="row")


def retirements(rows: pl.DataFrame) -> tuple[datetime | None, dict[TargetKey, str]]:
    """End of the first minute that retires a target; the targets retired by then → why.

    ``rows``: of the minutes, with ``unlisted_minutes``.
    """
    going = rows.filter(pl.col("unlisted_minutes") >= RETIRED_AFTER / _MINUTE)
    first = going["end"].min()
    if not isinstance(first, datetime):
        return None, {}
    leaving = going.filter(pl.col("end") == first).select(_KEY).sort(_KEY)
    return first, {TargetKey(*key): NOT_LISTED for key in leaving.iter_rows()}
