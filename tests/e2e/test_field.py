"""What is said of situations that people report in public (shared/data/field)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from e2e_cases import pages


@pytest.fixture
def field(shared_data: Path) -> Path:
    return shared_data / "field"


def test_06_the_next_prompt_does_not_fit(run: Any, field: Path) -> None:
    """One request holds three quarters of the cache, and 14 wait: no max_num_seqs of 1."""
    recording = field / "06-one-runs-14-wait/scrapes.jsonl.gz"
    told = pages(run("replay", "--json", recording))
    assert [(p["alert"], p["severity"]) for p in told] == [("BatchLimitBinding", "page")]
    assert told[0]["diagnosis"]["leaf"] == "kv_pressure"
    shown = run("replay", recording).output
    assert "the KV cache is full" in shown
    assert "no room for the next prompt" in shown.replace("\n         ", " ")
    assert "inferred" not in shown
