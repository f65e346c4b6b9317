"""The tick's state in the store: what a restart must not forget.

Detectors go on from the stored minutes and references. The stored scrapes of the last minutes are
folded in, a few minutes at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import polars as pl

from driftwatch.baselines.in_force import no_releases
from driftwatch.baselines.rows import baselines_from_store
from driftwatch.collect.schema import KEY_COLUMNS, in_order
from driftwatch.diagnose.evidence_table import Carried
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.departures import Departures, no_looks
from driftwatch.pipeline.detection import detection_from
from driftwatch.pipeline.question import TargetAdvice
from driftwatch.pipeline.state import HISTORY, State, last_scrapes, no_capacity
from driftwatch.signals.continuity import UNREAD
from driftwatch.signals.past import Past, joined, left_behind
from driftwatch.store.advice import AdviceRow, advice_id
from driftwatch.store.frames import from_arrow, to_arrow
from driftwatch.store.store import Store

# Folded in at once: bounded memory in a large fleet. How scrapes are split changes nothing.
_SCRAPES_STEP = timedelta(minutes=2)
_STATE, _SILENT, _RELEASES = "tick", "tick.silent", "tick.releases"
_CAPACITY, _LOOKS = "tick.capacity", "tick.looks"
_DEPARTURES = ("traffic", "last")
_CARRIED = {"plateau": "plateau", "alive": "alive", "seen": "inputs_seen"}  # frame → its field


def memory_of(state: State) -> dict[str, bytes]:
    """What the next process needs besides incidents, scrapes and GPU readings."""
    carried, departures = state.carried, state.departures
    document = {
        "evaluated_until": _text(state.evaluated_until),
        "carried_until": _text(carried.until),
        "collected_until": {name: _text(at) for name, at in state.collected_until.items()},
        "targets": [
            {
                "instance": t.key.instance,
                "engine": t.key.engine,
                "labels": dict(t.labels),
                "source": departures.origins.get(t.key),
            }
            for _, t in sorted(state.targets.items())
        ],
        "retired": [list(key) for key in sorted(departures.retired)],
    }
    older = state.scrapes.clear()  # scrapes that the store's recent ones will not bring back
    if state.evaluated_until is not None:
        older = state.scrapes.filter(pl.col("time") < state.evaluated_until - HISTORY)
    frames = {f"tick.{name}": getattr(carried, field) for name, field in _CARRIED.items()}
    frames |= {f"tick.{name}": getattr(departures, name) for name in _DEPARTURES}
    frames |= {_SILENT: older, _RELEASES: state.releases, _CAPACITY: state.capacity}
    if len(state.looks):
        frames[_LOOKS] = state.looks
    return {
        _STATE: orjson.dumps(document, option=orjson.OPT_SORT_KEYS),
        **{name: to_arrow(frame) for name, frame in frames.items()},
    }


def state_from(store: Store, now: datetime) -> State:
    """The state that the last process left; a fresh one in an empty store.

    Scrapes that are too old to be of use are left where they are.
    """
    memory = store.memory() or of_no_shard(store)
    incidents, baselines = store.open_incidents(), baselines_from_store(store)
    if _STATE not in memory:
        return State(incidents=incidents, baselines=baselines)
    state = remembered(memory)
    evaluated = state.evaluated_until
    # the clock may have gone back since: what was collected is not collected again
    reached = max([now, *state.collected_until.values()])
    since, until = min(evaluated or now, now) - HISTORY, reached + timedelta(minutes=1)
    return replace(
        _with_scrapes(state, store, since, until),
        gpus=store.gpus(since, until),
        detection=detection_from(store, evaluated),
        incidents=incidents,
        baselines=baselines,
    )


def of_no_shard(store: Store) -> dict[str, bytes]:
    """What a process left that watched all pools, for a shard that begins; else nothing."""
    if store.shard is None:
        return {}
    return store.whole().memory()


def remembered(memory: Mapping[str, bytes]) -> State:
    """The state of :func:`memory_of`; its targets have no pools yet."""
    document = orjson.loads(memory[_STATE])
    frames = {name: from_arrow(data) for name, data in memory.items() if name in _FRAMES}
    departures = Departures(
        origins=_origins(document),
        retired=frozenset(TargetKey(*map(str, key)) for key in document.get("retired", ())),
    )
    if "tick.last" in frames:
        departures = replace(departures, traffic=frames["tick.traffic"], last=frames["tick.last"])
    return State(
        scrapes=frames[_SILENT],
        collected_until={
            name: at
            for name, text in document["collected_until"].items()
            if (at := _time(text)) is not None
        },
        evaluated_until=_time(document["evaluated_until"]),
        carried=Carried(
            until=_time(document["carried_until"]),
            plateau=frames["tick.plateau"],
            alive=frames["tick.alive"],
            inputs_seen=frames["tick.seen"],
        ),
        targets=_targets(document),
        departures=departures,
        releases=frames.get(_RELEASES, no_releases()),
        capacity=frames.get(_CAPACITY, no_capacity()),
        looks=_not_evaluated(frames.get(_LOOKS, no_looks()), _time(document["evaluated_until"])),
    )


def _not_evaluated(looks: pl.DataFrame, evaluated: datetime | None) -> pl.DataFrame:
    return looks if evaluated is None else looks.filter(pl.col("start") >= evaluated)


_FRAMES = {
    _SILENT,
    _RELEASES,
    _CAPACITY,
    _LOOKS,
    *(f"tick.{name}" for name in (*_CARRIED, *_DEPARTURES)),
}


def _with_scrapes(state: State, store: Store, since: datetime, until: datetime) -> State:
    """The state with what the stored scrapes of [since, until) leave behind."""
    first = state.evaluated_until or since
    scrapes, past = _of_targets(state.scrapes, state.targets, state.evaluated_until), Past()
    for begin, end in _steps(since, min(first, until), _SCRAPES_STEP):
        new = store.scrapes(begin, end, UNREAD)
        new = _of_targets(new, state.targets, state.evaluated_until)
        scrapes = in_order(pl.concat([scrapes, new]))
        past = left_behind(joined(scrapes, past), end, end - HISTORY)
        scrapes = last_scrapes(scrapes, end)
    later = store.scrapes(first, until, UNREAD) if first < until else scrapes.clear()
    return replace(
        state,
        scrapes=pl.concat([scrapes, later]),
        carried=replace(state.carried, past=past),
    )


def _of_targets(
    scrapes: pl.DataFrame, targets: Mapping[TargetKey, Target], evaluated: datetime | None
) -> pl.DataFrame:
    """Less the evaluated scrapes of who was let go: by them it would seem to be back."""
    if evaluated is None:
        return scrapes
    keys = pl.DataFrame(
        [tuple(key) for key in targets], schema=dict.fromkeys(KEY_COLUMNS, pl.String), orient="row"
    )
    of_keys = scrapes.select(KEY_COLUMNS).join(
        keys.with_columns(known=True), on=list(KEY_COLUMNS), how="left", maintain_order="left"
    )
    return scrapes.filter(of_keys["known"].fill_null(False) | (pl.col("time") >= evaluated))


def stored_targets(store: Store) -> Mapping[TargetKey, Target]:
    """Targets as of the last tick, of every shard; none in an empty store."""
    targets = {
        key: one for document in _documents(store) for key, one in _targets(document).items()
    }
    return {key: targets[key] for key in sorted(targets)}


def stored_origins(store: Store) -> Mapping[TargetKey, str]:
    """Target → name of the source that listed it last, where that is known."""
    return {key: name for document in _documents(store) for key, name in _origins(document).items()}


def newest(store: Store) -> datetime | None:
    """Up to where scrapes were collected; None in an empty store."""
    times = [
        _time(t) for document in _documents(store) for t in document["collected_until"].values()
    ]
    return max((t for t in times if t is not None), default=None)


def evaluated_until(store: Store) -> datetime | None:
    """Up to where every shard's minutes are evaluated; None before the first."""
    times = [_time(document["evaluated_until"]) for document in _documents(store)]
    return min((t for t in times if t is not None), default=None)


