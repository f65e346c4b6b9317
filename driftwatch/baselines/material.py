"""Where baselines come from: minutes of the store or of recordings, with what marks them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import polars as pl

from driftwatch.baselines.rows import baselines_from_store
from driftwatch.baselines.windows import keys_of, what_ran
from driftwatch.collect.gpus import empty_gpus
from driftwatch.collect.schema import KEY
from driftwatch.detect.baselines import Baselines
from driftwatch.detect.proposals import LONGEST, marked
from driftwatch.detect.reference import no_reference
from driftwatch.detect.settings import DetectSettings
from driftwatch.model import Fingerprint, Incident, Target, TargetKey
from driftwatch.pipeline.detection import Detection, detected
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.server_reports import stored_reports
from driftwatch.pipeline.stored_state import newest, stored_targets
from driftwatch.signals.minutes import MINUTE_SCHEMA
from driftwatch.store.store import Store

_JUDGED = {
    "slower_at_equal_load": pl.Boolean,
    "slower_than_pool": pl.Boolean,
    "cache_config": pl.String,
}
_MINUTE, _RECENT = timedelta(minutes=1), timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Material:
    """What baselines can be made from."""

    # target keys → their minutes (:data:`driftwatch.signals.minutes.MINUTE_SCHEMA`) with what
    # detectors said, the page's ``cache_config``, and ``left_out``
    load: Callable[[Sequence[TargetKey]], pl.DataFrame]
    targets: Mapping[TargetKey, Target]  # with their pools
    plan: Plan  # settings, and what the servers said of themselves
    until: datetime | None = None  # end of the newest minute; None where there is none
    gpus: pl.DataFrame = field(default_factory=empty_gpus)  # recent GPU readings
    ran: Mapping[TargetKey, Fingerprint] = field(default_factory=dict)  # what runs there now
    baselines: Baselines = field(default_factory=Baselines)  # in force


def material_of_store(store: Store, plan: Plan) -> Material:
    """What the store has, with the baselines in force and what runs on every target now."""
    stored = proposal_material(store, plan)
    baselines, until = baselines_from_store(store), stored.until
    if until is None:
        return replace(stored, baselines=baselines)
    recent, gpus = store.past(until - _RECENT, until), store.gpus(until - _RECENT, until)
    ran = what_ran(recent, stored.targets, stored.plan, gpus)
    return replace(stored, gpus=gpus, ran=ran, baselines=baselines)


def proposal_material(store: Store, plan: Plan) -> Material:
    """What the store has for proposals alone: minutes are kept as such for two days, which is the
    longest baseline. They are read target by target, so that memory does not grow with the fleet.
    """
    plan = replace(plan, reported=stored_reports(store))
    targets, until = plan.assign(stored_targets(store)), newest(store)
    place = store.place
    if until is None:
        return Material(lambda _: _no_rows(), targets, plan)
    since = until - LONGEST - timedelta(hours=1)
    troubles = _troubles(store.incidents(since=since, limit=100_000, pages=False))

    def load(keys: Sequence[TargetKey]) -> pl.DataFrame:
        with Store.open(place, migrate=False) as again:
            rows = again.past(since, until, keys)
        of_minutes = rows.filter(pl.col("seconds") == 60).select(*MINUTE_SCHEMA, *_JUDGED)
        near = {key.instance for key in keys}
        own = [one for one in troubles if one.target.get("instance") in (None, *near)]
        return marked(_judged(of_minutes), own)

    return Material(load, targets, plan, until)


def _judged(rows: pl.DataFrame) -> pl.DataFrame:
    """Minutes with ``slower_at_equal_load``; without any baseline it is against their own past."""
    if rows.is_empty() or not rows["slower_at_equal_load"].null_count():
        return rows
    first, last = rows["end"].min(), rows["end"].max()
    assert isinstance(first, datetime) and isinstance(last, datetime)  # noqa: S101
    span, alone = (first - _MINUTE, last), DetectSettings(accepts_proposals=True)
    columns, _ = detected(Detection(), rows, span, Baselines(), no_reference(), alone, None)
    verdicts = columns["slower_at_equal_load"]
    return rows.with_columns(slower_at_equal_load=pl.coalesce("slower_at_equal_load", verdicts))


def material_of_replayed(store: Store, plan: Plan) -> Material:
    """What a store has that a recording was replayed into: all of it."""
    targets, reach = plan.assign(stored_targets(store)), store.minutes_reach()
    if reach is None:
        return Material(lambda _: _no_rows(), targets, plan)
    first, last = reach
    troubles = _troubles(store.incidents(limit=100_000, pages=False))
    rows = store.past(first, last).select(*MINUTE_SCHEMA, *_JUDGED)
    done, gpus = marked(rows, troubles), store.gpus(first, last + timedelta(minutes=1))

    def load(keys: Sequence[TargetKey]) -> pl.DataFrame:
        return done.join(keys_of(keys), on=KEY, how="semi", maintain_order="left")

    return Material(load, targets, plan, last, gpus, what_ran(done, targets, plan, gpus))


def _troubles(incidents: Iterable[Incident]) -> list[Incident]:
    """Incidents that paged: what only informs does not spoil a baseline."""
    return [one for one in incidents if one.severity == "page" and one.firing_at is not None]


def _no_rows() -> pl.DataFrame:
    return pl.DataFrame(schema={**MINUTE_SCHEMA, **_JUDGED})
