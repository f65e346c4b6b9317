"""What ``driftwatch verify`` prints of a comparison."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from driftwatch.cli.verify_text import one_in_full
from driftwatch.verify.verification import Change, Effect, Verification

AT = datetime(2026, 11, 18, 5, tzinfo=UTC)
FASTER = Effect("ttft_seconds_mean", 2.0, 1.0, -1.2, -0.8, None, "seconds")
FOUND = Verification(
    id="0123456789ab",
    instance="b:8000",
    engine="0",
    pool="p",
    change=Change("A/B", AT, {}),
    opened_at=AT,
    closed_at=AT,
    verdict="PASS",
    reason="TTFT mean improved",
    effects=(FASTER,),
    matched_minutes=(10, 11),
    against="a:8000",
)


def test_two_servers_are_named_where_a_change_has_before_and_after() -> None:
    text = "\n".join(one_in_full(FOUND, AT))
    assert "figure\ta:8000\tb:8000\tdifference" in text
    assert "10 minutes a:8000, 11 b:8000" in text
    assert "before" not in text.splitlines()[2]
    own = "\n".join(one_in_full(replace(FOUND, against=None), AT))
    assert "figure\tbefore\tafter\tdifference" in own


def test_limits_beyond_the_mean_before_are_explained() -> None:
    assert "know that mean" not in "\n".join(one_in_full(FOUND, AT))
    wide = replace(FOUND, effects=(replace(FASTER, low=-9.8),))
    assert "know that mean no better" in "\n".join(one_in_full(wide, AT))
