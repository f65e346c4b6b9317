"""Values and a tick for the store's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta

import polars as pl
from made_incidents import incident_of

from driftwatch.detect.references import Place, Reference
from driftwatch.incidents.delivery import PlannedDelivery
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.store.history import TargetAdvice
from driftwatch.store.store import Store, TickRecord
from driftwatch.verify.verification import Verification

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def committer(store: Store) -> Callable[..., None]:
    """A tick on this store with whatever is given."""

    def tick(
        *incidents: Incident,
        happened: tuple[Transition, ...] = (),
        deliveries: tuple[PlannedDelivery, ...] = (),
        memory: dict[str, bytes] | None = None,
        minutes: pl.DataFrame | None = None,
        references: Sequence[Reference] = (),
        references_gone: Sequence[Place] = (),
        advices: Iterable[TargetAdvice] = (),
        verifications: Iterable[Verification] = (),
    ) -> None:
        store.commit_tick(
            TickRecord(
                incidents=incidents,
                transitions=happened,
                deliveries=deliveries,
                until=NOW + timedelta(minutes=1),
                memory=memory or {},
                minutes=minutes,
                references=references,
                references_gone=references_gone,
                advices=advices,
                verifications=verifications,
            )
        )

    return tick


def prune(store: Store, **before: datetime) -> None:
    """Forget what is older than these times, of nothing else anything."""
    names = ("incidents_before", "minutes_before", "payloads_before")
    store.prune(**{**dict.fromkeys(names, NOW - timedelta(days=1000)), **before})


def pending(digit: str = "a", pool: str | None = None) -> Incident:
    return incident_of(
        digit,
        rule="Alert",
        pool=pool or digit,
        servers=(f"{digit}:8000",),
        at=NOW + timedelta(minutes=1),
        firing=False,
        started_at=NOW,
    )
