"""``driftwatch worker``: where it works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from driftwatch.settings import load_settings


def test_it_needs_a_database_that_several_processes_write_to(run: Any) -> None:
    Path("driftwatch.yaml").write_text("sources: [{pages: [http://h:8000/metrics]}]\n")
    code, _, error = run("worker")
    assert code == 2
    assert "workers need PostgreSQL, and the database is" in error


@pytest.mark.parametrize(
    ("database", "said", "batches"),
    [
        ("d.db", "", 1),
        ("d.db", "batches: 4", 4),
        ("postgresql://d@h/d", "", 16),
        ("postgresql://d@h/d", "batches: 1", 1),
    ],
)
def test_how_many_batches_there_are(database: str, said: str, batches: int, tmp_path: Path) -> None:
    config = tmp_path / "driftwatch.yaml"
    config.write_text(f"database: {database}\n{said}\n")
    assert load_settings(config).batch_count == batches
