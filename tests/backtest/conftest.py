"""A fleet over midnight, recorded: simulated once, with what histories have in them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from driftwatch.cli.main import cli, main
from driftwatch.collect.recordings.compact import (
    CompactRecordingSource,
    write_manifest,
    write_part,
)
from driftwatch.collect.schema import KEY, in_order

Run = Callable[..., tuple[int, str, str]]
SCENARIO = """\
name: midnight
title: three servers over midnight, one restarts
duration: 4h
start: 2026-11-16T21:30:00Z
scrape: {interval: 30s}
pool: {replicas: 3, slo: {ttft_seconds: 1.0, tpot_seconds: 0.05}}
traffic: {requests_per_second: 4}
faults: [{kind: restart, at: 100m, replicas: [0]}]
truth: {baseline: {at: 1m, until: 90m}}
"""
MIDNIGHT = datetime.fromisoformat("2026-11-17T00:00:00+00:00")


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compact recording with its configuration.

    Server 0 restarts at 23:10; server 1 is not scraped from 23:50 to 00:07, retired in it and back;
    server 2 does not answer before 22:00 and is scraped no more from 00:30 on.
    """
    folder = tmp_path_factory.mktemp("fleet")
    (folder / "midnight.yaml").write_text(SCENARIO)
    made = CliRunner().invoke(
        cli,
        f"demo --scenario {folder}/midnight.yaml --write {folder}/made",
    )
    assert made.exit_code == 0, made.output
    source = CompactRecordingSource(folder / "made")
    whole = source.collect(*source.span())
    servers = sorted({key.instance for key in whole.targets})
    time, instance = pl.col("time"), pl.col("instance")
    away = time.is_between(MIDNIGHT - timedelta(minutes=10), MIDNIGHT + timedelta(minutes=7))
    gone = time > MIDNIGHT + timedelta(minutes=30)
    scrapes = whole.scrapes.filter(
        ~((instance == servers[1]) & away), ~((instance == servers[2]) & gone)
    )
    early = (instance == servers[2]) & (time < MIDNIGHT - timedelta(hours=2))
    failed = scrapes.filter(early).select(
        *KEY, "time", ok=pl.lit(False), reason=pl.lit("Unavailable: connection refused")
    )
    scrapes = in_order(pl.concat([scrapes.filter(~early), failed], how="diagonal"))
    cut = folder / "cut"
    cut.mkdir()
    write_manifest(cut, write_part(cut, "all", scrapes, whole.gpus), whole.targets)
    (cut / "driftwatch.yaml").write_text((folder / "made" / "driftwatch.yaml").read_text())
    return cut


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`run("--recording", path)` in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def typed(*words: object, terminal: bool = False) -> tuple[int, str, str]:
        line = ["driftwatch", "rules", "backtest", *map(str, words)]
        monkeypatch.setattr(sys, "argv", line)
        monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, printed.out, printed.err

    return typed
