"""A knob is one entry of ``driftwatch/knobs.py``: parsers, words and texts read it from there."""

from __future__ import annotations

from dataclasses import fields

import pytest

from driftwatch.collect.startup import (
    from_arguments,
    from_startup_log,
)
from driftwatch.knobs import KNOBS, flag_of
from driftwatch.model import Advice, KnobMove, Reason
from driftwatch.notify.advice import setting_change, vllm_arguments
from driftwatch.recommend.alternatives import WHAT_IFS
from driftwatch.recommend.search import single_knobs
from driftwatch.recommend.server import Server, setting_of, with_knobs
from driftwatch.simulate.configuration import SchedulerConfiguration
from driftwatch.simulate.hardware import shipped_hardware

TODAY = SchedulerConfiguration(256, 8192, 27_000, max_num_active_seqs=64)


@pytest.mark.parametrize("name", KNOBS)
def test_an_entry_alone_makes_a_knob_known_to_every_parser(name: str) -> None:
    typed = from_arguments(["vllm", "serve", "m", flag_of(name), "2000"]).serving.setting(name)
    assert typed is not None
    assert (typed.value, typed.provenance, typed.detail) == (2000.0, "arguments", flag_of(name))
    log = from_startup_log(f"non-default args: {{'{name}': 512}}", path="vllm.log").serving.setting(
        name
    )
    assert log is not None
    assert (log.value, log.detail) == (512.0, "vllm.log:1")
    move = KnobMove(name, 64.0, 128.0, "arguments")
    assert vllm_arguments([move]) == f"{flag_of(name)}=128"
    pair = (move, KnobMove("max_num_seqs", None, 40.0))
    advice = Advice(action="change", reason=Reason("forecast", "more"), moves=pair)
    assert setting_change(advice) == f"{name} 64 → 128 and max_num_seqs (now unknown) → 40"
    assert name in WHAT_IFS


@pytest.mark.parametrize("name", KNOBS)
def test_what_an_answer_may_turn_the_simulator_prices(name: str) -> None:
    assert name in {field.name for field in fields(SchedulerConfiguration)}
    then = with_knobs(TODAY, {name: 48.0}, Server(), shipped_hardware())
    assert setting_of(then, name) == 48.0
    values = [one for one in single_knobs(TODAY, budget_known=True) if name in one]
    assert bool(values) is bool(KNOBS[name].values)
