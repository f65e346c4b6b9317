"""Advice for a recorded server: vLLM 0.32 with max_num_seqs 8, which is full."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from recorded_questions import question_at

from driftwatch.model import KnobMove, Setting
from driftwatch.recommend.advice import Question
from driftwatch.recommend.advise import advise


def recorded(shared: Path, minute: int) -> Question:
    asked = question_at(shared / "vllm-0.32" / "run_cap", minute)
    # vLLM's default on a CPU, which the run had
    known = replace(asked.server.serving, max_num_batched_tokens=Setting(2048, "config"))
    return replace(asked, server=replace(asked.server, serving=known))


def test_advice_for_a_recorded_server_never_falls_while_its_load_lasts(shared_data: Path) -> None:
    values = []
    for minute in range(6, 15):
        found = advise(recorded(shared_data, minute), table=False)
        (move,), then = found.advice.moves, found.advised
        assert (found.advice.action, found.advice.basis) == ("change", "simulation")
        assert move == KnobMove("max_num_seqs", 8.0, move.to_value, "inferred")
        assert found.today is not None and then is not None
        now = found.today.capacity_requests_per_second or 0
        assert (then.capacity_requests_per_second or 0) > 1.2 * now
        values.append(move.to_value)
    assert values == sorted(values) and set(values) <= {32.0, 64.0}
