"""``driftwatch ... | head``: the reader goes, and nothing is said about it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

MAIN = "import sys; sys.argv[1:] = {}; from driftwatch.cli.main import main; main()"


@pytest.mark.parametrize(
    "arguments",
    [
        ["evidence", "queue"],
        ["replay", "driftwatch/_demo/run_cap.jsonl.gz", "--json"],
    ],
)
def test_a_reader_that_went_is_no_error(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ran = subprocess.run(
            [sys.executable, "-c", MAIN.format(arguments)],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writer)
    progress = "replaying: "  # of a replay that takes long, every 30 s
    assert [line for line in ran.stderr.splitlines() if not line.startswith(progress)] == []
    assert ran.returncode == 141
