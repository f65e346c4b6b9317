"""fp8 KV, asked for: a row where the blocks are known, and refused by name where they are not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from advice_cases import answer_of, requests_of

from driftwatch.model import Slo
from driftwatch.recommend.advice import Candidate
from driftwatch.recommend.candidates import FP8_KV, PREFIX_HIT_RATIO, REPLICAS
from driftwatch.simulate.configuration import SchedulerConfiguration

TODAY = SchedulerConfiguration(64, 2048, 27_000)
SLO = Slo(1.0, 0.05)


def asked(configuration: SchedulerConfiguration) -> list[Candidate]:
    answer = answer_of(requests_of(4, 300, 200), configuration, SLO, what_if={FP8_KV: 1.0})
    return [one for one in answer.what_ifs if FP8_KV in one.knobs]


def test_known_blocks_are_doubled() -> None:
    (row,) = asked(TODAY)
    assert row.refused is None
    assert row.kv_blocks == 54_000
    assert row.in_target_ratio is not None and row.in_target_ratio > 0.9


def test_unknown_blocks_are_named_and_no_number_is_made_up() -> None:
    (row,) = asked(replace(TODAY, num_gpu_blocks=None))
    assert row.refused == "the KV block count is unknown"
    assert row.in_target_ratio is None and row.capacity_requests_per_second is None


@pytest.mark.slow
def test_what_was_asked_for_is_not_told_twice() -> None:
    """Of an overloaded server half of the prompt tokens and five replicas are told unasked."""
    today = replace(TODAY, enable_prefix_caching=True)
    for asked in ({}, {PREFIX_HIT_RATIO: 0.5, REPLICAS: 5.0}):
        answer = answer_of(
            requests_of(9, 4000, 150), today, Slo(1.0, 0.03), what_if=asked, replicas=2
        )
        assert answer.recommendation.action == "none"
        for name, value in ((PREFIX_HIT_RATIO, 0.5), (REPLICAS, 5.0)):
            assert [one.knobs[name] for one in answer.what_ifs if name in one.knobs] == [value]
