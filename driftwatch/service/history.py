"""Recorded history in a store of its own, as the service would have written it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import polars as pl

from driftwatch.collect.schema import Source
from driftwatch.detect.baselines import Baselines
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.minutes import PastMinutes
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.state import Outcome
from driftwatch.report.material import Material, Price
from driftwatch.report.week import Week
from driftwatch.service.replay import replay
from driftwatch.service.report_material import gather
from driftwatch.service.requested_verifications import asked_now
from driftwatch.service.stored_verifications import verification_rows
from driftwatch.signals.minutes import MINUTE_SCHEMA
from driftwatch.store.minute_columns import STORED_SCHEMA
from driftwatch.store.store import Store
from driftwatch.verify.verification import VERIFICATION, Verification


def history_of(
    sources: Sequence[Source],
    span: tuple[datetime, datetime],
    plan: Plan,
    week: Week,
    *,
    baselines: Baselines | None = None,
    price: Price | None = None,
    note: Callable[[Outcome], None] | None = None,
) -> Material:
    """Everything of one week of recordings; what came before the week teaches the detectors.

    Args:
        span: from, to; may begin before the week.

    Raises:
        NoVerdict: no minute of the week could be evaluated.
    """
    with Store.in_memory() as store:
        keep_history(store, sources, span, plan, baselines=baselines, note=note)
        return gather(store, plan, week, until=span[1], price=price)


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """What a recording holds."""

    # :data:`driftwatch.store.minute_columns.STORED_SCHEMA`, every minute of every target
    rows: pl.DataFrame
    targets: Mapping[TargetKey, Target]
    verifications: tuple[Verification, ...] = ()

    @property
    def past(self) -> PastMinutes:
        """Its minutes."""
        return PastMinutes(self.rows.select(*MINUTE_SCHEMA))


def recorded(
    sources: Sequence[Source],
    span: tuple[datetime, datetime],
    plan: Plan,
    *,
    advise: bool = True,
    baselines: Baselines | None = None,
) -> Recorded:
    """A recording through the whole pipeline, with the verifications of the changes in it."""
    plan = plan if advise else replace(plan, rules=())
    around = span[0] - timedelta(days=1), span[1] + timedelta(days=1)
    with Store.in_memory() as store:
        targets = keep_history(store, sources, span, plan, baselines=baselines)
        verifications = store.verifications(*around)
        return Recorded(
            store.past(*around).select(*STORED_SCHEMA),
            targets,
            tuple(VERIFICATION.value(one.document) for one in verifications),
        )


def keep_history(
    store: Store,
    sources: Sequence[Source],
    span: tuple[datetime, datetime],
    plan: Plan,
    *,
    baselines: Baselines | None = None,
    note: Callable[[Outcome], None] | None = None,
) -> dict[TargetKey, Target]:
    """Replay a span into a store, as the service would have written it; every target of it."""
    end = span[0]
    targets: dict[TargetKey, Target] = {}
    for outcome in replay(sources, span, plan, store=store, baselines=baselines):
        if note is not None:
            note(outcome)
        targets |= outcome.targets
        last = outcome.rows["end"].max() if len(outcome.rows) else None
        end = max(end, last) if isinstance(last, datetime) else end
    _judge_open(store, plan, targets, end)
    return targets


def _judge_open(
    store: Store, plan: Plan, targets: Mapping[TargetKey, Target], end: datetime
) -> None:
    """No minute follows: what is open gets the verdict that all there is allows, or none."""
    judged = []
    for stored in store.open_verifications():
        target = targets[TargetKey(stored.instance, stored.engine)]
        opened = VERIFICATION.value(stored.document)
        judged.append(asked_now(opened, PastMinutes(store=store), end, plan.slo_of(target)))
    for one in verification_rows(judged):
        store.write_verification(one)
