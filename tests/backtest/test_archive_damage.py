"""Kept evidence that is damaged, shared, or written to a full disk: computed again, or said."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from driftwatch.backtest import day_writer
from driftwatch.backtest.archive import MANIFEST, archived_days
from driftwatch.backtest.archive_lock import locked
from driftwatch.backtest.archive_writer import keep
from driftwatch.collect.recordings import open_recording
from driftwatch.errors import NoVerdict, UsageError
from driftwatch.service.configuration import plan_of_rules

Damage = Callable[[Path], object]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20_000])


@pytest.fixture
def evidence(shared_data: Path, tmp_path: Path) -> Callable[[], Path]:
    """Keeps the evidence of a real server, half an hour: its folder."""

    def compute() -> Path:
        source = open_recording(shared_data / "vllm-0.32" / "run_cap")
        return keep([source], source.span(), plan_of_rules([]), tmp_path).folder

    return compute


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("2026-11-21.parquet", cut),
        ("2026-11-21.json", Path.unlink),
        (MANIFEST, lambda path: path.write_text('{"schema_version": 1}')),
    ],
)
def test_what_is_damaged_is_computed_again(
    name: str, damage: Damage, evidence: Callable[[], Path]
) -> None:
    folder = evidence()
    whole = {path.name: path.read_bytes() for path in folder.glob("2026-*")}
    damage(folder / name)
    assert not archived_days(folder)
    assert evidence() == folder
    assert {path.name: path.read_bytes() for path in folder.glob("2026-*")} == whole


def test_what_a_killed_one_left_is_removed(evidence: Callable[[], Path]) -> None:
    folder = evidence()
    (folder / MANIFEST).unlink()
    (folder / "2026-11-21.parquet.4711.new").write_text("half")
    (folder / "2026-11-21.4711.parts").mkdir()
    evidence()
    assert not [*folder.glob("*.new"), *folder.glob("*.parts")]


def test_two_at_once_take_turns(evidence: Callable[[], Path]) -> None:
    folder = evidence()
    manifest = (folder / MANIFEST).read_bytes()
    (folder / MANIFEST).unlink()
    second = threading.Thread(target=evidence)
    with locked(folder):
        second.start()
        second.join(0.5)
        assert second.is_alive()
        (folder / MANIFEST).write_bytes(manifest)  # the first one is done
        before = (folder / "2026-11-21.parquet").stat().st_mtime_ns
    second.join(60)
    assert (folder / "2026-11-21.parquet").stat().st_mtime_ns == before  # and it was used


def test_a_full_disk(evidence: Callable[[], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """What polars says where a file could not be written whole."""

    def write(self: pl.DataFrame, *_: object, **__: object) -> None:
        raise pl.exceptions.ComputeError("Invalid thrift: transport error")

    monkeypatch.setattr(day_writer.pl.DataFrame, "write_parquet", write)
    with pytest.raises(UsageError) as error:
        evidence()
    assert "is the disk full? Invalid thrift: transport error" in error.value.message
    assert error.value.help_text == "--keep names another folder for evidence"


def test_a_span_without_data_on_a_day_that_has_some(
    evidence: Callable[[], Path], shared_data: Path, tmp_path: Path
) -> None:
    """Whether the day was kept before or not, nothing was judged: no verdict, not "0 pages"."""
    evidence()
    source = open_recording(shared_data / "vllm-0.32" / "run_cap")
    midnight = source.span()[0].replace(hour=0, minute=0, second=0, microsecond=0)
    span = (midnight.replace(hour=2), midnight.replace(hour=3))
    for folder in (tmp_path, tmp_path / "fresh"):
        with pytest.raises(NoVerdict) as error:
            keep([source], span, plan_of_rules([]), folder)
        assert error.value.message.startswith("no usable scrape between 2026-11-21 ")
        assert "scrapes reach from 2026-11-21 08:18" in (error.value.help_text or "")
