"""What pages ask of the store, and connections of the web: reading can write nothing; what is wrong
with the database is an error of the one request.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl
from sqlalchemy import ColumnElement, Select, and_, case, event, func, or_, select

from driftwatch.database_place import Place
from driftwatch.detect.baselines import Baseline
from driftwatch.errors import StoreError
from driftwatch.incidents.incident import Incident
from driftwatch.model import TargetKey
from driftwatch.notify.page import Page
from driftwatch.store.baselines import baseline_of, in_force
from driftwatch.store.database import (
    chunks,
    is_postgres,
    named_failures,
    open_engine,
    reading,
    require_place,
)
from driftwatch.store.frames import Schema, decode
from driftwatch.store.incidents import stored_incident, stored_page
from driftwatch.store.migrate import check_revision, schema_revision, written_by
from driftwatch.store.minutes import MINUTE
from driftwatch.store.store import Store
from driftwatch.store.tables import incidents, minute_batches, pins, reports

if TYPE_CHECKING:
    from sqlite3 import Connection as SqliteConnection

# who waits for a page waits no longer than this for another's transaction
BUSY_SECONDS = 2.0
_MOST_WEEKS = 1000

# a batch of minutes and its end: the same ones have the same rows
Batch = tuple[int, datetime]

_COLUMN = incidents.c
# The words of :func:`driftwatch.web.fleet.incident_state`, and resolved.
STATE = case(
    (_COLUMN.state != "firing", _COLUMN.state),
    (_COLUMN.severity != "page", _COLUMN.severity),
    (_COLUMN.acknowledged_at.is_not(None), "taken"),
    (_COLUMN.silenced_by.is_not(None), "silenced"),
    else_="firing",
)
_OPEN_FIRST = case(
    {"firing": 0, "silenced": 1, "taken": 2, "ticket": 3, "notice": 4, "pending": 5},
    value=STATE,
    else_=6,
)
_MOST_ALERTS = 200


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which incidents; empty = any."""

    state: str = ""  # a word of STATE, or open
    severity: str = ""
    alert: str = ""
    rule: str = ""
    pool: str = ""
    text: str = ""  # each word stands in its id, alert or labels, whatever the case


class WebStore(Store):
    """The store with what only pages ask of it: bounded lists, counts, the newest minutes."""

    def newest_minutes(
        self, length: timedelta, schema: Schema, decoded: Mapping[Batch, pl.DataFrame]
    ) -> dict[Batch, pl.DataFrame]:
        """The minutes of the last ``length`` before the newest one, batch by batch.

        ``schema``: the columns wanted; ``decoded``: batches that are read already.
        """
        table = minute_batches.c
        minutes = table.seconds == MINUTE
        with self._reading() as connection:
            newest = connection.execute(select(func.max(table.until)).where(minutes)).scalar()
            if newest is None:
                return {}
            since = newest.astimezone(UTC) - length
            query = select(table.id, table.until).where(minutes, table.until > since)
            frames = {}
            for id_, until in connection.execute(query.order_by(table.id)).all():
                key = id_, until.astimezone(UTC)
                frame = decoded.get(key)
                if frame is None:
                    one = connection.execute(select(table.frame).where(table.id == id_))
                    frame = decode(one.scalar_one(), schema).filter(pl.col("end") > since)
                frames[key] = frame
        return frames

    def listed_incidents(
        self, wanted: Wanted, limit: int, offset: int
    ) -> tuple[list[Incident], int]:
        """One part of those that are wanted, with their pages, and how many they are; open ones
        first, within each state the newest.
        """
        where = and_(*_conditions(wanted))
        order = (_OPEN_FIRST, _COLUMN.started_at.desc(), _COLUMN.id)
        query = select(incidents).where(where).order_by(*order).limit(limit).offset(offset)
        with self._reading() as connection:
            number = connection.execute(select(func.count()).where(where)).scalar_one()
            rows = connection.execute(query).mappings().all()
        return [stored_incident(row) for row in rows], number

    def open_now(self) -> list[Incident]:
        """Open incidents by key. Of one server's, which may be many, the page is left out."""
        is_wide = _COLUMN.target.not_like('%"instance":%')
        columns = [one for one in _COLUMN if one is not _COLUMN.page]
        page = case((is_wide, _COLUMN.page), else_=None).label("page")
        query = select(*columns, page).where(_COLUMN.state != "resolved").order_by(_COLUMN.key)
        with self._reading() as connection:
            return [stored_incident(row) for row in connection.execute(query).mappings()]

    def with_pages(self, some: Sequence[Incident]) -> list[Incident]:
        """The same incidents with their pages, where they have one."""
        query = select(_COLUMN.id, _COLUMN.page)
        pages: dict[str, Page | None] = {}
        with self._reading() as connection:
            for ids in chunks([one.id for one in some]):
                own = query.where(_COLUMN.id.in_(ids), _COLUMN.page.is_not(None))
                pages |= {id_: stored_page(page) for id_, page in connection.execute(own)}
        return [replace(one, page=pages.get(one.id)) for one in some]

    def open_incident(self, key: str) -> Incident | None:
        """The open incident of a key, without its page; None: there is none."""
        query = _without_page().where(_COLUMN.key == key, _COLUMN.state != "resolved")
        with self._reading() as connection:
            row = connection.execute(query).mappings().one_or_none()
        return None if row is None else stored_incident(row)

    def open_members(self, key: str, most: int) -> list[Incident]:
        """Open incidents that the one of a key speaks for, by key and without their pages."""
        query = _without_page().where(_COLUMN.part_of == key, _COLUMN.state != "resolved")
        with self._reading() as connection:
            rows = connection.execute(query.order_by(_COLUMN.key).limit(most)).mappings().all()
        return [stored_incident(row) for row in rows]

    def alerts_of_incidents(self) -> list[str]:
        """Names of the alerts that any incident has, in order; at most 200."""
        query = select(_COLUMN.alert).distinct().order_by(_COLUMN.alert).limit(_MOST_ALERTS)
        with self._reading() as connection:
            return list(connection.execute(query).scalars())

    def pool_baselines(self, pool: str, most: int) -> list[Baseline]:
        """Those in force of a pool and its targets: the pool's own first, then the newest."""
        query = in_force().where(pins.c.pool == pool).order_by(None)
        newest = (pins.c.scope, pins.c.accepted_at.desc(), pins.c.id)
        return list(map(baseline_of, self._all(query.order_by(*newest).limit(most))))

    def baselines_naming(self, target: TargetKey, pool: str) -> list[Baseline]:
        """Those in force of a target and of its pool: two at most."""
        own = and_(pins.c.instance == target.instance, pins.c.engine == target.engine)
        whole = and_(pins.c.scope == "pool", pins.c.pool == pool)
        return list(map(baseline_of, self._all(in_force().where(or_(own, whole)))))

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

    def kept_reports(self) -> list[tuple[str, datetime]]:
        """(week, when its report was made), the newest week first; at most 1,000."""
        query = select(reports.c.week, reports.c.made_at).order_by(reports.c.week.desc())
        with self._reading() as connection:
            return [(row[0], row[1]) for row in connection.execute(query.limit(_MOST_WEEKS))]


