"""The store as pages query it. Connections for pages cannot write; a fault of the database fails
one request.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import ColumnElement, and_, case, event, func, or_, select

from driftwatch.database_place import Place
from driftwatch.detect.baselines import Baseline
from driftwatch.documents import to_json
from driftwatch.errors import StoreError
from driftwatch.incidents.incident import Incident
from driftwatch.incidents.silence import silenced_by
from driftwatch.model import Slo, TargetKey
from driftwatch.notify.page import Page
from driftwatch.store.database import (
    chunks,
    is_postgres,
    named_failures,
    open_engine,
    reading,
    require_place,
)
from driftwatch.store.history import baseline_of, in_force
from driftwatch.store.incidents import stored_incident, stored_page
from driftwatch.store.latest import MINUTE_STATES, SERVER_COLUMNS, PoolNow, ServerNow
from driftwatch.store.migrate import check_revision, schema_revision
from driftwatch.store.store import Store
from driftwatch.store.tables import baselines, incidents, latest_pools, latest_servers, reports

if TYPE_CHECKING:
    from sqlite3 import Connection as SqliteConnection

# the longest that a page waits for another process's transaction
BUSY_SECONDS = 2.0

_COLUMN, _SERVER = incidents.c, latest_servers.c
_NAME = _SERVER.instance + "/" + _SERVER.engine
OpenState = Literal["firing", "acknowledged", "silenced"]
# of a server or a pool, worst first: of an open page that names it, else of its newest minute
_OPEN_STATES: tuple[OpenState, ...] = OpenState.__args__  # type: ignore[attr-defined]
STATES: tuple[str, ...] = (*_OPEN_STATES, *MINUTE_STATES)
# servers that open pages name: SQLite takes 32,766 values in a statement
_MOST_NAMED = 15_000
_FIRED = _COLUMN.state.not_in(("pending", "resolved"))
_SEVERITY = {"page": 0, "ticket": 1, "notice": 2}


def _worst_first(silenced: Collection[str]) -> tuple[ColumnElement[Any], ...]:
    """Order: firing before pending before resolved; pages before tickets and notices; those that
    nobody acknowledged or silenced; the newest first. Resolved ones by time alone.
    """
    is_over, is_held = _COLUMN.state == "resolved", _COLUMN.acknowledgement.is_not(None)
    return (
        case({"resolved": 2, "pending": 1}, value=_COLUMN.state, else_=0),
        case((is_over, 0), else_=case(_SEVERITY, value=_COLUMN.severity)),
        case((is_over, 0), (or_(is_held, _COLUMN.id.in_(silenced)), 1), else_=0),
        _COLUMN.started_at.desc(),
        _COLUMN.id,
    )


class WebStore(Store):
    """The store with the queries that only pages need."""

    def pools_now(self, pool: str | None = None) -> list[tuple[PoolNow, str]]:
        """Every pool, or the one of this name, and the JSON of its last 24 h."""
        query = select(latest_pools.c.document, latest_pools.c.trace).order_by(latest_pools.c.pool)
        if pool is not None:
            query = query.where(latest_pools.c.pool == pool)
        return [(PoolNow.read(row["document"]), row["trace"]) for row in self._all(query)]

    def slo_of(self, pool: str) -> Slo | None:
        """Latency targets of a pool as its service has them; None: none is stored."""
        stored = next((now.declared for now, _ in self.pools_now(pool)), None)
        return None if stored is None else Slo(**stored["slo"])

    def newest_minute(self) -> datetime | None:
        """End of the newest minute of any server."""
        at = self._scalar(select(func.max(latest_pools.c.at)))
        return at if isinstance(at, datetime) else None

    def servers(
        self,
        limit: int,
        offset: int,
        *,
        pool: str = "",
        text: str = "",
        state: str = "",
        named: Mapping[TargetKey, Incident],
    ) -> tuple[list[ServerNow], int]:
        """One part of the servers that match, worst first, and how many match. Empty matches any.

        ``text``: stands in the name of server or pool, whatever the case; ``state``: one of STATES;
        ``named``: the open page on each server that one names; these come first.
        """
        of_state: dict[str, list[str]] = {one: [] for one in _OPEN_STATES}
        for key, incident in islice(named.items(), _MOST_NAMED):
            of_state[incident.state_word].append(f"{key.instance}/{key.engine}")
        where: list[ColumnElement[bool]] = [_SERVER.instance.is_not(None)]
        if pool:
            where.append(_SERVER.pool == pool)
        if text:
            names_of = (func.lower(one) for one in (_SERVER.instance, _SERVER.pool))
            where.append(or_(*(one.contains(text.lower(), autoescape=True) for one in names_of)))
        if state in MINUTE_STATES:
            where.append(_SERVER.state == state)
        elif state:
            some = [f"{k.instance}/{k.engine}" for k, one in named.items() if _is_in(one, state)]
            where.append(_NAME.in_(some[:_MOST_NAMED]))
        rank = case({s: n for n, s in enumerate(MINUTE_STATES)}, value=_SERVER.state)
        whens = [(_NAME.in_(of_state[one]), n - 3) for n, one in enumerate(_OPEN_STATES)]
        rank = case(*whens, else_=rank)
        query = select(*SERVER_COLUMNS).where(*where).limit(limit).offset(offset)
        least = _SERVER.in_target.nulls_last()
        query = query.order_by(rank, least, _SERVER.pool, _SERVER.instance, _SERVER.engine)
        number = self._scalar(select(func.count()).select_from(latest_servers).where(*where))
        return [ServerNow(**row) for row in self._all(query)], int(number)

    def server(self, text: str) -> ServerNow | None:
        """The server whose key has this text; None: no server has."""
        query = select(*SERVER_COLUMNS).where(_NAME.in_((text, f"{text}/0")))
        found = (ServerNow(**row) for row in self._all(query))
        return next((one for one in found if one.key.text == text), None)

    def listed_incidents(
        self,
        limit: int,
        offset: int,
        *,
        now: datetime,
        opened: Sequence[Incident],
        state: str = "",
        text: str = "",
    ) -> tuple[list[Incident], int]:
        """One part of the incidents that match, with their pages, and how many match; open ones
        first, within each state the newest; empty matches any.

        ``opened``: what :meth:`open_now` returns; ``state``: an ``Incident.state_word``, or open
        (fired, not over); ``text``: each word stands in its id, alert or labels.
        """
        where: list[ColumnElement[bool]] = [_COLUMN.id.is_not(None), *map(_has, text.split())]
        if state == "open":
            where.append(_FIRED)
        elif state in _OPEN_STATES:
            named = [one.id for one in opened if _is_in(one, state)]
            where.append(_COLUMN.id.in_(named[:_MOST_NAMED]))
        elif state:
            where.append(_COLUMN.state == state)
        silenced = [one.id for one in opened if one.silenced_by][:_MOST_NAMED]
        query = select(incidents).where(*where).order_by(*_worst_first(silenced))
        query = query.limit(limit).offset(offset)
        number = self._scalar(select(func.count()).where(*where))
        return self.with_silences(map(stored_incident, self._all(query)), now), int(number)

    def open_now(self, now: datetime, pool: str = "") -> list[Incident]:
        """Open incidents of a pool, or of all, worst first, without their pages."""
        where = [_COLUMN.pool == pool] if pool else []
        every = self._without_pages(now, _COLUMN.state != "resolved", *where)
        # a stable sort: only what is silenced moves
        return sorted(every, key=lambda one: (not one.is_firing, _SEVERITY[one.severity],
                                              one.state_word == "silenced"))  # fmt: skip

    def incidents_between(
        self, pool: str, span: tuple[datetime, datetime], now: datetime
    ) -> list[Incident]:
        """Incidents of a pool that were firing in a span, open ones first, without their pages."""
        began = (_COLUMN.firing_at.is_not(None), _COLUMN.started_at < span[1])
        ended = or_(_COLUMN.resolved_at.is_(None), _COLUMN.resolved_at > span[0])
        return self._without_pages(now, _COLUMN.pool == pool, *began, ended, most=50)

    def _without_pages(
        self, now: datetime, *where: ColumnElement[bool], most: int | None = None
    ) -> list[Incident]:
        columns = (one for one in _COLUMN if one is not _COLUMN.page)
        query = select(*columns).where(*where).order_by(*_worst_first(())).limit(most)
        return self.with_silences(map(stored_incident, self._all(query)), now)

    def with_silences(self, some: Iterable[Incident], now: datetime) -> list[Incident]:
        """The same incidents; a silence that matches now silences them before the next tick."""
        active = self.silences(now)
        return [
            one.model_copy(update={"silenced_by": silenced_by(one, active, now)})
            if one.is_firing
            else one
            for one in some
        ]

    def with_pages(self, some: Iterable[Incident]) -> list[Incident]:
        """The same incidents with their pages, where they have one."""
        every, pages = list(some), dict[str, Page | None]()
        query = select(_COLUMN.id, _COLUMN.page).where(_COLUMN.page.is_not(None))
        for ids in chunks([one.id for one in every]):
            for row in self._all(query.where(_COLUMN.id.in_(ids))):
                pages[row["id"]] = stored_page(row["page"])
        return [one.model_copy(update={"page": pages.get(one.id)}) for one in every]

    def pool_baselines(self, pool: str) -> list[Baseline]:
        """Baselines in force of a pool and its targets: the pool's own first, then the newest."""
        query = in_force().where(baselines.c.pool == pool).order_by(None)
        newest = (baselines.c.scope, baselines.c.accepted_at.desc(), baselines.c.id)
        return list(map(baseline_of, self._all(query.order_by(*newest).limit(200))))

    def baselines_naming(self, target: TargetKey, pool: str) -> list[Baseline]:
        """Baselines in force of a target and of its pool: two at most."""
        own = and_(baselines.c.instance == target.instance, baselines.c.engine == target.engine)
        whole = and_(baselines.c.scope == "pool", baselines.c.pool == pool)
        return list(map(baseline_of, self._all(in_force().where(or_(own, whole)))))

    def kept_reports(self, limit: int, offset: int) -> tuple[list[tuple[str, datetime]], int]:
        """One part of (week, when its report was made), the newest first; how many there are."""
        query = select(reports.c.week, reports.c.made_at).order_by(reports.c.week.desc())
        rows = self._all(query.limit(limit).offset(offset))
        number = self._scalar(select(func.count()).select_from(reports))
        return [(row["week"], row["made_at"]) for row in rows], int(number)


