"""From when on a change of lengths can be seen, counted by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from truth_judge.commands import Case
from truth_judge.facts import Episode
from truth_judge.visible import detectable, visible_from

A, B = "a:8000", "b:8000"
START = datetime(2026, 11, 16, tzinfo=UTC)
AT = START.timestamp() + 600.0


def scraped(instance: str, per_scrape: float, under_way: float, restart: int = -1) -> pl.DataFrame:
    """Every 30 s for an hour; counters begin at 0 again at a restart."""
    counts = [per_scrape * (k - (restart if 0 <= restart <= k else 0)) for k in range(120)]
    return pl.DataFrame(
        {
            "instance": instance,
            "time": [START + timedelta(seconds=30 * k) for k in range(120)],
            "generation_tokens_count": counts,
            "running_requests": under_way,
        }
    )


def test_those_under_way_and_a_hundred_more_must_have_finished() -> None:
    rows = scraped(A, 10.0, 40.0)
    # 140 at ten a scrape, the first of them 30 s after the scrape at the change
    assert visible_from(rows, frozenset({A}), AT) == pytest.approx(AT + 14 * 30.0)
    assert visible_from(rows, frozenset({A}), AT + 3000.0) is None


def test_servers_count_together_and_a_restart_is_no_step_back() -> None:
    rows = pl.concat([scraped(A, 10.0, 40.0), scraped(B, 10.0, 60.0, restart=25)])
    both = visible_from(rows, frozenset({A, B}), AT)
    assert both is not None and both > AT + 10 * 30.0
    assert visible_from(rows, frozenset({B}), AT) == pytest.approx(AT + 17 * 30.0)


@pytest.mark.parametrize(
    ("said", "answer"), [([1.1, 1.15], True), ([1.1, 1.4], False), ([None, None], False)]
)
def test_a_shift_is_detectable_where_the_pool_says_so(
    said: list[float | None], answer: bool
) -> None:
    episode = Episode("shift-prompt", AT, AT + 60, 1.3, notices=frozenset({"TrafficShift"}))
    case = Case("s", "seed 1", Path("s"), AT - 600, AT + 60, (A, B), (episode,))
    before = datetime.fromtimestamp(AT - 60, UTC)
    rows = pl.DataFrame(
        {
            "instance": [A, B, A, B],
            "end": [before, before, *(before + timedelta(hours=1),) * 2],
            "prompt_tokens_smallest_detectable_ratio": [*said, 9.0, 9.0],
        },
        schema_overrides={"prompt_tokens_smallest_detectable_ratio": pl.Float64},
    )
    assert detectable(rows, case, episode) is answer
    assert detectable(rows.drop(rows.columns[-1]), case, episode) is False
    uneven = Episode("uneven-prompt", AT, AT + 60, notices=frozenset({"UnevenTraffic"}))
    assert detectable(rows, case, uneven) is None
