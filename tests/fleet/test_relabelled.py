"""A recording that tells which release runs, and from when on another one."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from driftwatch.collect.recordings.compact import CompactRecordingSource, Part, write_manifest
from driftwatch.errors import RecordingError
from driftwatch.fleet.scenario.model import Scenario
from driftwatch.fleet.servers import relabelled_of, targets_of
from driftwatch.model import TargetKey

ROLLOUT: dict[str, Any] = {
    "name": "upgrade",
    "title": "one replica after the other gets another release",
    "duration": "2h",
    "pool": {"name": "chat", "replicas": 2, "vllm_version": "0.32.0"},
    "traffic": {"requests_per_second": 1.0},
    "faults": [
        {
            "kind": "rollout",
            "at": "1h",
            "every": "10m",
            "down": "1m",
            "vllm_version": "0.33.0",
        }
    ],
    "truth": {},
}


def recording(folder: Path) -> tuple[Scenario, CompactRecordingSource]:
    scenario = Scenario.model_validate(ROLLOUT)
    start = scenario.start.timestamp()
    part = Part(file="no.scrapes.parquet", kind="scrapes", first=start, last=start + 7200.0, rows=1)
    write_manifest(folder, [part], targets_of(scenario), relabelled=relabelled_of(scenario))
    return scenario, CompactRecordingSource(folder)


def test_each_server_has_its_release_of_that_moment(tmp_path: Path) -> None:
    scenario, source = recording(tmp_path)
    first, second = TargetKey("chat-0:8000", "0"), TargetKey("chat-1:8000", "0")

    def releases(after: timedelta) -> list[str]:
        targets = source.targets_until(scenario.start + after)
        return [targets[key].labels["vllm_version"] for key in (first, second)]

    assert releases(timedelta(minutes=61)) == ["0.32.0", "0.32.0"]  # it is down still
    assert releases(timedelta(minutes=61, seconds=1)) == ["0.33.0", "0.32.0"]
    assert releases(timedelta(hours=2)) == ["0.33.0", "0.33.0"]
    labels = source.targets_until(scenario.start + timedelta(hours=2))[first].labels
    assert labels["model_name"] == "meta-llama/Llama-3.1-8B"  # the others stay


def test_a_recording_without_releases_says_nothing_of_them(tmp_path: Path) -> None:
    plain = ROLLOUT | {"pool": {"name": "chat", "replicas": 2}, "faults": []}
    scenario = Scenario.model_validate(plain)
    part = Part(file="no.scrapes.parquet", kind="scrapes", first=0.0, last=1.0, rows=1)
    write_manifest(tmp_path, [part], targets_of(scenario), relabelled=relabelled_of(scenario))
    assert orjson.loads((tmp_path / "recording.json").read_bytes())["relabelled"] == []
    (one, _) = CompactRecordingSource(tmp_path).targets_until(scenario.start).values()
    assert "vllm_version" not in one.labels


@pytest.mark.parametrize(
    "change",
    [
        {"since": float("nan")},
    ],
)
def test_a_broken_change_of_labels_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    _, source = recording(tmp_path)
    path = tmp_path / "recording.json"
    said = orjson.loads(path.read_bytes())
    said["relabelled"][0] |= change
    path.write_bytes(orjson.dumps(said))
    with pytest.raises(RecordingError, match=r"relabelled\.0\.since: Input"):
        source.span()
