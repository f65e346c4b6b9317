"""A scenario as Parquet, its truth beside it."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
from fleet_cases import scenario

from driftwatch.collect.recordings import open_recording
from driftwatch.collect.recordings.compact import CompactRecordingSource, Part, write_manifest
from driftwatch.fleet.generate import Chunk, generate, generate_compact
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.servers import instance_of, relabelled_of, seconds_of, targets_of
from driftwatch.fleet.truth import write_truth
from driftwatch.model import TargetKey


@pytest.fixture(scope="module")
def made() -> Scenario:
    """Ten minutes with a restart and a server whose scrapes are often missed."""
    return scenario(
        "10m",
        name="short",
        traffic={"requests_per_second": 2.0, "timeout": "30s"},
        faults=[
            {"kind": "restart", "at": "4m", "replicas": [0], "down": "40s"},
            {"kind": "missed_scrapes", "at": "1m", "ratio": 0.2, "replicas": [1]},
            {"kind": "clock_throttle", "at": "5m", "factor": 1.5, "replicas": [1]},
        ],
        truth={"effects": [{"what": "a", "kind": "restart", "at": "4m", "replicas": [0]}]},
    )


@pytest.fixture(scope="module")
def chunks(made: Scenario) -> list[Chunk]:
    return list(generate(made, 4))


@pytest.fixture(scope="module")
def compact(made: Scenario, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet") / "compact"
    generate_compact(made, 4, folder)
    write_truth(made, 4, folder)
    return folder


def test_failed_scrapes_have_their_reason(made: Scenario, compact: Path) -> None:
    parquet = open_recording(compact)
    down = parquet.collect(*parquet.span()).scrapes.filter(~pl.col("ok"))
    restarting = down.filter(pl.col("instance") == instance_of(made, 0))
    start = made.start + timedelta(minutes=4)
    assert restarting["time"].is_between(start, start + timedelta(seconds=41)).all()
    assert 2 <= len(restarting) <= 3
    assert set(restarting["reason"]) == {"no answer: connection refused"}
    missed = down.filter(pl.col("instance") == instance_of(made, 1))
    assert 3 <= len(missed) <= 15 and missed["reason"].str.contains("timed out").all()


def test_processes_and_order_change_nothing(made: Scenario, compact: Path, tmp_path: Path) -> None:
    generate_compact(made, 4, tmp_path / "two", jobs=2)
    names = sorted(path.name for path in (tmp_path / "two").iterdir())
    assert names == sorted({p.name for p in compact.iterdir()} - {"truth.json", "driftwatch.yaml"})
    for name in names:
        assert (tmp_path / "two" / name).read_bytes() == (compact / name).read_bytes()
    generate_compact(made, 5, tmp_path / "other")
    assert (tmp_path / "other" / "recording.json").read_bytes() != (
        compact / "recording.json"
    ).read_bytes()


def test_truth_and_configuration_stand_beside(made: Scenario, compact: Path) -> None:
    from driftwatch.settings import load_settings

    truth = json.loads((compact / "truth.json").read_text())
    start, end = seconds_of(made)
    assert (truth["scenario"], truth["seed"]) == ("short", 4)
    (effect,) = truth["effects"]
    assert (effect["start_seconds"], effect["end_seconds"]) == (start + 240, end)
    assert effect["instances"] == [instance_of(made, 0)]
    first, second = truth["servers"]
    assert first["lives"] == [[start, start + 240], [start + 280, end]]
    assert second["lives"] == [[start, end]] == second["listed"]
    settings = load_settings(compact / "driftwatch.yaml")
    assert settings.pools[0].gpu_uuids == (*first["gpu_uuids"], *second["gpu_uuids"])


def test_a_restart_begins_at_zero_and_a_throttled_clock_is_seen(
    made: Scenario, chunks: list[Chunk]
) -> None:
    rows = chunks[0].scrapes.filter("ok")
    counted = rows["generation_tokens_total"].to_list()
    falls = [k for k in range(1, len(counted)) if counted[k] < counted[k - 1]]
    assert len(falls) == 1
    assert rows["process_start_time_seconds"].n_unique() == 2
    clocks = chunks[1].gpus.select("time", "sm_clock_hertz")
    later = clocks["time"] >= made.start + timedelta(minutes=5)
    before, after = clocks.filter(~later), clocks.filter(later)
    assert before["sm_clock_hertz"].n_unique() == 1
    assert after["sm_clock_hertz"][0] == pytest.approx(before["sm_clock_hertz"][0] / 1.5, rel=1e-3)


def test_each_server_has_its_release_of_that_moment(tmp_path: Path) -> None:
    rollout = {"kind": "rollout", "at": "1h", "every": "10m", "down": "1m"}
    made = scenario(
        "2h",
        pool={"name": "chat", "replicas": 2, "vllm_version": "0.32.0"},
        faults=[{**rollout, "vllm_version": "0.33.0"}],
    )
    start = made.start.timestamp()
    part = Part(file="no.scrapes.parquet", kind="scrapes", first=start, last=start + 7200.0, rows=1)
    write_manifest(tmp_path, [part], targets_of(made), relabelled=relabelled_of(made))
    source = CompactRecordingSource(tmp_path)
    first, second = TargetKey("chat-0:8000", "0"), TargetKey("chat-1:8000", "0")

    def releases(after: timedelta) -> list[str]:
        targets = source.targets_until(made.start + after)
        return [targets[key].labels["vllm_version"] for key in (first, second)]

    assert releases(timedelta(minutes=61)) == ["0.32.0", "0.32.0"]  # it is down still
    assert releases(timedelta(minutes=61, seconds=1)) == ["0.33.0", "0.32.0"]
    assert releases(timedelta(hours=2)) == ["0.33.0", "0.33.0"]
    labels = source.targets_until(made.start + timedelta(hours=2))[first].labels
    assert labels["model_name"] == "meta-llama/Llama-3.1-8B"  # the others stay
