"""What people read of an advice: stories by hand, against golden files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date

import pytest
from advice_stories import STORIES, refused, story

from driftwatch.cli.recommend.text import AdviceContext, rendered, settles

ASKED = AdviceContext("rag-8b-3", "rag-8b", date(2026, 11, 18))


def _written(name: str) -> dict[str, str]:
    advice = STORIES[name]()
    verb = "verify" if name == "change" else "explain"
    asked = replace(ASKED, next_command=f"driftwatch {verb} rag-8b-3")
    return {
        f"{name}.txt": rendered(advice, asked) + "\n",
        f"{name}.piped.txt": rendered(advice, asked, piped=True) + "\n",
        f"{name}.ascii.txt": rendered(advice, replace(asked, today=None), ascii=True) + "\n",
    }


@pytest.mark.parametrize("name", STORIES)
def test_it_reads_as_designed(name: str, golden: Callable[[str, str], None]) -> None:
    for file, text in _written(name).items():
        golden(f"recommend/{file}", text)
        if "piped" not in file:
            assert max(map(len, text.splitlines())) <= 80
        if "ascii" in file:
            assert text.isascii()


def test_a_refusal_names_what_would_settle_it_and_prints_no_change() -> None:
    assert "vLLM" not in rendered(refused(), ASKED)
    assert (
        settles(refused())
        == "--requests FILE (exact arrivals), or a window with less waiting (--at T)"
    )
    assert settles(story()) is None


def test_a_log_that_was_given_is_not_asked_for_and_nothing_is_asked_for_twice() -> None:
    without = refused()
    (failed,) = [gate for gate in without.gates if not gate.passed]
    gates = (failed, replace(failed, name="fit_running"), replace(failed, name="fit_itl"))
    both = settles(replace(without, gates=gates, source="metrics")) or ""
    assert both == (
        "--requests FILE (exact arrivals), or a window with less waiting (--at T), "
        "or a steadier window (--at T), or the GPU and the model (--gpu NAME --model NAME)"
    )
    given = replace(without, gates=gates[:2], source="request log")
    assert settles(given) == "a window with less waiting (--at T), or a steadier window (--at T)"


def test_a_gate_on_ttft_and_a_header_do_not_contradict_each_other() -> None:
    advice = story()
    assert advice.calibration is not None
    saturated = replace(advice.calibration, saturated=True)
    full = replace(advice, calibration=saturated, source="request log")
    assert "TTFT not compared" not in rendered(full, ASKED)
    (itl, _) = advice.gates
    waits = rendered(replace(full, gates=(itl,)), ASKED)
    assert "TTFT not compared: requests wait all the time" in " ".join(waits.split())


def test_a_fit_that_no_gate_asked_for_is_not_shown_as_if_one_had() -> None:
    (itl, _) = story().gates
    assert "limits 5, 10, 15 %)" in rendered(story(), ASKED)
    waited = rendered(replace(story(), gates=(itl,)), ASKED)
    assert "15 %; TTFT not judged: requests waited)" in " ".join(waited.split())


def test_a_name_from_outside_cannot_break_lines() -> None:
    text = rendered(story(), AdviceContext("a\nb\x1b[31m", 'm"\nx: y', None))
    assert "\x1b" not in text
    assert 'modelURL: "m\\"\\nx: y"' in text
