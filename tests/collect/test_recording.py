"""Recordings: the real ones, every way a file can be bad, and the compact form of them."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from driftwatch.collect.recordings import open_recording
from driftwatch.collect.recordings.compact import CompactRecordingSource
from driftwatch.collect.recordings.text import HOW_TO_RECORD, RecordingSource
from driftwatch.collect.schema import Collected
from driftwatch.errors import RecordingError
from driftwatch.model import TargetKey
from tests.compact_recording import write_compact

T = 1_700_000_000.0


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(T + seconds, UTC)


def page(running: float, engine: str = "0") -> str:
    return f'vllm:num_requests_running{{engine="{engine}",model_name="m"}} {running}\n'


def scrape(seconds: float, running: float = 1, **fields: Any) -> str:
    return json.dumps({"t": T + seconds, "status": 200, "body": page(running)} | fields)


def write(tmp_path: Path, *lines: str | bytes) -> Path:
    path = tmp_path / "scrapes.jsonl"
    path.write_bytes(b"".join(x if isinstance(x, bytes) else x.encode() + b"\n" for x in lines))
    return path


def everything(path: Path) -> Collected:
    source = RecordingSource(path)
    return source.collect(*source.span())


def running(collected: Collected) -> list[float | None]:
    return collected.scrapes["running_requests"].to_list()


# --- real recordings


def test_run_main(shared_data: Path) -> None:
    source = RecordingSource(shared_data / "vllm-0.32" / "run_main", instance="a:1")
    collected = source.collect(*source.span())
    frame = collected.scrapes
    assert collected.problems == ()
    assert frame["ok"].all()
    assert frame["time"].is_sorted()
    assert set(collected.targets) == {TargetKey("a:1", "0")}
    assert collected.targets["a:1", "0"].labels == {  # type: ignore[index]
        "instance": "a:1",
        "engine": "0",
        "model_name": "tiny-llama",
    }
    with gzip.open(shared_data / "vllm-0.32" / "run_main" / "scrapes.jsonl.gz") as file:
        lines = [json.loads(line) for line in file]
    assert len(frame) == len(lines)
    for row, line in zip(frame.iter_rows(named=True), lines, strict=True):
        assert abs(row["time"].timestamp() - line["t"]) < 1e-5
        (tokens,) = (
            float(text.split()[-1])
            for text in line["body"].splitlines()
            if text.startswith("vllm:generation_tokens_total{")
        )
        assert row["generation_tokens_total"] == tokens


def test_intervals_are_half_open_and_add_up(shared_data: Path) -> None:
    source = RecordingSource(shared_data / "vllm-0.32" / "run_cap")
    first, end = source.span()
    whole = source.collect(first, end).scrapes
    assert whole["time"].max() == end - timedelta(microseconds=1)
    middle = whole["time"][100]
    parts = [source.collect(first, middle).scrapes, source.collect(middle, end).scrapes]
    assert [len(part) for part in parts] == [100, 251]
    assert pl.concat(parts).equals(whole)


# --- lines


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"t": 1, "stat', "Invalid JSON: "),
        (b'{"t": 1, "body": "\xff"}\n', "Invalid JSON: "),
        (json.dumps({"status": 200, "body": "up 1\n"}), "t: Field required"),
        (scrape(0, t="now"), "t: Input should be a valid number"),
        (scrape(0, t=1e300), "t: Input should be less than or equal to 253402300799"),
        (scrape(2, body=None), "body: Input should be a valid string"),
        (scrape(2, status=[200]), "status: Input should be a valid integer"),
    ],
)
def test_a_broken_line_is_named_and_the_rest_is_kept(
    tmp_path: Path, line: str | bytes, why: str
) -> None:
    path = write(tmp_path, scrape(0, 1), line, "", scrape(5, 2))
    collected = everything(path)
    assert running(collected) == [1.0, 2.0]
    (problem,) = collected.problems
    assert problem.where == f"{path}:2"
    assert problem.reason.startswith(why)
    # it belongs to the time of the line before it
    assert problem.time == at(0)
    assert RecordingSource(path).collect(at(1), at(9)).problems == ()


def test_of_two_scrapes_of_one_time_the_first_is_kept(tmp_path: Path) -> None:
    path = write(tmp_path, scrape(0, 1), scrape(0, 2), scrape(0, 3, instance="b:1"))
    collected = everything(path)
    assert collected.scrapes["instance"].to_list() == ["b:1", "host:8000"]
    assert running(collected) == [3.0, 1.0]
    (problem,) = collected.problems
    assert problem.where == f"{path}:2"
    assert (
        problem.reason == f"another scrape of host:8000 at {at(0).isoformat()}: the first is kept"
    )


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"status": "exc", "body": "Refused(\n  111)"}, "no answer: Refused( 111)"),
        ({"status": "timeout", "body": ""}, "no answer: timeout"),
        ({"status": 503, "body": "busy"}, "answered 503"),
        ({"body": ""}, "empty page (0 bytes)"),
        ({"body": page(1)[:-1]}, "page cut off at byte 54, line 1"),
    ],
)
def test_a_failed_scrape_is_a_row_for_each_engine(
    tmp_path: Path, fields: dict[str, Any], reason: str
) -> None:
    both = page(1, "0") + page(2, "1")
    path = write(tmp_path, scrape(0, body=both), scrape(5, **fields), scrape(10, body=both))
    collected = everything(path)
    assert collected.problems == ()
    failed = collected.scrapes.filter(~pl.col("ok"))
    assert failed.select("engine", "time", "reason").rows() == [
        ("0", at(5), reason),
        ("1", at(5), reason),
    ]
    assert len(collected.scrapes) == 6


def test_a_packed_file_that_ends_early_keeps_what_is_there(
    tmp_path: Path, shared_data: Path
) -> None:
    real = shared_data / "vllm-0.32" / "run_main" / "scrapes.jsonl.gz"
    path = tmp_path / "scrapes.jsonl.gz"
    path.write_bytes(real.read_bytes()[:-100])
    whole, collected = everything(real).scrapes, everything(tmp_path)
    (problem,) = collected.problems
    assert "the gzip data ends or breaks here" in problem.reason
    n = len(collected.scrapes)
    assert n > 100
    assert problem.where == f"{path}:{n + 1}"
    assert collected.scrapes.equals(whole.head(n))


# --- no recording at all


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("", ":1: not a recording: the file is empty"),
        ("# HELP up x\nup 1\n", ":1: not a recording: Invalid JSON: "),
        ('\n{"queries": {}}\n', ":2: not a recording: t: Field required"),
    ],
)
def test_a_file_that_is_no_recording(tmp_path: Path, body: str, why: str) -> None:
    path = write(tmp_path, body.encode())
    with pytest.raises(RecordingError) as raised:
        everything(path)
    assert raised.value.message.startswith(f"{path}{why}")
    assert raised.value.help_text == HOW_TO_RECORD
    assert "curl" in HOW_TO_RECORD


@pytest.fixture(scope="module")
def text(shared_data: Path) -> RecordingSource:
    return RecordingSource(shared_data / "vllm-0.32" / "run_cap")


@pytest.fixture(scope="module")
def folder(text: RecordingSource, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("compact") / "run_cap"
    write_compact(text, made)
    return made


def test_text_and_parquet_give_the_same_table(text: RecordingSource, folder: Path) -> None:
    compact = open_recording(folder)
    assert isinstance(compact, CompactRecordingSource)
    assert compact.span() == text.span()
    want, got = text.collect(*text.span()), compact.collect(*text.span())
    assert_frame_equal(got.scrapes, want.scrapes)
    assert_frame_equal(got.gpus, want.gpus)
    assert got.targets == want.targets
    assert got.problems == want.problems
    failed = got.scrapes.filter(~pl.col("ok"))
    assert len(failed) == 7  # as its README says
    assert failed["generation_tokens_total"].null_count() == 7
    assert set(failed["reason"]) == {"no answer: connection refused"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "version: Input should be 1"),
        ({"format": "another"}, "format: Input should be 'driftwatch-compact-recording'"),
        ({"parts": []}, "parts: Tuple should have at least 1 item"),
        ({"parts": [{"file": "x"}]}, "parts.0.kind: Field required"),
        ({"parts": [{"file": "../x"}]}, "parts.0.file: .*a part lies beside the manifest"),
        ({"targets": [3]}, "targets.0: Input should be an object"),
    ],
)
def test_a_wrong_manifest_is_named(
    folder: Path, tmp_path: Path, change: dict[str, object], said: str
) -> None:
    manifest = json.loads((folder / "recording.json").read_text()) | change
    (tmp_path / "recording.json").write_text(json.dumps(manifest))
    with pytest.raises(RecordingError, match=f"{tmp_path}/recording.json: .*{said}"):
        open_recording(tmp_path).span()


def test_a_broken_part_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "recording.json").write_bytes((folder / "recording.json").read_bytes())
    source = open_recording(tmp_path)
    with pytest.raises(RecordingError, match=r"all\.scrapes\.parquet"):
        source.collect(*source.span())
    (tmp_path / "all.scrapes.parquet").write_bytes(b"PAR1 no PAR1")
    with pytest.raises(RecordingError, match=r"all\.scrapes\.parquet: not a part"):
        source.collect(*source.span())


def test_columns_of_another_release_are_unknown_or_passed_over(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "recording.json").write_bytes((folder / "recording.json").read_bytes())
    whole = pl.read_parquet(folder / "all.scrapes.parquet")
    source = open_recording(tmp_path)
    whole.drop(whole.columns[-1]).write_parquet(tmp_path / "all.scrapes.parquet")
    older = source.collect(*source.span()).scrapes
    assert older[whole.columns[-1]].is_null().all() and older["ok"].any()
    whole.with_columns(later=pl.lit(1)).write_parquet(tmp_path / "all.scrapes.parquet")
    assert source.collect(*source.span()).scrapes.equals(whole)
