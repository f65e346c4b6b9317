"""What people read of an advice: stories by hand, against golden files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date

import pytest
from advice_stories import STORIES, refused, story

from driftwatch.cli.recommend_text import AdviceContext, rendered, settles

ASKED = AdviceContext("rag-8b-3", date(2026, 11, 18))


@pytest.mark.parametrize("name", STORIES)
def test_it_reads_as_designed(name: str, golden: Callable[[str, str], None]) -> None:
    advice = STORIES[name]()
    verb = "verify" if name == "change" else "explain"
    asked = replace(ASKED, next_command=f"driftwatch {verb} rag-8b-3")
    text = rendered(advice, asked)
    golden(f"recommend/{name}.txt", text + "\n")
    assert max(map(len, text.splitlines())) <= 80


def test_a_refusal_names_what_would_settle_it_and_prints_no_change() -> None:
    assert "vLLM" not in rendered(refused(), ASKED)
    assert settles(refused()) == "--requests FILE (exact arrivals), or a steadier window (--at T)"


def test_a_name_from_outside_cannot_break_lines() -> None:
    text = rendered(story(), AdviceContext("a\nb\x1b[31m"))
    assert "\x1b" not in text
