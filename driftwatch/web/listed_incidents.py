"""Incidents of a page: filtered, counted and cut by the database."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Select, and_, case, func, or_, select

from driftwatch.model import Incident, TargetKey
from driftwatch.store.database import Database, chunks
from driftwatch.store.incidents import stored_incident
from driftwatch.store.tables import incidents

_COLUMN = incidents.c
# The words of :func:`driftwatch.web.fleet_states.incident_state`, and resolved.
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


class ListedIncidents(Database):
    """Part of the web's store: lists of incidents."""

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
        pages: dict[str, Any] = {}
        with self._reading() as connection:
            for ids in chunks([one.id for one in some]):
                own = query.where(_COLUMN.id.in_(ids), _COLUMN.page.is_not(None))
                pages |= {id_: orjson.loads(page) for id_, page in connection.execute(own)}
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
