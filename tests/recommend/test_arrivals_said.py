"""What an answer says of the times of requests inside their minutes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from advice_cases import AT, SECONDS, requests_of
from recorded_questions import question_at

from driftwatch.model import Setting
from driftwatch.recommend.prepare import (
    AS_WAITED,
    IN_BURSTS,
    Prepared,
    arrival_notes,
    prepare,
)
from driftwatch.recommend.traffic.from_minutes import EVENLY
from driftwatch.recommend.traffic.observed import CHUNK_SCHEMA, Observed
from driftwatch.recommend.traffic.waits import Waits

NOTES = ("the first", EVENLY, "the last")
UNKNOWN = Observed(
    AT,
    SECONDS,
    requests_of(3, 300, 200),
    "metrics",
    pl.DataFrame(schema=CHUNK_SCHEMA),
    busy_windows=10,
    saturated=False,
)
KNOWN = replace(UNKNOWN, waits=Waits(np.array([0.0, SECONDS]), (), 0, np.array([0.0, np.inf])))


def moved(observed: Observed) -> Observed:
    return replace(observed, requests=requests_of(3, 300, 200, seed=2))


def test_requests_that_were_left_where_they_were_drawn_are_said_to_be_drawn_evenly() -> None:
    assert arrival_notes(NOTES, KNOWN, KNOWN) == NOTES
    assert arrival_notes(NOTES, KNOWN, replace(KNOWN, notes=("another",))) == NOTES


def test_requests_that_were_moved_are_said_to_be_and_no_longer_drawn_evenly() -> None:
    assert arrival_notes(NOTES, KNOWN, moved(KNOWN)) == ("the first", AS_WAITED, "the last")
    assert arrival_notes(NOTES, UNKNOWN, moved(UNKNOWN)) == (
        "the first",
        IN_BURSTS,
        "the last",
    )


def test_requests_of_a_real_client_that_sent_at_random_are_left_where_they_were_drawn(
    shared_data: Path,
) -> None:
    """run_cap's client was an open loop, Poisson: how long its queue was is chance, not clumps."""
    asked = question_at(shared_data / "vllm-0.32" / "run_cap", 12)
    known = replace(asked.server.serving, max_num_batched_tokens=Setting(2048, "config"))
    prepared = prepare(replace(asked, server=replace(asked.server, serving=known)), None)
    assert isinstance(prepared, Prepared)
    assert AS_WAITED not in prepared.advice.notes
    assert EVENLY in prepared.advice.notes
