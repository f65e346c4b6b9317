"""What the database has of one target or pool: baselines, rows of a span, incidents; bounded."""

from __future__ import annotations

from datetime import datetime

import polars as pl
from sqlalchemy import and_, or_, select

from driftwatch.model import Incident, TargetKey
from driftwatch.store.baselines import BaselineRow
from driftwatch.store.database import Database, chunks
from driftwatch.store.frames import Schema, decode
from driftwatch.store.incidents import stored_incident
from driftwatch.store.minutes import MINUTE
from driftwatch.store.tables import incidents, minute_batches, pins
from driftwatch.web.listed_incidents import label_text


class TargetRows(Database):
    """Part of the web's store: one target or pool."""

    def pool_baselines(self, pool: str, most: int) -> list[BaselineRow]:
        """Those in force of a pool and its targets: the pool's own first, then the newest."""
        query = select(pins).where(pins.c.retired_at.is_(None), pins.c.pool == pool)
        newest = (pins.c.scope, pins.c.accepted_at.desc(), pins.c.id)
        with self._reading() as connection:
            rows = connection.execute(query.order_by(*newest).limit(most)).mappings()
            return [BaselineRow(**row) for row in rows]

    def baselines_naming(self, target: TargetKey, pool: str) -> list[BaselineRow]:
        """Those in force of a target and of its pool: two at most."""
        own = and_(pins.c.instance == target.instance, pins.c.engine == target.engine)
        whole = and_(pins.c.scope == "pool", pins.c.pool == pool)
        query = select(pins).where(pins.c.retired_at.is_(None), or_(own, whole))
        with self._reading() as connection:
            rows = connection.execute(query.order_by(pins.c.accepted_at, pins.c.id)).mappings()
            return [BaselineRow(**row) for row in rows]

    def target_rows(
        self,
        target: TargetKey,
        span: tuple[datetime, datetime],
        schema: Schema,
        most: int | None = None,
    ) -> pl.DataFrame:
        """Minutes and longer rows of one target that end in (from, to], in order of time.

        ``schema``: the columns wanted, ``end`` among them; ``most``: so many batches at most,
        evenly over the span; None = all. Returns these columns and ``seconds``.
        """
        table, name = minute_batches.c, target.instance
        since, until = span
        own = (table.first_instance <= name, table.last_instance >= name)
        query = select(table.id).where(table.until > since, table.since < until, *own)
        key = {"instance": pl.String, "engine": pl.String}
        frames = [pl.DataFrame(schema={**schema, "seconds": pl.Float64})]
        with self._reading() as connection:
            ids = connection.execute(query.order_by(table.since, table.id)).scalars().all()
            step = 1.0 if most is None else max(1.0, len(ids) / most)
            chosen = [ids[int(at * step)] for at in range(min(len(ids), most or len(ids)))]
            for part in chunks(chosen):
                batches = select(table.seconds, table.frame).where(table.id.in_(part))
                for seconds, frame in connection.execute(batches.order_by(table.id)):
                    rows = decode(frame, {**key, **schema}).filter(
                        pl.col("end").is_between(since, until, closed="right"),
                        instance=name,
                        engine=target.engine,
                    )
                    length = pl.lit(float(seconds)).alias("seconds")
                    frames.append(rows.select(*schema, length))
        rows = pl.concat(frames)
        # a minute written again counts once; a longer row may be in two parts
        is_minute = pl.col("seconds") == MINUTE
        minutes = rows.filter(is_minute).unique("end", keep="last", maintain_order=True)
        return pl.concat([minutes, rows.filter(~is_minute)]).sort("end")

    def incidents_between(
        self, target: TargetKey, pool: str, span: tuple[datetime, datetime], most: int
    ) -> list[Incident]:
        """Those of a target or of its whole pool that fired and were open in a span, newest first.

        Without their pages.
        """
        column, (since, until) = incidents.c, span
        own = (label_text("engine", target.engine), label_text("instance", target.instance))
        mine = and_(*(column.target.contains(one, autoescape=True) for one in own))
        whole = and_(
            column.target.contains(label_text("pool", pool), autoescape=True),
            column.target.not_like('%"instance":%'),
        )
        ended = or_(column.resolved_at.is_(None), column.resolved_at > since)
        query = select(*(one for one in column if one.name != "page")).where(
            column.firing_at.is_not(None), column.started_at < until, ended, or_(mine, whole)
        )
        newest = query.order_by(column.started_at.desc(), column.id).limit(most)
        with self._reading() as connection:
            rows = connection.execute(newest).mappings().all()
        return [stored_incident(row) for row in rows]
