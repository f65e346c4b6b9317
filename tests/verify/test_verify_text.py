"""What ``driftwatch verify`` prints of a comparison."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from driftwatch.cli.verify import print_verification, print_verifications
from driftwatch.notify.verification_line import verification_line
from driftwatch.verify.verification import Change, Effect, Verification

AT = datetime(2026, 11, 18, 5, tzinfo=UTC)
FASTER = Effect("ttft_seconds_mean", 2.0, 1.0, -1.2, -0.8, None, "seconds")
FOUND = Verification(
    id="0123456789ab",
    instance="b:8000",
    engine="0",
    pool="p",
    change=Change("knobs", AT, {}),
    opened_at=AT,
    closed_at=AT,
    verdict="PASS",
    reason="TTFT mean improved",
    effects=(FASTER,),
    matched_minutes=(10, 11),
)


def _with(one: Verification, **fields: Any) -> Verification:
    return one.model_copy(update=fields)


def test_the_screens(
    golden: Callable[[str, str], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One in full (piped), and the list; what a person reads."""
    small = Effect("batch_assembly_wait_seconds", 0.02, 0.3, 0.0021, 0.4, None, "seconds")
    wide = replace(FASTER, low=-FASTER.before)  # as wide as all that it was: said in words
    share = Effect("in_target_ratio", 0.42, 0.97, 0.5, 0.6, 0.95, "1")
    change = Change("knobs", AT, {"max_num_seqs": ("8 (most that ran at once)", "at least 41")})
    kept = _with(FOUND, change=change, effects=(share, wide, small), forecast={"x": 1})
    failed = _with(kept, id="ba9876543210", verdict="FAIL", reason="TTFT mean rose")
    late = [
        _with(
            kept,
            notes=(
                "differences: 95 % intervals, the usual variation of the engine's speed included",
            ),
        ),
        failed,
    ]
    assert verification_line(_with(kept, still_missed_ratio=0.67), None).endswith(
        "; 67 % of requests still miss a target"
    )
    print_verification(late[0], AT)
    golden("verify/change.txt", capsys.readouterr().out)
    print_verifications([_with(FOUND, id="456789abcdef"), *late], AT)
    golden("verify/list.txt", capsys.readouterr().out)
