"""Silences in the database."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection, insert, select, update

from driftwatch.errors import UsageError
from driftwatch.notify.silence import Matcher, Silence
from driftwatch.store.rows import silence_of, silence_row
from driftwatch.store.tables import silences


def add(
    connection: Connection,
    matchers: Sequence[Matcher],
    *,
    until: datetime,
    by: str,
    at: datetime,
    comment: str,
) -> Silence:
    """Add a silence; the same one asked for twice at one time is one.

    Raises:
        UsageError: it would end before it begins.
    """
    if until <= at:
        raise UsageError("a silence has to end after it begins")
    # not from a random source: a replayed command gives the same silence
    said = "\n".join(
        [*(m.text for m in matchers), until.isoformat(), by, at.isoformat(), comment]
    ).encode()
    silence = Silence(
        id=hashlib.sha256(said).hexdigest()[:12],
        matchers=tuple(matchers),
        until=until,
        created_by=by,
        created_at=at,
        comment=comment,
    )
    known = connection.execute(select(silences.c.id).where(silences.c.id == silence.id)).first()
    if known is None:
        connection.execute(insert(silences), [silence_row(silence)])
    return silence


def read(connection: Connection, at: datetime | None) -> list[Silence]:
    """Silences that hold at a time (every one for None), the one that ends first first."""
    query = select(silences).order_by(silences.c.until, silences.c.id)
    found = [silence_of(row) for row in connection.execute(query).mappings()]
    return [silence for silence in found if at is None or silence.active(at)]


def expire(connection: Connection, id_prefix: str, at: datetime) -> Silence:
    """End a silence now.

    Raises:
        UsageError: no such silence, more than one, or it is over.
    """
    prefix = id_prefix.strip().lower()
    listed = "driftwatch silence --list shows them"
    if re.fullmatch(r"[0-9a-f]{1,12}", prefix) is None:
        raise UsageError(f"{id_prefix!r} is not the id of a silence", help_text=listed)
    query = select(silences).where(silences.c.id.startswith(prefix, autoescape=True))
    rows = connection.execute(query.order_by(silences.c.id).limit(6)).mappings().all()
    if not rows:
        raise UsageError(f"no silence {prefix!r}", help_text=listed)
    if len(rows) > 1:
        ids = ", ".join(row["id"] for row in rows[:5])
        raise UsageError(f"{prefix!r} fits more than one silence: {ids}", help_text=listed)
    silence = silence_of(rows[0])
    if not silence.active(at):
        raise UsageError(f"silence {silence.id} is over already")
    connection.execute(update(silences).where(silences.c.id == silence.id).values(expired_at=at))
    return replace(silence, expired_at=at)
