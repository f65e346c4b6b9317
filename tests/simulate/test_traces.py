"""Azure and Mooncake traces."""

from __future__ import annotations

import csv
import gzip
import json
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from driftwatch.errors import WorkloadError
from driftwatch.simulate.requests import NO_GROUP, Requests
from driftwatch.simulate.workload import Workload, read_workload
from driftwatch.simulate.workload.prefixes import BLOCK_TOKENS


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


def trace(folder: Path, rows: list[tuple[int, int, int, list[int]]], kind: str = "jsonl") -> Path:
    """A file in Mooncake's form."""
    names = ("timestamp", "input_length", "output_length", "hash_ids")
    path = folder / f"mooncake.{kind}"
    if kind == "parquet":
        pl.DataFrame(rows, schema=names, orient="row").write_parquet(path)
    else:
        path.write_text(
            "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
        )
    return path


def shared_at_most(requests: Requests, one: int, other: int) -> int:
    """Tokens that the groups say two requests share."""
    group = requests.prefix_group[one]
    if group == NO_GROUP or group != requests.prefix_group[other]:
        return 0
    return int(min(requests.shared_prefix_tokens[one], requests.shared_prefix_tokens[other]))


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_mooncake_conversations_become_groups(kind: str, tmp_path: Path) -> None:
    rows = [
        (0, 1024, 10, [0, 1]),  # a conversation after the common block 0
        (500, 1536, 20, [0, 2, 3]),  # another one
        (1500, 2048, 30, [0, 1, 4, 5]),  # the first goes on
        (2500, 2600, 40, [0, 1, 4, 5, 6, 7]),
        (3000, 400, 50, [8]),  # alone
        (3500, 1600, 60, [0, 2, 3, 9]),  # the second goes on
    ]
    found = mooncake(trace(tmp_path, rows, kind))
    requests = found.requests
    assert requests.arrival_seconds.tolist() == [0.0, 0.5, 1.5, 2.5, 3.0, 3.5]
    first, second = requests.prefix_group[[0, 1]]
    assert requests.prefix_group.tolist() == [first, second, first, first, NO_GROUP, second]
    assert first != second
    assert requests.shared_prefix_tokens.tolist() == [1024, 1536, 2048, 2048, 0, 1536]
    # what an endless cache finds of the 2nd, 3rd, 4th and 6th; the groups lose the first of them
    ideal = 512 + 1024 + 2048 + 1536
    kept = 1024 + 2048 + 1536
    assert f"keep {100 * kept / ideal:.3g} % of the {ideal:,} prompt tokens" in found.notes[0]
    assert "lost" in found.notes[0]


def test_groups_never_say_more_than_the_blocks(tmp_path: Path) -> None:
    """On a random forest of conversations: what two requests share by group they share by id."""
    rng = np.random.default_rng(5)
    chains: list[list[int]] = [[]]
    rows, fresh = [], 0
    for at in range(400):
        chain = list(chains[rng.integers(len(chains))])
        for _ in range(rng.integers(1, 4)):
            chain.append(fresh)
            fresh += 1
        chains.append(chain)
        prompt = len(chain) * BLOCK_TOKENS - int(rng.integers(0, BLOCK_TOKENS))
        rows.append((at, prompt, 5, chain))
    requests = mooncake(trace(tmp_path, rows)).requests
    assert (requests.prefix_group != NO_GROUP).sum() > 200
    for one in range(400):
        for other in range(one):
            common = 0
            for a, b in zip(rows[one][3], rows[other][3], strict=False):
                if a != b:
                    break
                common += BLOCK_TOKENS
            assert shared_at_most(requests, one, other) <= common


def test_broken_hash_ids_are_named(tmp_path: Path) -> None:
    path = tmp_path / "mooncake.jsonl"
    row = '{"timestamp": 5, "input_length": 600, "output_length": 5, "hash_ids": %s}\n'
    path.write_text(row % "[1, 2]" + row % '"x"' + row % "[7, 2]" + row % "[1.5]")
    with pytest.raises(WorkloadError) as caught:
        read_workload(path)
    assert [text.removeprefix(str(path)) for text in caught.value.problems] == [
        ":2: hash_ids is no list of whole numbers",
        ":3: hash id 2 follows another block than before",
        ":4: hash_ids is no list of whole numbers",
    ]
