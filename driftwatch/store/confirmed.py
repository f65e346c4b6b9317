"""Settings that a person confirmed: what a server runs since a restart that no metric explains.

They are kept as a note, with who wrote it and when. Rows that end between the restart and that time
are read with them; later rows have what the configuration says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import polars as pl
from sqlalchemy import Connection, select

from driftwatch.documents import Document
from driftwatch.knobs import COLUMN_KNOBS
from driftwatch.store.tables import actions

_INFERRED = "max_num_seqs_inferred"


class ConfirmedSettings(Document):
    """What one server runs since a restart, by one person."""

    instance: str
    engine: str
    pool: str
    since: datetime  # end of the minute of the restart
    # knob → value of the row before the restart, None = unknown; and the confirmed one
    values: Mapping[str, tuple[float | None, float]]
    by: str  # who
    at: datetime  # when it was written down


def confirmed_settings(connection: Connection) -> list[ConfirmedSettings]:
    """The newest note about each restart, in the order in which they were written."""
    query = select(actions.c.subject).where(
        actions.c.incident_id.is_(None), actions.c.action == "note", actions.c.subject.is_not(None)
    )
    texts = connection.execute(query.order_by(actions.c.id)).scalars()
    notes = map(ConfirmedSettings.read, texts)
    return list({(one.instance, one.engine, one.since): one for one in notes}.values())


def with_confirmed(rows: pl.DataFrame, every: Iterable[ConfirmedSettings]) -> pl.DataFrame:
    """Rows of the store with the confirmed values; a row whose configuration was changed keeps its.

    ``rows``: instance, engine, end, and any columns of settings.
    """
    for one in every:
        own = (
            (pl.col("instance") == one.instance)
            & (pl.col("engine") == one.engine)
            & pl.col("end").is_between(one.since, one.at)
        )
        for name in (n for n in COLUMN_KNOBS if n in one.values and n in rows.columns):
            before, now = one.values[name]
            is_old = pl.col(name).is_null() | (pl.col(name) == before).fill_null(value=False)
            flags = {}
            if name == "max_num_seqs" and _INFERRED in rows.columns:
                is_old |= pl.col(_INFERRED).fill_null(value=False)
                flags = {_INFERRED: pl.col(_INFERRED) & ~(own & is_old)}
            value = pl.when(own & is_old).then(pl.lit(now)).otherwise(name)
            rows = rows.with_columns(value.alias(name), **flags)
    return rows
