"""What people read of an advice: stories by hand, against golden files."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta

import pytest
from advice_stories import STORIES, budget, refused, story

from driftwatch.cli.recommend import as_paged
from driftwatch.cli.recommend_text import rendered, settles
from driftwatch.model import KnobMove
from driftwatch.pipeline.advice import kept_advice

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


def test_an_open_pages_change_stays_the_answer_while_another_brings_no_more() -> None:
    """The page advised 1024 six minutes before; 2048 is better by less than a tie."""
    row = budget(1024, 0.991, 0.29, 0.034, 18.3)
    asked = story().model_copy(update={"what_ifs": (row,)})
    moves = (KnobMove("max_num_batched_tokens", 512.0, 1024.0),)
    paged = {"moves": moves, "at": asked.at - timedelta(minutes=6)}
    kept = kept_advice(asked.advice.model_copy(update=paged), asked)
    assert kept is not None
    text = rendered(as_paged(asked, kept), NAME, today=TODAY)
    assert text.startswith("rag-8b-3: set max_num_batched_tokens 512 → 1024.")
    assert "as on the page; its forecast is of 02:50 UTC" in text
    assert "> max_num_batched_tokens 1024" in text


def test_a_name_from_outside_cannot_break_lines() -> None:
    text = rendered(story(), "a\nb\x1b[31m")
    assert "\x1b" not in text
