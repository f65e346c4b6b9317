from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from observed_cases import LogOf, MinutesOf, heavy, server

from driftwatch.errors import WorkloadError
from driftwatch.recommend.traffic.from_log import observed_from_log
from driftwatch.recommend.traffic.from_minutes import observed_from_minutes
from driftwatch.simulate.requests import Requests


def moved(log: Requests, seconds: float) -> Requests:
    return replace(log, arrival_seconds=log.arrival_seconds + seconds)


@pytest.mark.parametrize("run", ["run_cap", "run_main"])
def test_the_true_log_is_taken(minutes_of: MinutesOf, log_of: LogOf, run: str) -> None:
    rows, log = minutes_of(run), log_of(run)
    found = observed_from_log(log, rows, server())
    assert found.source == "request log"
    arrived = found.requests.take(slice(found.carried_requests, None))
    at = log.arrival_seconds - found.start.timestamp()
    inside = (at >= 0) & (at < found.seconds)
    assert np.array_equal(arrived.prompt_tokens, log.prompt_tokens[inside])
    assert np.array_equal(arrived.generation_tokens, log.generation_tokens[inside])
    assert arrived.arrival_seconds == pytest.approx(at[inside])
    rebuilt = observed_from_minutes(rows, server())
    assert found.chunks.equals(rebuilt.chunks)
    assert found.saturated == rebuilt.saturated


def test_a_log_without_a_date_is_laid_where_its_arrivals_fit(
    minutes_of: MinutesOf, log_of: LogOf
) -> None:
    rows, log = heavy(minutes_of("run_cap")), log_of("run_cap")
    dated = observed_from_log(log, rows, server())
    undated = observed_from_log(moved(log, -log.arrival_seconds[0]), rows, server())
    off = undated.requests.arrival_seconds.mean() - dated.requests.arrival_seconds.mean()
    assert abs(off) < 10
    assert len(undated.requests) == pytest.approx(len(dated.requests), rel=0.01)


def test_what_ran_and_waited_before_comes_from_the_log(
    minutes_of: MinutesOf, log_of: LogOf
) -> None:
    rows, log = heavy(minutes_of("run_cap")).tail(3), log_of("run_cap")
    found = observed_from_log(log, rows, server())
    assert found.carried_requests > 8
    came = found.came_seconds
    assert came is not None and len(came) == found.carried_requests
    assert np.isnan(came).sum() == 8  # as many as ran
    assert (came[8:] < 0).all()  # the rest waited: since when is known
    began = found.start.timestamp()
    cut = log.take(log.arrival_seconds >= began)
    without = observed_from_log(cut, rows, server())
    assert without.carried_requests == 0
    assert any("the log begins with the window" in note for note in without.notes)


def test_every_contradiction_is_named_with_both_numbers(
    minutes_of: MinutesOf, log_of: LogOf
) -> None:
    rows, log = minutes_of("run_main"), log_of("run_main")
    half = log.take(slice(None, None, 2))  # a log of one of two servers
    with pytest.raises(WorkloadError) as refused:
        observed_from_log(half, rows, server())
    found = refused.value.problems
    assert [problem.split(" ", 4)[4].split(",")[0] for problem in found] == [
        "requests",
        "prompt tokens",
        "generation tokens",
    ]
    assert found[0] == f"the log has {4_046:,} requests, the metrics {8_076:,}"
    assert "this one server" in str(refused.value.help_text)


def test_other_lengths_contradict(minutes_of: MinutesOf, log_of: LogOf) -> None:
    rows, log = minutes_of("run_slow"), log_of("run_slow")
    longer = replace(log, prompt_tokens=log.prompt_tokens + 20)  # a template of 20 tokens
    with pytest.raises(WorkloadError, match="prompt tokens, the metrics 2,") as refused:
        observed_from_log(longer, rows, server())
    assert len(refused.value.problems) == 1
    near = replace(log, prompt_tokens=log.prompt_tokens + 2)
    assert observed_from_log(near, rows, server()).source == "request log"


def test_a_log_of_another_time_is_refused(minutes_of: MinutesOf, log_of: LogOf) -> None:
    rows, log = minutes_of("run_slow"), log_of("run_slow")
    with pytest.raises(WorkloadError, match=r"covers 0 min of the 42\.1 min of metrics"):
        observed_from_log(moved(log, 86_400.0), rows, server())
    early = log.take(log.arrival_seconds < log.arrival_seconds[0] + 600)
    with pytest.raises(WorkloadError, match=r"covers 9\.93 min of the 42\.1 min"):
        observed_from_log(early, rows, server())


def test_groups_of_prefixes_are_looked_up_not_given(minutes_of: MinutesOf, log_of: LogOf) -> None:
    rows, log = minutes_of("run_slow"), log_of("run_slow")
    shared = np.minimum(log.prompt_tokens, 64)
    grouped = replace(
        log, prefix_group=np.zeros(len(log), dtype=np.int64), shared_prefix_tokens=shared
    )
    found = observed_from_log(grouped, rows, server())
    assert (found.requests.cached_tokens == -1).all()
    given = observed_from_log(log, rows, server())
    ratio = given.requests.cached_tokens.sum() / given.requests.prompt_tokens.sum()
    assert given.prefix_hit_ratio is not None
    assert ratio == pytest.approx(given.prefix_hit_ratio, abs=0.02)
