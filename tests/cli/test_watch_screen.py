"""What watch says of a server once: only what is unknown, and only the flags that would tell."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest

from driftwatch.cli.watch import _Screen
from driftwatch.evidence import BY_NAME
from driftwatch.pipeline.state import Outcome

S, B = "max_num_seqs", "max_num_batched_tokens"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "give --startup-log FILE or --max-num-seqs N --max-num-batched-tokens N"),
        ({S: 8.0}, "give --startup-log FILE or --max-num-batched-tokens N"),
        ({B: 512.0}, "give --startup-log FILE or --max-num-seqs N"),
        ({S: 8.0, B: 512.0}, None),
    ],
)
def test_only_what_is_missing_is_asked_for(
    given: dict[str, float], said: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    row: dict[str, Any] = dict.fromkeys(BY_NAME)
    row |= {"instance": "a:1", "engine": "0", "end": datetime(2026, 1, 5, 12, tzinfo=UTC)}
    row |= {"scrapes": 4.0, **given}
    rows = pl.DataFrame([row])
    _Screen({}, to_stderr=False).show(Outcome(rows, pl.DataFrame()))
    lines = capsys.readouterr().out.splitlines()
    told = " ".join(line.strip() for line in lines if "--" in line)
    assert told == (said or "")
    assert max(map(len, lines)) <= 80
    assert not any(line.strip() == "N" for line in lines)
    unknown = [line for line in lines if "not in /metrics" in line]
    assert [name in " ".join(unknown) for name in (S, B)] == [name not in given for name in (S, B)]
