"""The recording that ships is the full one, less what driftwatch does not read."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHORT = ROOT / "driftwatch" / "_demo" / "run_cap.jsonl.gz"
SCRIPT = ROOT / "scripts" / "make-demo-recording"


def _make(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_is_what_the_script_makes(shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "vllm-0.32" / "run_cap" / "scrapes.jsonl.gz"
    ran = _make("--check", source, SHORT)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    first, second = tmp_path / "a.gz", tmp_path / "b.gz"
    assert _make(source, first, PYTHONHASHSEED="0").returncode == 0
    assert _make(source, second, PYTHONHASHSEED="1").returncode == 0
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.slow
def test_it_gives_the_same_pages_as_the_full_one(shared_data: Path) -> None:
    """What was left out is not read: the pages are equal to the byte."""
    full = shared_data / "vllm-0.32" / "run_cap" / "scrapes.jsonl.gz"
    code = "from driftwatch.cli.main import main; main()"
    said = [
        subprocess.run(
            [sys.executable, "-c", code, "replay", recording, "--json"],
            capture_output=True,
            check=True,
        ).stdout
        for recording in (full, SHORT)
    ]
    assert said[0] == said[1]
    assert said[0].count(b"\n") >= 2


def test_every_line_is_a_scrape() -> None:
    scrapes = [json.loads(line) for line in gzip.decompress(SHORT.read_bytes()).splitlines()]
    times = [scrape["t"] for scrape in scrapes]
    assert times == sorted(times)
    assert {"phase"} & set().union(*scrapes) == set()
    failed = [scrape for scrape in scrapes if scrape["status"] != 200]
    assert failed, "the restart is in it"
    assert all("vllm:" in s["body"] for s in scrapes if s["status"] == 200)
