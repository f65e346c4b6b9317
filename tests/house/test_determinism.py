"""The same input gives the same bytes, whatever the hash seed and the number of threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORDING = ROOT / "driftwatch" / "_demo" / "run_cap.jsonl.gz"


def _replay(folder: Path, seed: int, threads: int) -> bytes:
    """What ``driftwatch replay --json`` prints."""
    folder.mkdir()
    code = "from driftwatch.cli.main import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", code, "replay", RECORDING, "--json"],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONHASHSEED": str(seed),
            "POLARS_MAX_THREADS": str(threads),
        },
        capture_output=True,
        check=False,
    )
    assert ran.returncode in (0, 1), ran.stderr.decode()
    return ran.stdout


def test_replay_is_the_same_to_the_byte(tmp_path: Path) -> None:
    first = _replay(tmp_path / "first", seed=0, threads=1)
    assert _replay(tmp_path / "again", seed=1, threads=2) == first
    pages = [json.loads(line) for line in first.decode().splitlines()]
    assert [page["event"] for page in pages if page["severity"] == "page"] == ["firing", "resolved"]
