"""What counts as a change, and who had asked for it."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from driftwatch.model import Fingerprint, TargetKey
from driftwatch.service.changes import Running, advised_by, changed, running, verification_id
from driftwatch.verify.verification import Change

AT = datetime(2026, 11, 18, 3, 38, tzinfo=UTC)
NOTHING = Fingerprint()


def _read(**knobs: str) -> Running:
    return Running(Fingerprint(knobs=knobs))


def _row(**told: object) -> dict[str, object]:
    return {"scrapes": 12.0, "max_num_seqs": None, "max_num_seqs_inferred": False, **told}


def test_a_setting_that_was_read_before_and_after() -> None:
    found = changed(_read(max_num_seqs="64"), _read(max_num_seqs="128"), AT)
    assert found is not None
    assert (found.kind, found.at) == ("knobs", AT)
    assert found.what == {"max_num_seqs": ("64", "128")}


def test_what_only_one_side_knows_is_no_change() -> None:
    assert changed(_read(), _read(max_num_seqs="128"), AT) is None
    assert changed(_read(block_size="16"), _read(), AT) is None


def test_kv_blocks_differ_a_little_from_start_to_start() -> None:
    assert changed(_read(kv_cache_blocks="27000"), _read(kv_cache_blocks="26930"), AT) is None
    found = changed(_read(kv_cache_blocks="27000"), _read(kv_cache_blocks="20000"), AT)
    assert found is not None


def test_two_knobs_at_once_are_one_change_and_both_are_said() -> None:
    before = _read(max_num_seqs="64", max_num_batched_tokens="2048")
    found = changed(before, _read(max_num_seqs="128", max_num_batched_tokens="8192"), AT)
    assert found is not None
    assert found.what == {
        "max_num_batched_tokens": ("2048", "8192"),
        "max_num_seqs": ("64", "128"),
    }


def test_a_release_alone_is_a_release_and_another_model_is_neither() -> None:
    old = Running(Fingerprint(release={"vllm": "0.31.0"}))
    found = changed(old, Running(Fingerprint(release={"vllm": "0.32.0"})), AT)
    assert found is not None
    assert found.kind == "release"
    model = Running(Fingerprint(identity={"model_name": "a"}))
    assert changed(model, Running(Fingerprint(identity={"model_name": "b"})), AT) is None


@pytest.mark.parametrize(
    ("now", "running_max", "said"),
    [
        (Running(), 53.0, ("8 (inferred)", "at least 53")),
        (Running(), 12.25, ("8 (inferred)", "at least 13")),
        (Running(), 8.0, None),
        (Running(), None, None),
        (Running(inferred_max_num_seqs=16.0), 16.0, ("8 (inferred)", "16 (inferred)")),
        (Running(inferred_max_num_seqs=8.0), 8.0, None),
        (_read(max_num_seqs="64"), 20.0, ("8 (inferred)", "64")),
        (_read(max_num_seqs="8"), 8.0, None),
    ],
)
def test_an_inferred_cap_is_another_one_only_where_that_shows(
    now: Running, running_max: float | None, said: tuple[str, str] | None
) -> None:
    found = changed(Running(inferred_max_num_seqs=8.0), now, AT, running_max)
    assert (None if found is None else found.what["max_num_seqs"]) == said


def test_a_minute_tells_what_runs_and_silence_keeps_it() -> None:
    cache = json.dumps({"block_size": "16", "num_gpu_blocks": "27000"})
    first = running(_row(max_num_seqs=8.0, max_num_seqs_inferred=True, cache_config=cache), NOTHING)
    assert first.inferred_max_num_seqs == 8.0
    assert first.fingerprint.knobs == {"block_size": "16", "kv_cache_blocks": "27000"}
    silent = running({"scrapes": 0.0}, NOTHING, first)
    assert silent == first
    # more ran than the inferred cap allowed: it was none
    assert running(_row(), NOTHING, first).inferred_max_num_seqs is None


def test_the_advice_of_the_same_knob_in_the_same_direction_asked_for_it() -> None:
    change = Change("knobs", AT, {"max_num_seqs": ("8 (inferred)", "at least 53")})
    up = {"action": "change", "knob": "max_num_seqs", "from": 8.0, "to": 40.0}
    assert advised_by(change, up)
    stored = {"action": "change", "knob": "max_num_seqs", "from_value": 8, "to_value": 16}
    assert advised_by(change, stored)
    assert not advised_by(change, {**up, "to": 4.0})
    assert not advised_by(change, {**up, "knob": "max_num_batched_tokens"})
    assert not advised_by(change, {**up, "action": "none"})
    assert not advised_by(change, None)


def test_an_id_is_of_a_target_and_a_time() -> None:
    key, other = TargetKey("h:8000", "0"), TargetKey("h:8000", "1")
    change = Change("knobs", AT, {"max_num_seqs": ("8", "64")})
    more = Change("knobs", AT, {"max_num_seqs": ("8 (inferred)", "at least 53")})
    assert verification_id(key, change) == verification_id(key, more)
    assert verification_id(key, change) != verification_id(other, change)
