"""The compact recording says what the text it was made from says, and refuses what it is not."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from driftwatch.collect.recordings import open_recording
from driftwatch.collect.recordings.compact import CompactRecordingSource
from driftwatch.collect.recordings.text import RecordingSource
from driftwatch.errors import RecordingError
from tests.compact_recording import write_compact


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
    assert len(failed) == 7 and failed["reason"].is_not_null().all()  # as its README says


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
