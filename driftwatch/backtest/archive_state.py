"""The tick's state at midnight, as one file: an unfinished day begins with it again.

The store's checkpoint holds the detectors' memory and leaves the rest to scrapes that it has too.
Here no scrape is kept, so what the last ones left behind is in it as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

import orjson
import polars as pl

from driftwatch.baselines.in_force import InForce
from driftwatch.detect.baselines import Baselines
from driftwatch.detect.memory import named, part_of
from driftwatch.detect.stage import memory_from
from driftwatch.pipeline.plan import Plan
from driftwatch.pipeline.state import State
from driftwatch.pipeline.stored_state import memory_of, remembered
from driftwatch.signals.past import Past
from driftwatch.store.frames import from_arrow, to_arrow

_SCHEMA = {"name": pl.String, "data": pl.Binary}
_DOCUMENT, _MARK = "kept", "past.mark"


def packed(state: State, now: datetime) -> pl.DataFrame:
    """The state of a tick without rules, and up to where its sources were replayed.

    Returns: ``name``, ``data``: frames and documents as bytes.
    """
    past, in_force = state.carried.past, state.in_force
    document = {
        "now": now.isoformat(),
        "serials": past.serials,
        "since": None if past.since is None else past.since.isoformat(),
        "marks": len(past.marks),
        "not_for": sorted(in_force.baselines.not_for),
        "in_force": in_force.made_of is not None,
    }
    frames = {
        "scrapes": state.scrapes,
        "gpus": state.gpus,
        "past.targets": past.targets,
        "past.scrapes": past.scrapes,
        "past.last_values": past.last_values,
        **{f"{_MARK}.{n}": mark for n, mark in enumerate(past.marks)},
        "in_force.frame": in_force.frame,
        "in_force.reference": in_force.reference,
        **named(dict(state.detection.frames()), "detection"),
    }
    data = {
        **memory_of(state),
        **{name: to_arrow(frame) for name, frame in frames.items()},
        _DOCUMENT: orjson.dumps(document),
    }
    return pl.DataFrame(list(data.items()), schema=_SCHEMA, orient="row")


def unpacked(
    rows: pl.DataFrame, plan: Plan, baselines: Baselines, reference: pl.DataFrame
) -> tuple[State, datetime]:
    """What :func:`packed` was given; baselines and reference are the caller's own."""
    data: dict[str, bytes] = dict(rows.iter_rows())
    document = orjson.loads(data[_DOCUMENT])
    state = remembered(data)
    targets = plan.assign(state.targets)
    frames = {
        name: from_arrow(blob)
        for name, blob in data.items()
        if name.startswith(("scrapes", "gpus", "past.", "in_force.", "detection."))
    }
    past = Past(
        targets=frames["past.targets"],
        scrapes=frames["past.scrapes"],
        marks=tuple(frames[f"{_MARK}.{n}"] for n in range(document["marks"])),
        last_values=frames["past.last_values"],
        serials=document["serials"],
        since=None if document["since"] is None else datetime.fromisoformat(document["since"]),
    )
    state = replace(
        state,
        scrapes=frames["scrapes"],
        gpus=frames["gpus"],
        targets=targets,
        carried=replace(state.carried, past=past),
        detection=memory_from(part_of(frames, "detection")),
        baselines=baselines,
        reference=reference,
    )
    if document["in_force"]:
        state = replace(state, in_force=_in_force(frames, document["not_for"], state, plan))
    return state, datetime.fromisoformat(document["now"])


def _in_force(
    frames: Mapping[str, pl.DataFrame], not_for: list[list[str]], state: State, plan: Plan
) -> InForce:
    """What the baselines said of each target: made of readings that may be gone by now."""
    refused = frozenset((one[0], one[1], one[2]) for one in not_for)
    return InForce(
        baselines=replace(state.baselines, not_for=refused) if refused else state.baselines,
        frame=frames["in_force.frame"],
        reference=frames["in_force.reference"],
        made_of=(state.baselines, state.targets, plan),
    )
