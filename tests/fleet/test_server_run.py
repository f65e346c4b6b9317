"""One server's run: what a restart cures, what its exporter tells, whose settings hold."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from fleet_cases import between, whole_run

from driftwatch.fleet.generate import scrape_times
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.servers import servers_of


def scenario(minutes: int = 30, **more: Any) -> Scenario:
    return Scenario.model_validate(
        {
            "name": "x",
            "title": "x",
            "duration": f"{minutes}m",
            "pool": {"replicas": 2},
            "traffic": {"requests_per_second": 4.0},
            "truth": {},
            **more,
        }
    )


WEDGE = {"kind": "wedge", "at": "8m", "replicas": [0]}
RESTART = {"kind": "restart", "at": "15m", "replicas": [0]}


def test_a_restart_cures_a_hang_and_a_stall_happens_once() -> None:
    stalls = {"stalls_per_day": 2000.0}  # some 40 in half an hour
    made = scenario(faults=[WEDGE, RESTART], engine=stalls)
    chunk = whole_run(made)
    after = between(made, chunk.scrapes, 16.5, 30).filter("ok")
    assert after["generation_tokens_total"][-1] > 10_000
    assert chunk.requests is not None
    late = chunk.requests.filter(
        (pl.col("arrival_seconds") > 15 * 60) & (pl.col("status") == "finished")
    )
    assert len(late) > 1000
    assert late["ttft_seconds"].max() < 11  # two stalls in a row, not the twenty before the start
    hung, cured = (between(made, chunk.gpus, *span) for span in ((9, 15), (17, 30)))
    assert cured["power_watts"].min() > hung["power_watts"].max()


def test_the_exporter_answers_while_its_server_does_not() -> None:
    made = scenario(
        faults=[{**RESTART, "down": "4m"}, {"kind": "missed_scrapes", "at": "22m", "ratio": 1.0}]
    )
    chunk = whole_run(made)
    assert not between(made, chunk.scrapes, 15, 18.9)["ok"].any()
    down = between(made, chunk.gpus, 15.1, 18.9)
    assert len(down) >= 14
    assert down["utilization_ratio"].max() == 0 and down["power_watts"].max() < 150
    busy = between(made, chunk.gpus, 5, 15)
    assert down["framebuffer_used_bytes"].max() < 0.1 * busy["framebuffer_used_bytes"].min()
    missed = between(made, chunk.gpus, 22, 30)
    assert not between(made, chunk.scrapes, 22, 30)["ok"].any()
    assert len(missed) > 25 and missed["power_watts"].min() > down["power_watts"].max()
    times = scrape_times(made, 1, 0)[0]
    assert len(chunk.gpus) == len(times)


def test_a_fault_changes_the_settings_that_it_names() -> None:
    made = scenario(
        pool={"serving": {"max_num_seqs": 300, "max_num_batched_tokens": 8192}},
        faults=[
            {**RESTART, "serving": {"max_num_seqs": 4096}},
            {**RESTART, "at": "20m", "serving": {"max_model_len": 4096}},
        ],
    )
    settings = [
        (s.max_num_seqs, s.max_num_batched_tokens, s.max_model_len)
        for s in (life.serving for life in servers_of(made)[0].lives)
    ]
    assert settings == [(300, 8192, 8192), (4096, 8192, 8192), (4096, 8192, 4096)]
    with pytest.raises(ValueError, match=r"max_num_batched_tokens \(2048\) is below max_num_seqs"):
        scenario(faults=[{**RESTART, "serving": {"max_num_seqs": 4096}}])
