"""An engine that is not chat is named in ``watch``, ``explain`` and ``doctor``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from driftwatch.collect.schema import scrape_frame
from driftwatch.doctor.targets import engine
from driftwatch.model import TargetKey
from driftwatch.notify.attribution import Attribution, attribution
from driftwatch.notify.engine_words import engine_text, gpus_of_page
from driftwatch.notify.minute_line import minute_line
from driftwatch.rulebook.book import load_rulebook

ROW: dict[str, Any] = {
    "end": datetime(2026, 1, 5, 9, 52, tzinfo=UTC),
    "scrapes": 4.0,
    "running_requests": 0.0,
    "waiting_requests": 0.0,
    "requests_per_forward_pass": 8.0,
    "forward_passes_overcounted": False,
    "generation_tokens_per_second": 0.0,
    "prompt_tokens_total": 60 * 36_000.0,
    "duration_seconds": 60.0,
    "queue_seconds_sum": 0.1,
    "queue_seconds_count": 10.0,
    "kv_cache_usage_ratio": 0.04,
    "restarted": False,
}


def test_watch_shows_what_a_pooling_engine_does_and_does_not_call_it_idle() -> None:
    line = minute_line(ROW | {"engine_kind": "pooling"})
    assert "36,000 prompt tokens/s (pooling)" in line
    assert "idle" not in line
    assert minute_line(ROW) == "09:52 UTC  idle"


def test_watch_says_that_an_engine_sleeps_and_how_many_it_holds() -> None:
    line = minute_line(ROW | {"engine_asleep": True, "waiting_requests": 3.0})
    assert line == "09:52 UTC  asleep, 3 requests held"


@pytest.mark.parametrize(
    ("evidence", "said"),
    [
        ({"engine_kind": "generate", "engine_asleep": False}, ""),
        ({}, ""),
        (
            {"engine_kind": "pooling"},
            "pooling engine (it generates no tokens); not applicable: speed at equal load, "
            "time per output token and generation lengths",
        ),
        (
            {"spec_decode_acceptance_ratio": 0.41, "tokens_per_output": 2.234,
             "reference_spec_decode_acceptance_ratio": 0.7},
            "speculative decoding: 41 % of drafted tokens accepted (reference 70 %), "
            "2.23 tokens a decode step",
        ),
        ({"engine_asleep": True}, "the engine sleeps: requests are held until it is woken"),
    ],
)  # fmt: skip
def test_explain_says_what_the_engine_is(evidence: dict[str, Any], said: str) -> None:
    assert engine_text(evidence) == said


def _doctor(**counted: float) -> list[Any]:
    (row,) = scrape_frame([{"instance": "h:1", "engine": "0", **counted}]).to_dicts()
    rules = [rule for rule in load_rulebook().rules if rule.enabled]
    return list(engine(TargetKey("h:1", "0"), row, rules))


def test_doctor_names_the_rules_that_a_pooling_engine_has_no_use_for() -> None:
    (found,) = _doctor(ttft_seconds_count=50, itl_seconds_count=0, generation_tokens_total=0)
    assert found.status == "OFF"
    assert found.what.startswith("not applicable: pooling engine")
    assert "EngineStuck" not in found.disables
    assert "BatchLimitBinding" not in found.disables
    assert "SlowerAtEqualLoad" in found.disables
    assert _doctor(ttft_seconds_count=50, itl_seconds_count=900, generation_tokens_total=950) == []


def test_a_loss_of_accepted_tokens_is_called_that_in_the_factors() -> None:
    before = {
        "effective_batch_size": 10.0,
        "itl_seconds_mean": 0.012,
        "generation_tokens_per_second": 2700.0,
    }
    now = {
        "effective_batch_size": 25.0,
        "itl_seconds_mean": 0.012,
        "generation_tokens_per_second": 2700.0,
    }
    chat = attribution(now, before, {})
    drafting = attribution(now | {"spec_decode_acceptance_ratio": 0.1}, before, {})
    assert isinstance(chat, Attribution)
    assert isinstance(drafting, Attribution)
    assert (
        chat.factors["first tokens"] == drafting.factors["tokens an output"] == pytest.approx(0.4)
    )
    assert "first tokens" not in drafting.factors


@pytest.mark.parametrize(
    ("now", "before", "said"),
    [
        # of a server that works, over several nodes, one may be read
        ({"gpu_count_source": "declared 2, DCGM shows 1"}, {}, None),
        (
            {"gpu_count_source": "declared 2, DCGM shows 1", "seconds_since_last_token": 180.0},
            {},
            "DCGM shows 1 of 2 GPUs",
        ),
        ({"gpu_count": 1.0}, {"gpu_count": 2.0}, "1 of 2 GPUs are read"),
        ({"gpu_count": 2.0}, {"gpu_count": 2.0}, None),
    ],
)
def test_a_gpu_that_vanishes_is_named(
    now: dict[str, Any], before: dict[str, Any], said: str | None
) -> None:
    assert gpus_of_page(now, before) == said
