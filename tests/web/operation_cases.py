"""Incidents of every state with their pages, written to a database as a tick does."""

from __future__ import annotations

from datetime import datetime, timedelta

from made_incidents import of_labels
from page_cases import CASES

from driftwatch.incidents.incident import Incident, Transition
from driftwatch.pipeline.build_page import build_page
from driftwatch.store import Store, TickRecord

HOUR = timedelta(hours=1)


def fired(now: datetime, digit: str, case: str = "cap", **changes: object) -> Incident:
    """A firing incident with the page of a case, since an hour; ``digit``: its id."""
    of_case = CASES[case]
    began = now - HOUR
    target = {"instance": f"gpu-{digit}:8000", "engine": "0", "pool": "rag-8b"}
    of = of_case.incident
    rule = f'{of.rule}{{of="{digit}"}}'
    values = {"rule": rule, "alert": of.alert, "severity": of.severity, "target": target}
    values |= {"started_at": began}
    incident = of_labels(id=digit * 12, at=began, **{**values, **changes})  # type: ignore[arg-type]
    if incident.state == "pending":
        return incident
    page = build_page(of_case.finding, incident, "firing", began)
    return incident.model_copy(update={"page": page})


def commit(
    store: Store,
    now: datetime,
    *incidents: Incident,
) -> None:
    """One tick that has these incidents, and those that are open already."""
    every = {one.id: one for one in (*store.open_incidents().values(), *incidents)}
    tick = TickRecord(
        now - timedelta(minutes=1),
        now,
        incidents=tuple(every.values()),
    )
    store.commit_tick(tick)


def every_state(store: Store, now: datetime) -> None:
    """Write an incident of every state; the first digit of its id says which."""
    began = now - 30 * HOUR
    unusual = {"instance": "10%_b:1", "engine": "1", "pool": 'a"b'}
    commit(
        store,
        now,
        fired(now, "1"),
        fired(now, "2", "budget", silenced_by="f" * 12),
        fired(now, "3", silenced_by="night"),
        fired(now, "4", severity="ticket"),
        fired(now, "5", severity="notice", rule='Drift{signal="a"}', alert="Drift"),
        fired(now, "6", firing_at=None),
        fired(now, "7", started_at=began),
        fired(now, "8", target=unusual),
    )
    store.acknowledge("1" * 12, "Ana <b>", now)
    over = fired(now, "7", resolved_at=now - HOUR, started_at=began)
    open_now = [one for one in store.open_incidents().values() if one.id != over.id]
    store.commit_tick(
        TickRecord(
            now,
            now + timedelta(minutes=1),
            incidents=open_now,
            transitions=[Transition(over, "resolved", now)],
        )
    )
