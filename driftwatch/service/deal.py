"""Pools are dealt to batches: at the first start, and anew where the configured number changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime

import orjson
import polars as pl
import structlog

from driftwatch.collect.schema import KEY
from driftwatch.model import TargetKey
from driftwatch.pipeline.departures import Departures
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.server_reports import MEMORY as REPORTS
from driftwatch.pipeline.state import State
from driftwatch.pipeline.stored_state import DOCUMENT, memory_of, remembered
from driftwatch.service.stored_verifications import MEMORY as VERIFYING
from driftwatch.service.stored_verifications import merged_memory, part_of_memory
from driftwatch.store.progress import batch_of
from driftwatch.store.store import Store


def deal(store: Store, of: int, plan: Plan) -> bool:
    """Have pools dealt to so many batches; True: they were dealt to another number of them.

    Everything goes on from what is stored. Batches that were not equally far go on from the one
    that was furthest: no minute is judged twice.
    """
    with store.one_transaction():
        there = store.batches()
        if [(one.number, one.of) for one in there] == [(number, of) for number in range(of)]:
            return False
        memories = stored_memories(store)
        states = [remembered(memory) for memory in memories if DOCUMENT in memory]
        state = merged(states)
        numbers = {
            key: batch_of(plan.pool_of(target).name, of) for key, target in state.targets.items()
        }
        verifying = merged_memory(memory[VERIFYING] for memory in memories if VERIFYING in memory)
        reports = [orjson.loads(memory[REPORTS]) for memory in memories if REPORTS in memory]
        parts: dict[int, dict[str, bytes]] = {}
        for number in range(of):
            own = {key for key, its in numbers.items() if its == number}
            parts[number] = memory_of(part(state, own)) if states else {}
            if verifying is not None:
                parts[number][VERIFYING] = part_of_memory(verifying, own)
        if reports:
            every = {name: told for one in reports for name, told in one.items()}
            parts[0][REPORTS] = orjson.dumps(every, option=orjson.OPT_SORT_KEYS)
        incidents = {
            one.id: batch_of(one.target.get("pool", ""), of)
            for one in store.open_incidents().values()
        }
        store.deal(parts, incidents, state.evaluated_until)
    if there:
        structlog.get_logger().warning(
            "pools are dealt anew", batches=of, before=len(there), targets=len(state.targets)
        )
    return bool(there)


def stored_memories(store: Store) -> list[Mapping[str, bytes]]:
    """What each batch left, whatever number of them there was."""
    there = store.batches()
    if len(there) > 1:
        parts = [store.of_batch(one.number, len(there)).memory() for one in there]
        return [part for part in parts if part]
    whole = store.memory()
    return [whole] if whole else []


def merged(states: Collection[State]) -> State:
    """The state of several batches as that of one; without any a fresh one."""
    if not states:
        return State()
    sources = {name for state in states for name in state.collected_until}
    return State(
        evaluated_until=_furthest(states),
        collected_until={
            name: min(s.collected_until[name] for s in states if name in s.collected_until)
            for name in sorted(sources)
        },
        targets={key: t for state in states for key, t in state.targets.items()},
        departures=Departures(
            origins={key: o for state in states for key, o in state.departures.origins.items()},
            retired=frozenset[TargetKey]().union(*(s.departures.retired for s in states)),
        ),
        inputs_seen=pl.concat(state.inputs_seen for state in states),
        releases=pl.concat(state.releases for state in states),
        looks=pl.concat(state.looks for state in states).unique(maintain_order=True),
    )


def part(state: State, own: Collection[TargetKey]) -> State:
    """What a state remembers of some targets."""
    keys = pl.DataFrame(sorted(own), dict.fromkeys(KEY, pl.String), orient="row")

    def theirs(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.join(keys, on=KEY, how="semi", maintain_order="left")

    departures = state.departures
    origins = {key: name for key, name in departures.origins.items() if key in own}
    return replace(
        state,
        targets={key: one for key, one in state.targets.items() if key in own},
        departures=replace(departures, origins=origins),
        inputs_seen=theirs(state.inputs_seen),
        releases=theirs(state.releases),
    )


def _furthest(states: Collection[State]) -> datetime | None:
    return max((s.evaluated_until for s in states if s.evaluated_until is not None), default=None)
