"""What is to be sent: the planner's inputs from the store, its messages' texts, one commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import structlog

from driftwatch.incidents.follow_up import sent_page
from driftwatch.incidents.incident import Incident, Transition
from driftwatch.incidents.planner import MessageAbout, plan_deliveries
from driftwatch.incidents.planner import Plan as DeliveryPlan
from driftwatch.notify.page import Acknowledgement
from driftwatch.pipeline.plan import Plan
from driftwatch.receivers.registry import Receiver, without_ignored
from driftwatch.settings.receivers import BY_LABELS
from driftwatch.store.database import repeated_after_conflict
from driftwatch.store.store import Store, TickRecord


@repeated_after_conflict
def commit_planned(
    store: Store,
    configured: Plan,
    receivers: Sequence[Receiver],
    tick: TickRecord,
    before: Mapping[str, Incident],
    after: Mapping[str, Incident],
    happened: Sequence[Transition] = (),
) -> Mapping[str, Incident]:
    """Plan what is to be sent now, and commit it with a tick; other batches plan before or after.

    ``before``, ``after``: key → open incident before and after the tick; acknowledgements are read
    from the store, where people write them; ``happened``: each incident with its page.
    Returns the open incidents as committed.
    """
    with store.one_transaction():
        plan = _planned(store, configured, receivers, tick, after, happened)
        store.commit_tick(
            replace(
                tick,
                incidents=None
                if tick.incidents is None
                else _without_stored_pages(plan.open_incidents, before),
                transitions=plan.transitions,
                deliveries=without_ignored((*plan.deliveries, *tick.deliveries), receivers),
                by_labels=[one.name for one in receivers if one.form in BY_LABELS],
                planned_actions=plan.planned_actions,
            )
        )
    return plan.open_incidents


@repeated_after_conflict
def plan_actions(
    store: Store, configured: Plan, receivers: Sequence[Receiver], now: datetime
) -> bool:
    """Tell receivers what people did, between two ticks; whether there was anything.

    ``store``: whole. Incidents stay as they are: only a tick writes them.
    """
    if not store.unplanned_actions():
        return False
    with store.one_transaction():
        every = store.open_incidents()
        tick = TickRecord(now, now, incidents=None)
        commit_planned(store, configured, receivers, tick, every, every)
    return True


def _planned(
    store: Store,
    configured: Plan,
    receivers: Sequence[Receiver],
    tick: TickRecord,
    after: Mapping[str, Incident],
    happened: Sequence[Transition],
) -> DeliveryPlan:
    now = tick.until
    acknowledged = store.acknowledgements()
    return plan_deliveries(
        [replace(t, incident=_acknowledged(t.incident, acknowledged)) for t in happened],
        configured.routes_to(one.subscription for one in receivers),
        [one for one in store.silences() if one.ends_at > now],
        now,
        open_incidents={key: _acknowledged(one, acknowledged) for key, one in after.items()},
        records=store.outbox_records(also={t.incident.id for t in happened}),
        # they may be of other batches' incidents: receivers hear of them between ticks
        actions=store.unplanned_actions() if store.batch is None else (),
        render=_render,
    )


def _render(incident: Incident, about: MessageAbout) -> Any:
    """What is sent. A page that cannot be made goes out as it was first made: it delays nothing."""
    try:
        return sent_page(incident, about)
    except Exception as error:  # noqa: BLE001 - see above
        structlog.get_logger().error(
            "page sent as first made",
            id=incident.id,
            about=about.event,
            reason=f"{type(error).__name__}: {error}",
        )
        return incident.page


def _without_stored_pages(
    incidents: Mapping[str, Incident], before: Mapping[str, Incident]
) -> list[Incident]:
    """The incidents to write: a page that is stored stays where the tick made none."""
    return [
        one.model_copy(update={"page": None})
        if key in before and (before[key].id, before[key].page) == (one.id, one.page)
        else one
        for key, one in incidents.items()
    ]


def _acknowledged(incident: Incident, by: Mapping[str, Acknowledgement]) -> Incident:
    return incident.model_copy(update={"acknowledgement": by.get(incident.id)})
