"""The tick's state in the store: a tick writes it, the next process reads it.

Minutes, incidents, baselines and references have their own tables. GPU readings are collected
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import polars as pl

from driftwatch.baselines.in_force import no_releases
from driftwatch.collect.pages import PagesSource
from driftwatch.collect.schema import KEY, TIME, Source, empty_scrapes
from driftwatch.diagnose.evidence_table import RECENT, no_inputs_seen
from driftwatch.documents import Document
from driftwatch.minutes.continuity import MAX_GAP_SECONDS
from driftwatch.model import Fingerprint, Target, TargetKey
from driftwatch.pipeline.detection import detection_from
from driftwatch.pipeline.incidents import just_ended
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.state import HISTORY, State
from driftwatch.pipeline.verifications import RUNS_MEMORY, runs_memory, verifications_from
from driftwatch.store.minute_columns import from_arrow, minute_rows_of, to_arrow
from driftwatch.store.minutes import MINUTE
from driftwatch.store.store import Store

_MEMORY, _RELEASES, _INPUTS = "tick", "tick.releases", "tick.seen"


@dataclass(frozen=True, slots=True)
class _KnownTarget:
    """A target as of a tick."""

    instance: str
    engine: str
    labels: Mapping[str, str]
    source: str | None  # the one that listed it last; None = unknown

    @property
    def key(self) -> TargetKey:
        return TargetKey(self.instance, self.engine)


class _Memory(Document):
    """The part of a tick's state without a table."""

    evaluated_until: datetime | None
    collected_until: dict[str, datetime]
    targets: list[_KnownTarget]
    retired: tuple[TargetKey, ...] = ()  # of 0.17 and before

    @property
    def by_key(self) -> dict[TargetKey, Target]:
        """The targets, without pools."""
        return {one.key: Target(one.key, one.labels) for one in self.targets}

    @property
    def origins(self) -> dict[TargetKey, str]:
        """Target → name of the source that listed it last, if known."""
        return {one.key: one.source for one in self.targets if one.source is not None}


def memory_of(state: State, before: State | None = None) -> dict[str, bytes]:
    """The part of the state without a table, for the next process.

    ``before``: the last stored state.
    """
    until = state.evaluated_until
    memory = _Memory.model_construct(  # the values have these types: skip validation
        evaluated_until=None if until is None else until.astimezone(UTC),
        collected_until={name: at.astimezone(UTC) for name, at in state.collected_until.items()},
        targets=[
            _KnownTarget(*key, target.labels, state.origins.get(key))
            for key, target in sorted(state.targets.items())
        ],
    )
    frames = {_RELEASES: state.releases, _INPUTS: state.inputs_seen}
    runs = state.verifications.runs
    is_stored = before is not None and before.verifications.runs == runs
    return {
        _MEMORY: memory.model_dump_json().encode(),
        **({} if is_stored else runs_memory(runs)),
        **{name: to_arrow(frame) for name, frame in frames.items()},
    }


def state_from(store: Store, now: datetime) -> State:
    """The stored state; a fresh one from an empty store. Its targets have no pools yet."""
    kept = store.memory()
    incidents, baselines = store.open_incidents(), store.baselines()
    if _MEMORY not in kept:
        return State(incidents=incidents, baselines=baselines)
    memory = _Memory.read(kept[_MEMORY])
    frames = {n: from_arrow(kept[n]) for n in (_RELEASES, _INPUTS) if n in kept}
    until, targets = memory.evaluated_until or now, memory.by_key
    rows = store.past(until - HISTORY, until, targets)
    minutes = minute_rows_of(rows.filter(pl.col("seconds") == MINUTE)).select(*RECENT)
    # collect again: scrapes since the last minute, the scrape before it, and GPU readings
    again = until - timedelta(seconds=MAX_GAP_SECONDS)
    return State(
        scrapes=_scraped_last(minutes, again),
        collected_until={name: min(at, again) for name, at in memory.collected_until.items()},
        evaluated_until=memory.evaluated_until,
        minutes=minutes,
        inputs_seen=frames.get(_INPUTS, no_inputs_seen()),
        incidents=incidents,
        ended=just_ended(store.incidents(since=until - HISTORY, pages=False), until),
        targets=targets,
        origins=memory.origins,
        baselines=baselines,
        detection=detection_from(
            store, memory.evaluated_until, None if store.batch is None else list(targets)
        ),
        releases=frames.get(_RELEASES, no_releases()),
        verifications=verifications_from(store, kept.get(RUNS_MEMORY)),
    )


def _scraped_last(minutes: pl.DataFrame, again: datetime) -> pl.DataFrame:
    """The last scrape of targets without a newer one.

    Its time alone tells that a process which began later has restarted.
    """
    newest = minutes.unique(KEY, keep="last", maintain_order=True)
    at = (pl.col("last_scrape_seconds") * 1e6).round().cast(pl.Int64).cast(TIME).alias("time")
    known = newest.select(*KEY, at, ok=pl.lit(True)).filter(pl.col("time") < again)
    return pl.concat([empty_scrapes(), known], how="diagonal")


def _memories(store: Store) -> list[_Memory]:
    return [_Memory.read(one) for one in store.remembered_by_batch(_MEMORY).values()]


def stored_targets(store: Store) -> Mapping[TargetKey, Target]:
    """Targets as of the last tick, of every batch; none in an empty store."""
    targets = {key: one for memory in _memories(store) for key, one in memory.by_key.items()}
    return {key: targets[key] for key in sorted(targets)}


def stored_origins(store: Store) -> Mapping[TargetKey, str]:
    """Target → name of the source that listed it last, if known."""
    return {key: name for memory in _memories(store) for key, name in memory.origins.items()}


def last_collected(store: Store) -> datetime | None:
    """The time up to which scrapes are collected; None in an empty store."""
    times = [at for memory in _memories(store) for at in memory.collected_until.values()]
    return max(times, default=None)


def evaluated_until(store: Store) -> datetime | None:
    """The time up to which every batch is evaluated; None before the first minute."""
    times = [memory.evaluated_until for memory in _memories(store)]
    return min((at for at in times if at is not None), default=None)


# --- reports of servers

_REPORTS = "tick.told"


def with_reports(plan: Plan, sources: Iterable[Source]) -> Plan:
    """The plan with the reports of directly scraped servers; a report is valid until a restart."""
    reported = dict(plan.reported)
    for source in sources:
        if isinstance(source, PagesSource):
            reported |= source.reports()
    return plan if reported == plan.reported else replace(plan, reported=reported)


def reports_memory(plan: Plan) -> dict[str, bytes]:
    """The reports, for commands that scrape no server."""
    reports = {instance: asdict(runs) for instance, runs in plan.reported.items()}
    return {_REPORTS: orjson.dumps(reports, option=orjson.OPT_SORT_KEYS)}


def stored_reports(store: Store) -> Mapping[str, Fingerprint]:
    """Instance → the server's last report."""
    reports: dict[str, Any] = {}
    for stored in store.remembered_by_batch(_REPORTS).values():
        reports |= orjson.loads(stored)
    return {instance: Fingerprint(**groups) for instance, groups in reports.items()}
