"""Addresses of pools and targets, names that are like one, and links into Grafana. Pure."""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime
from urllib.parse import quote, urlencode

from driftwatch.notify.numbers import clean, cut
from driftwatch.web.page import Link

POOL, TARGET = "/pools/{pool:path}", "/targets/{target:path}"
_NEAR, _COMPARED = 5, 1000


def pool_path(name: str) -> str:
    """Where a pool's page is.

    >>> pool_path("prod/llama 8b?")
    '/pools/prod/llama%208b%3F'
    """
    return f"/pools/{quote(name, safe='/:')}"


def target_path(text: str) -> str:
    """Where the page of a target is; ``text``: of its key."""
    return f"/targets/{quote(text, safe='/:')}"


def pool_link(name: str) -> Link:
    """A link that names a pool."""
    return Link(text=cut(clean(name), 80), path=pool_path(name))


def target_link(text: str) -> Link:
    """A link that names a target; ``text``: of its key."""
    return Link(text=cut(clean(text), 80), path=target_path(text))


def near(name: str, names: Sequence[str]) -> tuple[str, ...]:
    """At most five names like one: those that hold it, then the likest.

    ``names``: in order; of over a thousand only the neighbours are compared letter by letter.
    """
    words = name.strip().lower()
    holding = [one for one in names if words and words in one.lower()][:_NEAR]
    first = max(0, bisect_left(names, name) - _COMPARED // 2)
    around = names if len(names) <= _COMPARED else names[first : first + _COMPARED]
    like = difflib.get_close_matches(name, around, n=_NEAR, cutoff=0.5)
    return tuple(dict.fromkeys([*holding, *like, *names[:_NEAR]]))[:_NEAR]


def grafana_link(
    dashboard: str | None, pool: str, since: datetime, until: datetime, instance: str | None = None
) -> str | None:
    """The dashboard of ``deploy/grafana`` over a span, of one pool or server; None without one."""
    if dashboard is None:
        return None
    times = {"from": since, "to": until}
    query = {"var-pool": pool} | ({} if instance is None else {"var-instance": instance})
    query |= {name: str(round(1000 * at.timestamp())) for name, at in times.items()}
    return f"{dashboard}{'&' if '?' in dashboard else '?'}{urlencode(query)}"
