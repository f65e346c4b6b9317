"""Who of a pool speaks for the others, and how the others do."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pytest
from made_incidents import incident_of

from driftwatch.incidents.incident import Transition
from driftwatch.model import TargetKey
from driftwatch.pipeline.findings import peer_speeds, worst_of
from driftwatch.rulebook.book import load_rulebook

AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SPEEDS = {"a:1": 0.8, "b:1": 0.7, "c:1": None, "d:1": 0.99, "e:1": 1.02}


def rows() -> pl.DataFrame:
    return pl.DataFrame(
        [
            {
                "instance": instance,
                "engine": "0",
                "pool": "chat",
                "end": AT,
                "speed_at_equal_load_ratio": speed,
                "slower_at_equal_load": None if speed is None else speed < 0.89,
                "seconds_since_last_token": 200.0 + ord(instance[0]),
            }
            for instance, speed in SPEEDS.items()
        ]
    )


def of_pool(rule: str, *instances: str) -> Transition:
    return Transition(incident_of(rule=rule, pool="chat", servers=instances, at=AT), "firing", AT)


@pytest.mark.parametrize(("rule", "worst"), [("SlowerAtEqualLoad", "b:1"), ("EngineStuck", "c:1")])
def test_the_worst_of_those_concerned_speaks(rule: str, worst: str) -> None:
    (of_rule,) = (one for one in load_rulebook().rules if one.id == rule)
    for servers, first in ((("a:1", "b:1", "c:1"), worst), (("c:1",), "c:1"), (("z:1",), None)):
        key = worst_of(of_pool(rule, *servers), rows(), of_rule)
        assert (key and key.instance) == first


def test_how_the_others_do_is_of_those_that_are_not_slow() -> None:
    assert peer_speeds(TargetKey("a:1", "0"), AT, rows()) == {
        "of_targets": 5,
        "slower": 2,
        "speed_low_ratio": 0.99,
        "speed_high_ratio": 1.02,
    }
    alone = rows().filter(pl.col("instance").is_in(["a:1", "c:1"]))
    assert peer_speeds(TargetKey("a:1", "0"), AT, alone) is None
    assert peer_speeds(TargetKey("a:1", "0"), AT.replace(hour=13), rows()) is None
