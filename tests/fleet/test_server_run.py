"""One server: what a restart cures, what its exporter tells, whose settings hold, its scrapes."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import polars as pl
import pytest
from fakes.dcgm_pages import FakeGpu, dcgm_page
from fleet_cases import between, scenario, whole_run
from polars.testing import assert_frame_equal

from driftwatch.collect.dcgm import GpuSamples
from driftwatch.fleet.gpus import board, gpu_load, gpu_rows
from driftwatch.fleet.servers import gaps, gpu_times, scrape_times, servers_of

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
    assert not between(made, chunk.scrapes, 22, 30)["ok"].any()
    assert len(chunk.gpus) == len(scrape_times(made, 1, 0)[0])


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


def test_a_third_of_the_scrapes_is_lost_and_nothing_is_kept_of_them() -> None:
    plain, lossy = scenario("24h"), scenario("24h", scrape={"lost_ratio": 0.3})
    whole, left = (len(scrape_times(made, 3, 0)[0]) for made in (plain, lossy))
    assert left / whole == pytest.approx(0.7, abs=0.02)
    missed = scrape_times(lossy, 3, 0)[1]
    assert missed.mean() < 0.01  # a lost scrape is no scrape that failed


def test_late_scrapes_stay_in_order() -> None:
    apart = np.diff(scrape_times(scenario("24h", scrape={"late_ratio": 0.2}), 3, 0)[0])
    assert 0 < apart.min() < 8 and apart.max() > 20  # of 15 s


def test_gaps_are_those_of_the_whole_pool_and_of_its_exporters() -> None:
    made = scenario("24h", scrape={"gaps_per_day": 12})
    starts, ends = gaps(made, 3)
    assert len(starts) > 4 and (ends - starts >= 60).all() and (ends - starts <= 900).all()
    for times in (scrape_times(made, 3, 0)[0], scrape_times(made, 3, 1)[0], gpu_times(made, 3, 1)):
        for first, last in zip(starts, ends, strict=True):
            assert not ((times >= first) & (times < last)).any()
    assert len(gaps(scenario("24h"), 3)[0]) == 0


EPOCH = datetime(2026, 3, 1, tzinfo=UTC)
H100 = board("H100-80GB")


def test_the_rows_are_what_the_exporters_pages_are_read_as() -> None:
    load = gpu_load(H100, EPOCH, 30.0 * np.arange(4), np.array([0.0, 0.0, 12.0, 42.0]))
    uuids = ["GPU-0", "GPU-1"]
    batch = GpuSamples()
    for row, micros in enumerate(load.micros):
        values = {name: float(series[row]) for name, series in load.values.items()}
        gpus = [FakeGpu(n, uuid, H100.model_name, values=values) for n, uuid in enumerate(uuids)]
        at = datetime.fromtimestamp(micros / 1e6, UTC)
        assert batch.page("node-1:9400", at, dcgm_page(gpus, "node-1").encode())
    found = batch.collected()
    assert not found.problems
    frame = found.gpus
    assert_frame_equal(gpu_rows(load, uuids, H100.model_name, "node-1:9400", "node-1"), frame)
    assert frame["hostname"].unique().to_list() == ["node-1"]