def _documents(store: Store) -> list[dict[str, Any]]:
    """What each shard's last tick left."""
    return [dict(orjson.loads(one)) for one in store.remembered_by_shard(_STATE).values()]


def _origins(document: Mapping[str, Any]) -> dict[TargetKey, str]:
    return {
        TargetKey(str(row["instance"]), str(row["engine"])): str(row["source"])
        for row in document["targets"]
        if row.get("source") is not None
    }


def _targets(document: Mapping[str, Any]) -> dict[TargetKey, Target]:
    targets = {}
    for row in document["targets"]:
        key = TargetKey(str(row["instance"]), str(row["engine"]))
        targets[key] = Target(key, row["labels"] if isinstance(row["labels"], dict) else {})
    return targets


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat()


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _steps(
    since: datetime, until: datetime, step: timedelta
) -> Iterable[tuple[datetime, datetime]]:
    """[since, until) in steps."""
    while since < until:
        end = min(since + step, until)
        yield since, end
        since = end


def advice_rows(answers: Sequence[TargetAdvice]) -> list[AdviceRow]:
    """Answers as rows of the store."""
    if not answers:
        return []
    from driftwatch.recommend.advice import advice_document

    return [
        AdviceRow(
            id=advice_id(answer.target.key, answer.at, answer.incident_id),
            instance=answer.target.key.instance,
            engine=answer.target.key.engine,
            pool=answer.target.pool or "default",
            at=answer.at,
            document=advice_document(answer.advice),
            incident_id=answer.incident_id,
        )
        for answer in answers
    ]
