"""What watch says of a server once: only what is unknown, and only the flags that would tell."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest

from driftwatch.cli.watch import _Screen
from driftwatch.evidence import BY_NAME, TEXTS
from driftwatch.pipeline.state import Outcome
from driftwatch.signals.minutes import MINUTE_SCHEMA

S, B = "max_num_seqs", "max_num_batched_tokens"


@pytest.mark.parametrize(
    "given",
    [{}, {S: 8.0}],
    ids=["nothing", "cap"],
)
def test_only_what_is_missing_is_asked_for(
    given: dict[str, float],
    capsys: pytest.CaptureFixture[str],
    golden: Callable[[str, str], None],
    request: pytest.FixtureRequest,
) -> None:
    row: dict[str, Any] = dict.fromkeys((*BY_NAME, *TEXTS, *MINUTE_SCHEMA))
    row |= {"instance": "a:1", "engine": "0", "end": datetime(2026, 1, 5, 12, tzinfo=UTC)}
    row |= {"scrapes": 4.0, **given}
    _Screen({}, to_stderr=False).show(Outcome(pl.DataFrame([row]), pl.DataFrame()))
    screen = capsys.readouterr().out
    assert max(map(len, screen.splitlines())) <= 80
    golden(f"cli/watch-{request.node.callspec.id}-known.txt", screen)
    for name in (S, B):
        flag = f"--{name.replace('_', '-')}"
        assert (flag in screen) == (name not in given)
