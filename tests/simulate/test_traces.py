"""Azure and Mooncake traces."""

from __future__ import annotations

import csv
import gzip
from datetime import datetime
from pathlib import Path

import pytest

from driftwatch.errors import WorkloadError
from driftwatch.simulate.requests import Requests
from driftwatch.simulate.workload import Workload, read_workload


def azure(path: Path) -> Requests:
    return read_workload(path).requests


def mooncake(path: Path, limit: int | None = None) -> Workload:
    return read_workload(path, limit=limit)


@pytest.mark.parametrize("name", ["azure_2023_conv", "azure_2023_code"])
def test_azure_as_a_plain_reader_reads_it(name: str, shared_data: Path) -> None:
    path = shared_data / "traces" / f"{name}.csv.gz"
    found = azure(path)
    with gzip.open(path, "rt") as lines:
        rows = list(csv.DictReader(lines))
    # seven decimals: datetime takes six, the last one of this trace is always 0
    times = [datetime.fromisoformat(row["TIMESTAMP"][:26]) for row in rows]
    seconds = [(at - times[0]).total_seconds() for at in times]
    assert found.arrival_seconds.tolist() == seconds
    assert found.prompt_tokens.tolist() == [int(row["ContextTokens"]) for row in rows]
    assert found.generation_tokens.tolist() == [int(row["GeneratedTokens"]) for row in rows]


def test_azure_2024_writes_a_zone_and_drops_empty_decimals(tmp_path: Path) -> None:
    path = tmp_path / "AzureLLMInferenceTrace_code_1week.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-05-10 00:00:00.009930+00:00,2162,5\n"
        "2024-05-10 00:00:01+00:00,2399,6\n"
        "2024-05-10 02:00:01.5000001+02:00,76,15\n"
    )
    found = azure(path)
    assert found.arrival_seconds.tolist() == [0.0, 0.99007, 1.4900701]


def test_wrong_times_and_tokens_of_a_trace_are_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "yesterday,5,5\n"
        "2024-05-10 00:00:09,5,0\n"
        ",5,5\n"
        "2024-05-10 00:00:10,5,1\n"
        "2024-05-10 00:00:08,5,1\n"
    )
    with pytest.raises(WorkloadError) as caught:
        azure(path)
    found = [text.removeprefix(str(path)) for text in caught.value.problems]
    assert found[0].startswith(":2: TIMESTAMP is yesterday, no time as 2023-11-16")
    assert found[1] == ":3: GeneratedTokens is 0: at least 1"
    assert found[2] == ":4: no TIMESTAMP"
    assert found[3].startswith(":6: arrival_seconds -1.0 is before the row above (1.0)")


def test_mooncake_gives_times_and_lengths(tmp_path: Path) -> None:
    path = tmp_path / "mooncake.jsonl"
    row = '{"timestamp": %d, "input_length": 600, "output_length": %d, "hash_ids": [1]}\n'
    path.write_text(row % (0, 5) + row % (1500, 7))
    found = read_workload(path)
    assert found.source == "Mooncake trace"
    assert found.requests.arrival_seconds.tolist() == [0.0, 1.5]
    assert found.requests.generation_tokens.tolist() == [5, 7]
    assert found.notes == ("columns not used: hash_ids",)
