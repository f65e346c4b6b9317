"""A forecast of a real server with its interval, against what its own step log says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from recorded_questions import question_at

from driftwatch.model import Setting
from driftwatch.recommend.calibration.calibrate import calibrate
from driftwatch.recommend.calibration.prior import prior_of
from driftwatch.recommend.capacity import stretch
from driftwatch.recommend.scenarios import configurations_of
from driftwatch.recommend.traffic.from_minutes import observed_from_minutes
from driftwatch.simulate.demand import capacity_per_second


@pytest.mark.slow
def test_the_interval_of_a_real_server_holds_what_it_did_then(shared_data: Path) -> None:
    """run_cap at 08:32 with max_num_seqs 8: its own step log gives 14.0, 16 and 17.5 requests a
    second at 16, 32 and 64, where a step-time model without light load promised 19, 28 and 35."""
    asked = question_at(shared_data / "vllm-0.32" / "run_cap", 14)
    serving = replace(
        asked.server.serving,
        max_num_seqs=Setting(8.0, "config"),
        max_num_batched_tokens=Setting(1024.0, "config"),
    )
    server = replace(asked.server, serving=serving)
    observed = observed_from_minutes(asked.minutes, server)
    (today,) = configurations_of(server, observed).configurations
    best = calibrate(observed, today, prior_of(server, observed, today), at=asked.at).best
    some = stretch(observed.requests)
    for seats, truth in ((16, 14.0), (32, 16.0), (64, 17.5)):
        settings = replace(today, max_num_seqs=seats)
        step_times = [step_time for step_time in (best.slower, best.faster) if step_time]
        slow, fast = (
            capacity_per_second(some, settings, step_time) or 0.0 for step_time in step_times
        )
        assert 0.95 * slow < truth < fast, (seats, slow, fast)
        assert fast < 2.2 * slow