def _is_in(incident: Incident, state: str) -> bool:
    """Whether an incident is in a state; one that is acknowledged may be silenced, too."""
    return incident.state_word == state or (state == "silenced" and bool(incident.silenced_by))


def _has(word: str) -> ColumnElement[Any]:
    """The word stands in id, alert, rule or pool, or begins a server's name."""
    lower = word.lower()
    columns = (_COLUMN.id, _COLUMN.alert, _COLUMN.rule, _COLUMN.pool)
    texts = [func.lower(one).contains(lower, autoescape=True) for one in columns]
    begins = f'"instance": {to_json(lower.rpartition("/")[0] or lower)}'.removesuffix('"')
    texts.append(func.lower(_COLUMN.document).contains(begins, autoescape=True))
    return or_(*texts)


class WebDatabase:
    """One database; it opens with the first request, and again after a failure."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._opening = threading.Lock()
        self._stores: dict[bool, WebStore] = {}

    def store(self, *, writes: bool) -> WebStore:
        """The store for forms, or the one for pages, whose connections refuse to write.

        Raises StoreError: missing, of another version, locked, or it does not serve.
        """
        with self._opening:
            if writes not in self._stores:
                self._stores[writes] = _opened(self.place, writes=writes)
            return self._stores[writes]

    def close(self) -> None:
        """Close it; the next request opens it anew."""
        with self._opening:
            while self._stores:
                self._stores.popitem()[1].close()


def _opened(place: Place, *, writes: bool) -> WebStore:
    require_place(place, file_too=True)
    engine = open_engine(place, busy_seconds=BUSY_SECONDS)
    if not writes and not is_postgres(engine):

        @event.listens_for(engine, "connect")
        def _only_read(connection: SqliteConnection, _record: object) -> None:
            connection.execute("PRAGMA query_only = ON").close()

    try:
        with named_failures(place), reading(engine) as connection:
            check_revision(schema_revision(connection, place), place)
    except StoreError:
        engine.dispose()
        raise
    return WebStore(engine, place)
