"""``driftwatch worker``: where it works."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def test_it_needs_a_database_that_several_processes_write_to(run: Any) -> None:
    Path("driftwatch.yaml").write_text("sources: [{pages: [http://h:8000/metrics]}]\n")
    code, _, error = run("worker")
    assert code == 2
    assert "workers need PostgreSQL, and the database is" in error
