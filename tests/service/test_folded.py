"""explain of a recording says of a minute what the replay said of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
from polars.testing import assert_frame_equal
from service_cases import shipped_plan

from driftwatch.cli.proposal_notice import with_proposals
from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.evidence import DETECTED
from driftwatch.service.replay import detected_until, replay


def test_the_detectors_say_in_explain_what_they_said_in_the_replay(shared_data: Path) -> None:
    source = RecordingSource(shared_data / "vllm-0.32" / "run_slow")
    plan = with_proposals(shipped_plan())
    span = source.span()
    collected = source.collect(*span)
    targets = plan.assign(collected.targets)
    (target,) = targets.values()
    at = datetime(2026, 11, 21, 9, 20, 17, tzinfo=UTC)  # inside a minute
    asked = detected_until(replace(collected, targets=targets), target, plan, at)
    rows = pl.concat(outcome.rows for outcome in replay([source], span, plan))
    replayed = rows.filter(pl.col("end") == at.replace(second=0))
    assert_frame_equal(asked.select("end", *DETECTED), replayed.select("end", *DETECTED))
    assert asked["slower_at_equal_load"].to_list() == [True]
