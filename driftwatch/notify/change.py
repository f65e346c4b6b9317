"""A change of servers as JSON: which setting or release is another one, where, since when. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from driftwatch.model import TargetKey
from driftwatch.notify.numbers import clean, cut, moment, utc_text
from driftwatch.notify.page import web_address
from driftwatch.verify.changes import text_of
from driftwatch.verify.verification import Change, Verification

SCHEMA_VERSION = 1
SUMMARY_LIMIT = 300


@dataclass(frozen=True, slots=True)
class ServerChange:
    """What became different on one server."""

    target: TargetKey
    pool: str
    change: Change
    incident_id: str | None = None  # whose page had advised it; None = none


def server_change(now: Verification, before: Change | None) -> ServerChange | None:
    """The change that a verification is about; of one that grew what is new; None = nothing is.

    ``before``: the change of the target's verification before this minute, None = it had none.
    """
    change = now.change
    if before is not None and before.at == change.at:
        # by name: what of an inferred setting is known grows from minute to minute
        new = {name: values for name, values in change.what.items() if name not in before.what}
        change = replace(change, what=new)
    if not change.what:
        return None
    return ServerChange(TargetKey(now.instance, now.engine), now.pool, change, now.incident_id)


def change_documents(
    changes: Iterable[ServerChange], external_url: str | None = None
) -> dict[str, dict[str, Any]]:
    """Change id → its document; servers of a pool that changed alike in one tick are one change."""
    alike: dict[tuple[Any, ...], list[ServerChange]] = {}
    for one in sorted(changes, key=lambda one: (one.pool, one.target)):
        what = tuple(sorted(one.change.what.items()))
        alike.setdefault((one.pool, one.change.kind, what), []).append(one)
    return {change_id(same): _document(same, external_url) for same in alike.values()}


def change_id(changes: Sequence[ServerChange]) -> str:
    """The same twelve hex digits for the same change, whenever it is looked at."""
    parts = [
        "\n".join([*one.target, utc_text(one.change.at), text_of(one.change)]) for one in changes
    ]
    return hashlib.sha256("\n\n".join(parts).encode()).hexdigest()[:12]


def _document(changes: Sequence[ServerChange], external_url: str | None) -> dict[str, Any]:
    first = changes[0]
    what = {n: {"from": one, "to": other} for n, (one, other) in first.change.what.items()}
    advised_by = sorted({one.incident_id for one in changes if one.incident_id is not None})
    at, targets = min(one.change.at for one in changes), [one.target.text for one in changes]
    lines = [
        {"label": "Since", "text": moment(at, None)},
        {"label": "Servers" if len(targets) > 1 else "Server", "text": clean(", ".join(targets))},
    ]
    summary = cut(f"{_where(changes)}: {clean(text_of(first.change))}", SUMMARY_LIMIT)
    if advised_by:
        pages = "page" if len(advised_by) == 1 else "pages"
        lines.append({"label": "Advised", "text": f"by the {pages} of {', '.join(advised_by)}"})
    return {
        "schema_version": SCHEMA_VERSION,
        "event": "change",
        "test": False,
        "title": f"CHANGE {summary}",
        "summary": summary,
        "lines": lines,
        "at": utc_text(at),
        "pool": first.pool,
        "targets": targets,
        "kind": first.change.kind,
        "what": what,
        "incidents": advised_by,
        "links": {"driftwatch": web_address(external_url, _path(changes))},
    }


def _path(changes: Sequence[ServerChange]) -> str:
    """The page of the server; of several, of their pool."""
    first = changes[0]
    folder, name = ("pools", first.pool) if len(changes) > 1 else ("targets", first.target.text)
    return f"/{folder}/{quote(name, safe='/:')}"


def _where(changes: Sequence[ServerChange]) -> str:
    """``rag-8b, 3 servers`` or the server."""
    first = changes[0]
    if len(changes) > 1:
        return f"{clean(first.pool)}, {len(changes)} servers"
    name = clean(first.target.text)
    return name if first.pool == "default" else f"{clean(first.pool)} {name}"
