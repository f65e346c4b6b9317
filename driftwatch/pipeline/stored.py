"""The tick's state in the store: what a restart must not forget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import polars as pl

from driftwatch.baselines.pinned import no_releases
from driftwatch.baselines.stored_pins import pins_from_store
from driftwatch.collect.schema import KEY_COLUMNS
from driftwatch.diagnose.evidence_table import Carried
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.capacity import nothing_told
from driftwatch.pipeline.departures import Departures
from driftwatch.pipeline.state import HISTORY, State
from driftwatch.store.frames import from_arrow, to_arrow
from driftwatch.store.store import Store

_STATE = "tick"
_SILENT = "tick.silent"
_RELEASES = "tick.releases"
_CAPACITY = "tick.capacity"
_DEPARTED = ("traffic", "last")
_FRAMES = ("plateau", "alive", "seen")


def memory_of(state: State) -> dict[str, bytes]:
    """What the next process must know besides incidents, scrapes and GPU readings."""
    carried = state.carried
    document = {
        "evaluated_until": _text(state.evaluated_until),
        "carried_until": _text(carried.until),
        "collected_until": {name: _text(at) for name, at in state.collected_until.items()},
        "targets": [
            {
                "instance": t.key.instance,
                "engine": t.key.engine,
                "labels": dict(t.labels),
                "source": state.departures.origins.get(t.key),
            }
            for _, t in sorted(state.targets.items())
        ],
        "retired": [list(key) for key in sorted(state.departures.retired)],
    }
    frames = {f"tick.{name}": to_arrow(getattr(carried, name)) for name in _FRAMES}
    departures = state.departures
    frames |= {f"tick.{name}": to_arrow(getattr(departures, name)) for name in _DEPARTED}
    frames[_SILENT] = to_arrow(_older(state))
    frames[_RELEASES] = to_arrow(state.releases)
    frames[_CAPACITY] = to_arrow(state.capacity)
    return {_STATE: orjson.dumps(document, option=orjson.OPT_SORT_KEYS), **frames}


def _older(state: State) -> pl.DataFrame:
    """Scrapes in the state that the store's recent ones will not bring back."""
    if state.evaluated_until is None:
        return state.scrapes.clear()
    return state.scrapes.filter(pl.col("time") < state.evaluated_until - HISTORY)


def state_from(store: Store, now: datetime) -> State:
    """The state that the last process left; a fresh one in an empty store.

    Scrapes that are too old to be of use are left where they are.
    """
    memory = store.memory()
    incidents, pins = store.open_incidents(), pins_from_store(store)
    if _STATE not in memory:
        return State(incidents=incidents, pins=pins)
    document = orjson.loads(memory[_STATE])
    evaluated = _time(document["evaluated_until"])
    since = min(evaluated or now, now) - HISTORY
    frames = {name: from_arrow(memory[f"tick.{name}"]) for name in _FRAMES}
    scrapes = pl.concat(
        [from_arrow(memory[_SILENT]), store.scrapes(since, now + timedelta(minutes=1))]
    )
    return State(
        scrapes=_of_targets(scrapes, _targets(document), evaluated),
        gpus=store.gpus(since, now + timedelta(minutes=1)),
        collected_until={
            name: at
            for name, text in document["collected_until"].items()
            if (at := _time(text)) is not None
        },
        evaluated_until=evaluated,
        carried=Carried(
            until=_time(document["carried_until"]),
            plateau=frames["plateau"],
            alive=frames["alive"],
            seen=frames["seen"],
        ),
        incidents=incidents,
        pins=pins,
        targets=_targets(document),
        departures=_departures(document, memory),
        # a database of an earlier release has none
        releases=from_arrow(memory[_RELEASES]) if _RELEASES in memory else no_releases(),
        capacity=from_arrow(memory[_CAPACITY]) if _CAPACITY in memory else nothing_told(),
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
    known = scrapes.select(KEY_COLUMNS).join(
        keys.with_columns(known=True), on=list(KEY_COLUMNS), how="left", maintain_order="left"
    )
    return scrapes.filter(known["known"].fill_null(False) | (pl.col("time") >= evaluated))


def _departures(document: Mapping[str, Any], memory: Mapping[str, bytes]) -> Departures:
    """Who came from where; a database of an earlier release does not know."""
    retired = frozenset(TargetKey(*map(str, key)) for key in document.get("retired", ()))
    found = Departures(origins=_origins(document), retired=retired)
    if any(f"tick.{name}" not in memory for name in _DEPARTED):
        return found
    return replace(
        found, traffic=from_arrow(memory["tick.traffic"]), last=from_arrow(memory["tick.last"])
    )


def stored_targets(store: Store) -> Mapping[TargetKey, Target]:
    """Targets as of the last tick; none in an empty store."""
    memory = store.memory()
    return _targets(orjson.loads(memory[_STATE])) if _STATE in memory else {}


def stored_origins(store: Store) -> Mapping[TargetKey, str]:
    """Name of the source that listed each target last; those of which it is not known are none."""
    memory = store.memory()
    return _origins(orjson.loads(memory[_STATE])) if _STATE in memory else {}


def newest(store: Store) -> datetime | None:
    """Up to where scrapes were collected; None in an empty store."""
    memory = store.memory()
    if _STATE not in memory:
        return None
    times = [_time(t) for t in orjson.loads(memory[_STATE])["collected_until"].values()]
    return max((t for t in times if t is not None), default=None)


def _origins(document: Mapping[str, list[dict[str, object]]]) -> dict[TargetKey, str]:
    return {
        TargetKey(str(row["instance"]), str(row["engine"])): str(row["source"])
        for row in document["targets"]
        if row.get("source") is not None
    }


def _targets(document: Mapping[str, list[dict[str, object]]]) -> dict[TargetKey, Target]:
    found = {}
    for row in document["targets"]:
        key = TargetKey(str(row["instance"]), str(row["engine"]))
        labels = row["labels"]
        found[key] = Target(key, labels if isinstance(labels, dict) else {})
    return found


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat()


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
