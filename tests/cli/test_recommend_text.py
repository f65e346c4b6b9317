"""What people read of an advice: stories by hand, against golden files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date

import pytest
from advice_stories import STORIES, no_knob, refused, story

from driftwatch.cli.recommend_text import AdviceContext, candidates, rendered, settles

ASKED = AdviceContext("rag-8b-3", date(2026, 11, 18))


@pytest.mark.parametrize("name", STORIES)
def test_it_reads_as_designed(name: str, golden: Callable[[str, str], None]) -> None:
    advice = STORIES[name]()
    verb = "verify" if name == "change" else "explain"
    asked = replace(ASKED, next_command=f"driftwatch {verb} rag-8b-3")
    text = rendered(advice, asked)
    golden(f"recommend/{name}.txt", text + "\n")
    assert max(map(len, text.splitlines())) <= 80


def test_piped_rows_are_whole(golden: Callable[[str, str], None]) -> None:
    asked = replace(ASKED, next_command="driftwatch verify rag-8b-3")
    golden("recommend/change.piped.txt", rendered(story(), asked, piped=True) + "\n")


def test_the_table_has_today_each_setting_and_what_was_asked() -> None:
    names = [*candidates(story())]
    assert names[:4] == [
        "max_num_batched_tokens 512 now",
        *("max_num_batched_tokens 1024", "> max_num_batched_tokens 2048"),
        "max_num_batched_tokens 4096",
    ]
    assert names[-1] == "50 % of the prompt tokens cached"
    # a page's advice comes without its table
    short = candidates(
        story().model_copy(update={"candidates": (story().candidates[0],), "what_ifs": ()})
    )
    assert [*short] == ["max_num_batched_tokens 512 now", "> max_num_batched_tokens 2048"]
    both = {"max_num_batched_tokens": 2048, "max_num_seqs": 512}
    two = replace(story().candidates[2], knobs=both)
    more = {"candidates": (*story().candidates, two), "advised": two}
    pair = candidates(story().model_copy(update=more))
    assert "> max_num_batched_tokens 2048, max_num_seqs 512" in pair
    assert "max_num_batched_tokens 512, max_num_seqs 256 now" in pair
    assert not any(name.startswith(">") for name in candidates(no_knob()))


def test_a_refusal_names_what_would_settle_it_and_prints_no_change() -> None:
    assert "vLLM" not in rendered(refused(), ASKED)
    assert settles(refused()) == "--requests FILE (exact arrivals), or a steadier window (--at T)"
    assert settles(story()) is None


def test_a_name_from_outside_cannot_break_lines() -> None:
    text = rendered(story(), AdviceContext("a\nb\x1b[31m"))
    assert "\x1b" not in text