def _without_page() -> Select[Any]:
    return select(*(one for one in _COLUMN if one is not _COLUMN.page))


def _conditions(wanted: Wanted) -> Sequence[ColumnElement[Any]]:
    conditions: list[ColumnElement[Any]] = [_COLUMN.id.is_not(None)]
    if wanted.state == "open":
        conditions.append(_COLUMN.state != "resolved")
    elif wanted.state == "resolved":
        conditions.append(_COLUMN.state == "resolved")
    elif wanted.state:
        conditions += [_COLUMN.state != "resolved", STATE.in_([wanted.state])]
    for column, value in (
        (_COLUMN.severity, wanted.severity),
        (_COLUMN.alert, wanted.alert),
        (_COLUMN.rule, wanted.rule),
    ):
        if value:
            conditions.append(column == value)
    if wanted.pool:
        conditions.append(_COLUMN.target.contains(label_text("pool", wanted.pool), autoescape=True))
    return [*conditions, *(_has(word) for word in wanted.text.split())]


def label_text(name: str, value: str) -> str:
    """How a label stands in the JSON of a target."""
    return json.dumps({name: value}, ensure_ascii=False)[1:-1]


def _has(word: str) -> ColumnElement[Any]:
    """A word anywhere; of a target as people read it, host:8000/1."""
    instance, _, engine = word.rpartition("/")
    lower = word.lower()
    columns = [func.lower(one) for one in (_COLUMN.id, _COLUMN.alert, _COLUMN.rule)]
    texts = [one.contains(lower, autoescape=True) for one in columns]
    labels = func.lower(_COLUMN.target)
    texts.append(labels.contains(json.dumps(lower, ensure_ascii=False)[1:-1], autoescape=True))
    if instance and TargetKey(instance, engine).text == word:
        parts = [label_text("engine", engine), label_text("instance", instance)]
        texts.append(and_(*(labels.contains(one.lower(), autoescape=True) for one in parts)))
    return or_(*texts)


class WebDatabase:
    """One database, opened when it is first needed and again after it failed."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._opening = threading.Lock()
        self._stores: dict[bool, WebStore] = {}

    def reader(self) -> WebStore:
        """A store whose connections refuse to write.

        Raises StoreError: missing, of another version, locked, or it does not serve.
        """
        return self._open(writes=False)

    def writer(self) -> WebStore:
        """A store for what people do; errors as of :meth:`reader`."""
        return self._open(writes=True)

    def failed(self) -> None:
        """Open anew with the next request: the database may have been replaced or upgraded."""
        with self._opening:
            for store in self._stores.values():
                store.close()
            self._stores = {}

    close = failed

    def _open(self, *, writes: bool) -> WebStore:
        with self._opening:
            if writes not in self._stores:
                self._stores[writes] = _opened(self.place, writes=writes)
            return self._stores[writes]


def _opened(place: Place, *, writes: bool) -> WebStore:
    require_place(place, file_too=True)
    engine = open_engine(place, busy_seconds=BUSY_SECONDS)
    if not writes and not is_postgres(engine):

        @event.listens_for(engine, "connect")
        def _only_read(connection: SqliteConnection, _record: object) -> None:
            connection.execute("PRAGMA query_only = ON").close()

    try:
        with named_failures(place), reading(engine) as connection:
            check_revision(schema_revision(connection, place), place, written_by(connection))
    except StoreError:
        engine.dispose()
        raise
    return WebStore(engine, place)
