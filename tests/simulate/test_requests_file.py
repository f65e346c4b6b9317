"""Request logs in any format, and everything that can be wrong with one."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from driftwatch.errors import WorkloadError
from driftwatch.simulate.requests import LOOK_UP, NO_GROUP
from driftwatch.simulate.workload.requests_file import read_requests

ROWS = pl.DataFrame(
    {
        "arrival_seconds": [0.0, 0.1 + 0.2, 0.30000000000000004, 17.25],
        "prompt_tokens": [374, 396, 879, 1],
        "generation_tokens": [44, 1, 55, 2_000_000],
        "priority": [0, -3, 5, 0],
        "prefix_group": [None, 2, 2, -1],
        "shared_prefix_tokens": [0, 64, 10_000, 0],
        "cached_tokens": [None, 32, 0, -1],
        "cancel_seconds": [None, 1.5, None, 17.25],
    }
)


def written(folder: Path, kind: str, frame: pl.DataFrame = ROWS) -> Path:
    """The frame as a file whose name says nothing."""
    path = folder / f"log_{kind}"
    plain = kind.removesuffix("_gz")
    if plain == "csv":
        frame.write_csv(path)
    elif plain == "semicolon":
        frame.write_csv(path, separator=";", line_terminator="\r\n", include_bom=True)
    else:
        frame.write_ndjson(path)
    if kind.endswith("_gz"):
        path.write_bytes(gzip.compress(path.read_bytes()))
    return path


KINDS = ("csv", "csv_gz", "semicolon", "jsonl", "jsonl_gz")


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_gives_the_same_numbers_to_the_last_bit(kind: str, tmp_path: Path) -> None:
    found = read_requests(written(tmp_path, kind))
    assert found.arrival_seconds.tolist() == ROWS["arrival_seconds"].to_list()
    assert found.prompt_tokens.tolist() == [374, 396, 879, 1]
    assert found.generation_tokens.tolist() == [44, 1, 55, 2_000_000]
    assert found.priority.tolist() == [0, -3, 5, 0]
    assert found.prefix_group.tolist() == [NO_GROUP, 2, 2, NO_GROUP]
    # the group's text is longer than the prompt that begins with it
    assert found.shared_prefix_tokens.tolist() == [0, 64, 879, 0]
    assert found.cached_tokens.tolist() == [LOOK_UP, 32, 0, LOOK_UP]
    assert found.cancel_seconds.tolist() == [np.inf, 1.5, np.inf, 17.25]
    assert found.prompt_tokens.dtype == np.int64


def said(path: Path) -> list[str]:
    with pytest.raises(WorkloadError) as caught:
        read_requests(path)
    return [text.removeprefix(str(path)) for text in caught.value.problems]


HEAD = "arrival_seconds,prompt_tokens,generation_tokens"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"{HEAD}\n0,5,5\n-1,5,5\n", ":3: arrival_seconds is -1, not a time from 0 on"),
        (f"{HEAD}\n2,5,5\n1,5,5\n", ":3: arrival_seconds is before that of the row above"),
        (f"{HEAD}\nnan,5,5\n", ":2: arrival_seconds is nan, not a time"),
        (f"{HEAD}\ninf,5,5\n", ":2: arrival_seconds is inf, not a time"),
        (f"{HEAD}\nsoon,5,5\n", ":2: arrival_seconds is soon, not a time"),
        (f"{HEAD}\n0,0,5\n", ":2: prompt_tokens is 0, not a whole number from 1 to 2,147,483,647"),
        (f"{HEAD}\n0,5,2.5\n", ":2: generation_tokens is 2.5, not a whole number"),
        (f"{HEAD}\n0,5,99999999999\n", ":2: generation_tokens is 99999999999, not a whole"),
        (f"{HEAD}\n0,,5\n", ":2: no prompt_tokens"),
        (f"{HEAD}\n0,5,5\n0,5,5,5\n", ":3: 4 fields, the header has 3"),
        (f"{HEAD},cancel_seconds\n4,5,5,3\n", ":2: cancel_seconds is before arrival_seconds"),
        (f"{HEAD},cached_tokens\n4,5,5,5\n", ":2: cached_tokens is not below prompt_tokens"),
        (f"{HEAD},shared_prefix_tokens\n4,5,5,5\n", ":2: shared_prefix_tokens without a prefix"),
        (f"{HEAD},prefix_group\n4,5,5,5\n", ": prefix_group without a column shared_prefix"),
        ("", ": the file is empty"),
        (f"{HEAD}\n", ": no request in it"),
        ('[{"arrival_seconds": 0}]', ": a JSON array; driftwatch reads one object a line (JSONL)"),
        ("arrival,prompt_tokens,generation_tokens\n0,1,1\n", ": no column arrival_seconds (there"),
    ],
)
def test_what_cannot_be_is_named_with_its_line(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(text)
    (found,) = said(path)
    assert found.startswith(problem)


GOOD = '{"arrival_seconds": 1, "prompt_tokens": 5, "generation_tokens": 6}\n'


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"arrival_seconds": 1, "prompt_tokens": 5', ":2: no JSON: "),
        (GOOD.replace("5", "true"), ":2: prompt_tokens is true, not a whole number"),
        (GOOD.replace("5", '"5"'), ':2: prompt_tokens is "5", not a whole number'),
        (GOOD.replace("5", "5.5"), ":2: prompt_tokens is 5.5, not a whole number"),
        (GOOD.replace('"prompt_tokens": 5, ', ""), ":2: no prompt_tokens"),
    ],
)
def test_a_bad_line_of_json_is_named(line: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(f"{GOOD}{line.strip()}\n\n{GOOD}")
    (found,) = said(path)
    assert found.startswith(problem)


def test_all_problems_at_once_the_first_twenty_by_line(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"{HEAD}\n" + "".join(f"{at},5,{-(at % 2)}\n" for at in range(5000)))
    found = said(path)
    assert len(found) == 21
    assert found[0] == ":2: generation_tokens is 0, not a whole number from 1 to 2,147,483,647"
    assert found[1].startswith(":3: generation_tokens is -1, not")
    assert found[19].startswith(":21: ")
    assert found[20] == ": and 4,980 more"


@pytest.mark.parametrize("damage", ["cut", "crc"])
def test_damaged_gzip(damage: str, tmp_path: Path) -> None:
    path = written(tmp_path, "csv_gz", pl.concat([ROWS.head(1)] * 5000))
    data = bytearray(path.read_bytes())
    if damage == "cut":
        data = data[: len(data) // 2]
    else:
        data[-6] ^= 0xFF
    path.write_bytes(data)
    (found,) = said(path)
    assert found.startswith(": the gzip data are cut off or damaged")


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: None, ": No such file or directory"),
        (lambda path: path.mkdir(), ": Is a directory"),
        (lambda path: path.write_bytes(b"\x00\xff\xfe" * 99), ": no column arrival_seconds"),
    ],
)
def test_no_table_at_all(make: Callable[[Path], object], problem: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    make(path)
    (found,) = said(path)
    assert found.startswith(problem)


def test_a_log_in_order_of_completion_is_sorted_where_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"{HEAD}\n2,5,6\n1,7,8\n3,9,4\n")
    found = read_requests(path, any_order=True)
    assert found.arrival_seconds.tolist() == [1.0, 2.0, 3.0]
    assert found.prompt_tokens.tolist() == [7, 5, 9]
    assert found.generation_tokens.tolist() == [8, 6, 4]


@pytest.mark.parametrize("name", ["azure_2023_conv", "azure_2023_code"])
def test_azure_as_a_plain_reader_reads_it(name: str, shared_data: Path) -> None:
    path = shared_data / "traces" / f"{name}.csv.gz"
    found = read_requests(path)
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
    found = read_requests(path)
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
    found = said(path)
    assert found[0].startswith(":2: TIMESTAMP is yesterday, not a time as 2023-11-16")
    assert found[1] == ":3: GeneratedTokens is 0, not a whole number from 1 to 2,147,483,647"
    assert found[2] == ":4: no TIMESTAMP"
    assert found[3].startswith(":6: arrival_seconds is before that of the row above")
