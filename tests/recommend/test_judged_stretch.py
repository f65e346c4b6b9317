"""What a change is judged by: the traffic since it is as it is now."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from advice_cases import AT
from recorded_questions import recorded_rows

from driftwatch.model import Serving, Setting
from driftwatch.recommend.calibration.fits import RESIDUALS
from driftwatch.recommend.calibration.playback import Playback
from driftwatch.recommend.horizon import alike_since, recent
from driftwatch.recommend.traffic.from_minutes import observed_from_minutes
from driftwatch.recommend.traffic.observed import CHUNK_SCHEMA, Observed, Server
from driftwatch.signals.minutes import minutes
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.requests import Requests, make_requests

HOUR = 3600.0
SERVER = Server(Serving(max_model_len=Setting(8192, "config")))


def window(requests: Requests) -> Observed:
    chunks = pl.DataFrame(schema=CHUNK_SCHEMA)
    return Observed(AT, HOUR, requests, "metrics", chunks, 60, False)


def drawn(
    seed: int, *, rate: float = 1.0, prompt: float = 1.0, generation: float = 1.0, at: float = HOUR
) -> Observed:
    """Requests of an hour, other ones from a moment on."""
    rng = np.random.default_rng(seed)
    count = rng.poisson(np.where(np.arange(60) * 60 < at, 300, 300 * rate))
    arrival = np.sort(np.repeat(np.arange(60) * 60.0, count) + rng.uniform(0, 60, count.sum()))
    late = arrival >= at
    lengths = [
        np.maximum(rng.lognormal(mean, 0.9, len(arrival)) * np.where(late, factor, 1.0), 1)
        for mean, factor in ((5.5, prompt), (4.5, generation))
    ]
    return window(make_requests(arrival, *(length.astype(int) for length in lengths)))


@pytest.mark.parametrize(
    ("change", "minutes_ago"),
    [({"rate": 2.0}, 3), ({"rate": 0.33}, 7), ({"rate": 0.33}, 25), ({"prompt": 2.0}, 7)],
)
def test_traffic_counts_from_the_minute_on_in_which_it_changed(
    change: dict[str, float], minutes_ago: int
) -> None:
    at = HOUR - 60.0 * minutes_ago
    # a lull between two waves is no change of the demand
    expected = 0.0 if change.get("rate", 1.0) < 1.0 and minutes_ago < 10 else at
    assert alike_since(drawn(minutes_ago, at=at, **change)) == pytest.approx(expected, abs=60.0)


def test_a_lull_hides_no_change_before_it() -> None:
    """Bursty traffic is quiet when a page is asked about: it is the drift that is judged."""
    seen = drawn(3, prompt=3.0, at=HOUR - 1500.0)
    arrival = seen.requests.arrival_seconds
    kept = (arrival < HOUR - 240.0) | (np.arange(len(arrival)) % 5 == 0)
    quiet = window(seen.requests.take(kept))
    assert alike_since(quiet) == pytest.approx(HOUR - 1500.0, abs=60.0)


@pytest.mark.parametrize("change", [{"rate": 3.0}, {"prompt": 3.0}, {"generation": 0.3}])
def test_what_just_begins_is_too_short_to_judge_a_server_by(change: dict[str, float]) -> None:
    assert alike_since(drawn(4, at=HOUR - 120.0, **change)) == 0.0
    assert alike_since(drawn(4, at=HOUR - 240.0, **change)) == pytest.approx(HOUR - 240.0, abs=60)


def test_last_minutes_of_other_lengths_hide_no_change_before_them() -> None:
    """What ended in the last two minutes is not what came: the drift is judged, not refused."""
    seen = drawn(3, prompt=3.0, at=HOUR - 1500.0).requests
    late = seen.arrival_seconds >= HOUR - 120.0
    prompt = np.where(late, seen.prompt_tokens // 2, seen.prompt_tokens)
    assert alike_since(window(replace(seen, prompt_tokens=prompt))) == pytest.approx(
        HOUR - 1500.0, abs=60.0
    )


def test_traffic_that_nearly_stopped_leaves_the_traffic_before_to_judge() -> None:
    seen = drawn(5)
    arrival = seen.requests.arrival_seconds
    kept = (arrival < HOUR - 900.0) | (np.arange(len(arrival)) % 400 == 0)
    few = window(seen.requests.take(kept))
    assert 0 < int((few.requests.arrival_seconds >= HOUR - 900.0).sum()) < 20
    assert alike_since(few) == 0.0


def test_traffic_that_did_not_change_counts_whole() -> None:
    assert [alike_since(drawn(seed)) for seed in range(20)] == [0.0] * 20
    # nor does a drift that nobody is told
    assert alike_since(drawn(1, prompt=1.15, at=1800.0)) == 0.0


def test_a_change_of_real_lengths(shared_data: Path) -> None:
    rows = pl.read_csv(shared_data / "traces" / "azure_2023_conv.csv.gz")
    rows = rows.sample(fraction=1.0, shuffle=True, seed=1)  # its own lengths move after 51 minutes
    prompt = rows["ContextTokens"].to_numpy()
    arrival = np.linspace(0.0, HOUR, len(prompt), endpoint=False)
    generation = np.maximum(rows["GeneratedTokens"].to_numpy(), 1)
    assert alike_since(window(make_requests(arrival, prompt, generation))) == 0.0
    longer = np.where(arrival >= 3180.0, 3 * prompt, prompt)
    found = alike_since(window(make_requests(arrival, longer, generation)))
    assert found == pytest.approx(3180.0, abs=60.0)


def test_the_end_of_a_recorded_window_is_a_window_of_its_own(shared_data: Path) -> None:
    rows, _, _ = recorded_rows(shared_data / "vllm-0.32" / "run_slow")
    run = minutes(rows).slice(1, 30)
    whole = observed_from_minutes(run, SERVER)
    assert alike_since(whole) == 0.0  # the same requests all the time
    assert recent(whole, run, 0.0) is whole
    late = recent(whole, run, whole.seconds - 600.0)
    assert late.seconds == pytest.approx(600.0, abs=31.0)
    assert late.carried_requests == 0
    assert late.requests.arrival_seconds[0] >= 0.0
    assert late.requests.arrival_seconds[-1] < late.seconds
    assert late.offered_requests_per_second == pytest.approx(
        whole.offered_requests_per_second, rel=0.1
    )
    assert late.chunks["end_seconds"][-1] == pytest.approx(late.seconds)
    assert late.ttft_p95_seconds is not None


def test_times_to_first_token_are_compared_where_no_backlog_delays_them() -> None:
    whole = drawn(1)
    starts = np.arange(6) * 600.0
    columns = {name: [1.0] * 6 for name in CHUNK_SCHEMA}
    chunks = pl.DataFrame(
        {
            **columns,
            "start_seconds": starts,
            "end_seconds": starts + 600.0,
            "generation_tokens_per_second": [600.0] * 6,
            "waiting_requests": [0.1, 0.3, 5.0, 0.2, 0.1, None],
        },
        schema=CHUNK_SCHEMA,
    )
    seen = replace(whole, chunks=chunks)

    def compared(observed: Observed) -> list[bool]:
        playback = Playback(observed, SchedulerConfiguration(64, 2048, None))
        found: list[bool] = playback.compared[:, RESIDUALS.index("ttft_seconds")].tolist()
        return found

    # the chunk with the queue, and the one in which the last of it gets its first tokens
    assert compared(seen) == [True, True, False, False, True, True]
    assert compared(replace(seen, saturated=True)) == [False] * 6
    assert compared(replace(seen, source="request log")) == [True] * 6
