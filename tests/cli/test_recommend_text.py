"""What people read of an advice: stories by hand, against golden files."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

import pytest
from advice_stories import STORIES, refused, story

from driftwatch.cli.recommend_text import rendered, settles
from driftwatch.model import Reason
from driftwatch.recommend.verdict import CAN_WAIT

NAME, TODAY = "rag-8b-3", date(2026, 11, 18)


@pytest.mark.parametrize("name", STORIES)
def test_it_reads_as_designed(name: str, golden: Callable[[str, str], None]) -> None:
    advice = STORIES[name]()
    verb = "verify" if name == "change" else "explain"
    text = rendered(advice, NAME, today=TODAY, next_command=f"driftwatch {verb} rag-8b-3")
    golden(f"recommend/{name}.txt", text + "\n")
    assert max(map(len, text.splitlines())) <= 80


def test_a_refusal_names_what_would_settle_it_and_prints_no_change() -> None:
    assert "vLLM" not in rendered(refused(), NAME)
    assert settles(refused()) == "--requests FILE (exact arrivals), or a steadier window (--at T)"


def test_a_change_that_can_wait_begins_with_nothing_to_do_now() -> None:
    why = Reason(CAN_WAIT, "in target at 16.5 of 19.0 req/s per server")
    waits = story().advice.model_copy(update={"reason": why})
    text = rendered(story().model_copy(update={"advice": waits}), NAME, piped=True)
    assert ": nothing to do now, in target at 16.5 of 19.0 req/s per server. Before" in text
    assert "Change   forecast: 1.3 → 99 %" in text


def test_a_name_from_outside_cannot_break_lines() -> None:
    text = rendered(story(), "a\nb\x1b[31m")
    assert "\x1b" not in text
