"""What counts as a change, and which advice asked for it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from driftwatch.model import Fingerprint, KnobMove
from driftwatch.verify.changes import INFERRED, Running, advised_by, changed, running
from driftwatch.verify.verification import Change

AT = datetime(2026, 11, 18, 3, 38, tzinfo=UTC)
NOTHING = Fingerprint()


def read(**knobs: str) -> Running:
    return Running(Fingerprint(knobs=knobs))


def inferred(cap: float) -> Running:
    return Running(inferred={"max_num_seqs": cap})


def of(group: str, **values: str) -> Running:
    return Running(Fingerprint(**{group: values}))


BOTH = read(max_num_seqs="128", max_num_batched_tokens="8192")
BUDGET = "max_num_batched_tokens"
RAN = INFERRED["max_num_seqs"]
SHORT = read(max_num_batched_tokens="512")
LONG = replace(SHORT, inferred={BUDGET: 2048.0})
OF_BOTH = {"max_num_batched_tokens": ("2048", "8192"), "max_num_seqs": ("64", "128")}


# before, now, most requests that ran at once → what changed
@pytest.mark.parametrize(
    ("before", "now", "most", "what"),
    [
        (read(max_num_seqs="64"), BOTH, None, {"max_num_seqs": ("64", "128")}),
        (read(max_num_seqs="64", max_num_batched_tokens="2048"), BOTH, None, OF_BOTH),
        (read(), read(max_num_seqs="128"), None, None),  # only one side knows
        # KV blocks differ a little from start to start
        (read(kv_cache_blocks="27000"), read(kv_cache_blocks="26930"), None, None),
        (
            *(read(kv_cache_blocks="27000"), read(kv_cache_blocks="20000"), None),
            {"kv_cache_blocks": ("27000", "20000")},
        ),
        (of("release", vllm="1"), of("release", vllm="2"), None, {"vllm": ("1", "2")}),
        (of("identity", model_name="a"), of("identity", model_name="b"), None, None),
        # an inferred cap is another one only where that shows
        (inferred(8), Running(), 53.0, {"max_num_seqs": (RAN.format(8), "at least 53")}),
        (inferred(8), Running(), 8.0, None),
        (inferred(8), inferred(16), 16.0, {"max_num_seqs": (RAN.format(8), RAN.format(16))}),
        (inferred(8), inferred(8), 8.0, None),
        (inferred(8), read(max_num_seqs="64"), 20.0, {"max_num_seqs": (RAN.format(8), "64")}),
        (inferred(8), read(max_num_seqs="8"), 8.0, None),
        (read(max_num_seqs="8"), inferred(16), 16.0, {"max_num_seqs": ("8", RAN.format(16))}),
        # steps that exceed the configured budget show another one; a light load shows nothing
        (SHORT, LONG, None, {BUDGET: ("512", INFERRED[BUDGET].format(2048))}),
        (LONG, SHORT, None, None),
        # more than before is proven, less or the same of a corrected file is not
        (LONG, replace(SHORT, inferred={BUDGET: 900.0}), None, None),
        (LONG, read(max_num_batched_tokens="4096"), None, None),
    ],
)
def test_a_change(before: Running, now: Running, most: float | None, what: object) -> None:
    found = changed(before, now, AT, most)
    assert (None if found is None else found.what) == what
    if found is not None:
        assert (found.kind, found.at) == ("release" if "vllm" in found.what else "knobs", AT)


def test_what_a_minute_does_not_say_is_as_before() -> None:
    cache = json.dumps({"block_size": "16", "num_gpu_blocks": "27000"})
    row = {"scrapes": 12.0, "max_num_seqs": 8.0, "max_num_seqs_inferred": True}
    first = running({**row, "cache_config": cache}, NOTHING)
    assert first.inferred == {"max_num_seqs": 8.0}
    assert first.fingerprint.knobs == {"block_size": "16", "kv_cache_blocks": "27000"}
    assert running({"scrapes": 0.0}, NOTHING, first) == first
    # more ran than the inferred cap allowed: it was none
    assert running({**row, "max_num_seqs": None}, NOTHING, first).inferred == {}


def test_steps_show_the_budget_that_the_configuration_does_not_know() -> None:
    configured = Fingerprint(knobs={BUDGET: "512"})
    # what the steps hold is proven, not the next usual value
    full = running({"scrapes": 4.0, BUDGET: None, "step_tokens_max_of_process": 1284.0}, configured)
    assert full.inferred == {BUDGET: 1222.0}
    calm = {"scrapes": 4.0, BUDGET: 512.0, "step_tokens_max_of_process": 100.0}
    assert running(calm, configured).inferred == {}
    assert running(calm, configured, full).inferred == full.inferred  # until the next start


UP = KnobMove("max_num_seqs", 8.0, 40.0)
TOKENS = KnobMove("max_num_batched_tokens", 1.0, 2.0)


@pytest.mark.parametrize(
    ("moves", "asked"),
    [
        ((UP,), True),
        ((replace(UP, to_value=4.0),), False),
        ((UP, TOKENS), False),
    ],
)
def test_advice_of_the_same_knobs_in_the_same_directions_asked_for_it(
    moves: tuple[KnobMove, ...], asked: bool
) -> None:
    change = Change("knobs", AT, {"max_num_seqs": (RAN.format(8), "at least 53")})
    assert advised_by(change, moves) == asked
