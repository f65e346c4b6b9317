"""The tick's state in the store, for a restart.

Detectors continue from the stored minutes and references.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import polars as pl

from driftwatch.baselines.documents import baselines_from_store
from driftwatch.baselines.in_force import no_releases
from driftwatch.collect.schema import TIME, empty_scrapes
from driftwatch.diagnose.evidence_table import RECENT, no_inputs_seen
from driftwatch.minutes.continuity import MAX_GAP_SECONDS
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.departures import Departures, no_looks
from driftwatch.pipeline.detection import detection_from
from driftwatch.pipeline.question import TargetAdvice
from driftwatch.pipeline.state import FIRST_LOOK, HISTORY, State
from driftwatch.store.advice import AdviceRow, advice_id
from driftwatch.store.frames import from_arrow, to_arrow
from driftwatch.store.minute_columns import minute_rows_of
from driftwatch.store.minutes import MINUTE
from driftwatch.store.store import Store

DOCUMENT, _RELEASES, _SEEN = "tick", "tick.releases", "tick.seen"
_LOOKS = "tick.looks"


def memory_of(state: State) -> dict[str, bytes]:
    """The state that the next process needs besides incidents, scrapes and GPU readings."""
    departures = state.departures
    document = {
        "evaluated_until": _text(state.evaluated_until),
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
    frames = {_RELEASES: state.releases, _SEEN: state.inputs_seen}
    if len(state.looks):
        frames[_LOOKS] = state.looks
    return {
        DOCUMENT: orjson.dumps(document, option=orjson.OPT_SORT_KEYS),
        **{name: to_arrow(frame) for name, frame in frames.items()},
    }


def state_from(store: Store, now: datetime) -> State:
    """The stored state; a fresh one from an empty store."""
    memory = store.memory()
    incidents, baselines = store.open_incidents(), baselines_from_store(store)
    if DOCUMENT not in memory:
        return State(incidents=incidents, baselines=baselines)
    state = remembered(memory)
    until = state.evaluated_until or now
    rows = store.past(until - HISTORY, until, state.targets)
    minutes = minute_rows_of(rows.filter(pl.col("seconds") == MINUTE)).select(*RECENT)
    # scrapes since the last minute, and the one before it, are asked for again
    again = until - timedelta(seconds=MAX_GAP_SECONDS)
    return replace(
        state,
        minutes=minutes,
        scrapes=_scraped_last(minutes, again),
        collected_until={name: min(at, again) for name, at in state.collected_until.items()},
        gpus=store.gpus(until - FIRST_LOOK, max(now, until) + timedelta(minutes=1)),
        detection=detection_from(
            store, state.evaluated_until, None if store.batch is None else list(state.targets)
        ),
        incidents=incidents,
        baselines=baselines,
    )


def _scraped_last(minutes: pl.DataFrame, again: datetime) -> pl.DataFrame:
    """The last scrape of targets that are not asked for newer ones.

    Only its time is known: a process that began later has restarted.
    """
    newest = minutes.unique(["instance", "engine"], keep="last", maintain_order=True)
    at = (pl.col("last_scrape_seconds") * 1e6).round().cast(pl.Int64).cast(TIME).alias("time")
    known = newest.select("instance", "engine", at, ok=pl.lit(True)).filter(pl.col("time") < again)
    return pl.concat([empty_scrapes(), known], how="diagonal")


def remembered(memory: Mapping[str, bytes]) -> State:
    """The state of :func:`memory_of`; its targets have no pools yet."""
    document = orjson.loads(memory[DOCUMENT])
    frames = {name: from_arrow(data) for name, data in memory.items() if name in _FRAMES}
    departures = Departures(
        origins=_origins(document),
        retired=frozenset(TargetKey(*map(str, key)) for key in document.get("retired", ())),
    )
    return State(
        collected_until={
            name: at
            for name, text in document["collected_until"].items()
            if (at := _time(text)) is not None
        },
        evaluated_until=_time(document["evaluated_until"]),
        inputs_seen=frames.get(_SEEN, no_inputs_seen()),
        targets=_targets(document),
        departures=departures,
        releases=frames.get(_RELEASES, no_releases()),
        looks=_not_evaluated(frames.get(_LOOKS, no_looks()), _time(document["evaluated_until"])),
    )


def _not_evaluated(looks: pl.DataFrame, evaluated: datetime | None) -> pl.DataFrame:
    return looks if evaluated is None else looks.filter(pl.col("start") >= evaluated)


_FRAMES = {_RELEASES, _LOOKS, _SEEN}


def stored_targets(store: Store) -> Mapping[TargetKey, Target]:
    """Targets as of the last tick, of every batch; none in an empty store."""
    targets = {
        key: one for document in _documents(store) for key, one in _targets(document).items()
    }
    return {key: targets[key] for key in sorted(targets)}


def stored_origins(store: Store) -> Mapping[TargetKey, str]:
    """Target → name of the source that listed it last, if known."""
    return {key: name for document in _documents(store) for key, name in _origins(document).items()}


def newest(store: Store) -> datetime | None:
    """The time up to which scrapes were collected; None in an empty store."""
    times = [
        _time(t) for document in _documents(store) for t in document["collected_until"].values()
    ]
    return max((t for t in times if t is not None), default=None)


def evaluated_until(store: Store) -> datetime | None:
    """The time up to which every batch is evaluated; None before the first minute."""
    times = [_time(document["evaluated_until"]) for document in _documents(store)]
    return min((t for t in times if t is not None), default=None)


def _documents(store: Store) -> list[dict[str, Any]]:
    """The state document of each batch's last tick."""
    return [dict(orjson.loads(one)) for one in store.remembered_by_batch(DOCUMENT).values()]


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
