"""A tune that is stale is one ticket, though distances wander around what counts as moved."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from driftwatch.incidents.incident import Incident
from driftwatch.model import Target, TargetKey
from driftwatch.pipeline.incidents import advanced
from driftwatch.rulebook.book import load_rulebook
from driftwatch.rulebook.rules import Rule

START = datetime(2026, 3, 2, tzinfo=UTC)
KEY = TargetKey("s0:8000", "0")
# hours, whether the lengths moved, scores of prompts and generations
Hours = tuple[int, bool | None, float | None, float | None]
MOVED: Hours = (3, True, 0.4, 1.5)
BETWEEN: Hours = (40, False, 0.4, 1.2)  # below what counts as moved, above what is usual
USUAL: Hours = (73, False, 0.4, 0.9)
UNKNOWN: Hours = (40, None, None, None)


@pytest.fixture(scope="module")
def rule() -> Rule:
    (found,) = (rule for rule in load_rulebook().rules if rule.id == "RetuneAdvised")
    return found


def told(rule: Rule, stretches: Sequence[Hours]) -> list[tuple[str, int]]:
    """Events with their hour."""
    said = [row[1:] for row in stretches for _ in range(row[0] * 60)]
    names = ("baseline_lengths_moved", "prompt_tokens_pin_score", "generation_tokens_pin_score")
    types = dict(zip(names, (pl.Boolean, pl.Float64, pl.Float64), strict=True))
    never = pl.lit(None, pl.Datetime("us", "UTC"))
    rows = pl.DataFrame(said, schema=types, orient="row").with_columns(
        pl.lit(KEY.instance).alias("instance"),
        pl.lit(KEY.engine).alias("engine"),
        pl.lit("chat").alias("pool"),
        (pl.lit(START) + pl.duration(minutes=pl.int_range(pl.len()) + 1)).alias("end"),
        ever_seen=pl.lit(True),
        binding_since=never,
        deferred_since=never,
        seconds_since_last_token=pl.lit(None, pl.Float64),
        coverage_missing_seconds=pl.lit(None, pl.Float64),
    )
    incidents: dict[str, Incident] = {}
    verdicts = rows.select(rule.verdict.alias(rule.id))
    targets = {KEY: Target(KEY, {}, "chat")}
    _, happened = advanced([rule], incidents, targets, rows, verdicts)
    return [(t.event, int((t.at - START) / timedelta(hours=1))) for t in happened]


def test_lengths_that_wander_around_the_threshold_for_days_are_one_ticket(rule: Rule) -> None:
    assert told(rule, [MOVED, BETWEEN, MOVED, BETWEEN, MOVED]) == [("firing", 0)]


@pytest.mark.parametrize(
    "back",
    [
        [USUAL],
        # far from what is usual, yet by less than 15 %: not moved, for all time
        [(73, False, 1.6, 0.9)],
        # one hour a day above what is usual
        [(23, False, 0.4, 0.9), (1, False, 0.4, 1.05)] * 3 + [(1, False, 0.4, 0.9)],
    ],
    ids=["usual", "far by little", "an hour a day"],
)
def test_it_ends_after_three_days_that_did_not_count_and_what_comes_then_is_another(
    rule: Rule, back: Sequence[Hours]
) -> None:
    assert told(rule, [MOVED, BETWEEN, MOVED, *back, MOVED]) == [
        ("firing", 0),
        ("resolved", 118),
        ("firing", 119),
    ]


def test_unknown_neither_ends_it_nor_is_a_reason(rule: Rule) -> None:
    assert told(rule, [UNKNOWN, BETWEEN]) == []
    assert told(rule, [MOVED, UNKNOWN, MOVED]) == [("firing", 0)]
