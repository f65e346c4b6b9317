"""Helpers of the end-to-end tests: pages of a replay, the truth beside."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from click.testing import Result


def pages(result: Result) -> list[dict[str, Any]]:
    """The pages of ``replay --json``."""
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def iso(unix_seconds: float) -> str:
    """Unix seconds as the command line takes a time."""
    return datetime.fromtimestamp(unix_seconds, UTC).isoformat()


def phases(folder: Path) -> dict[str, dict[str, Any]]:
    """What was really sent, by phase name: the truth beside a recording."""
    listed = json.loads((folder / "phases.json").read_text())["phases"]
    return {phase["name"]: phase for phase in listed}
