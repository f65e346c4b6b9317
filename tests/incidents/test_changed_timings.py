"""Rules that change while an incident is open."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from planning_cases import NOW

from driftwatch.incidents.incident import Incident
from driftwatch.incidents.life_cycle import Observation, RuleTiming, identity, step

MINUTE = timedelta(minutes=1)
TARGET = {"instance": "a"}
KEY = identity("X", TARGET)
TIMING = RuleTiming("X", "X", "page", for_seconds=180, keep_firing_for_seconds=300)


def minutes(
    incidents: dict[str, Incident], first: int, verdicts: str, timing: RuleTiming
) -> list[tuple[int, str]]:
    """(minute, event) of what happened; ``verdicts``: T, F or ? a minute."""
    events = []
    for number, verdict in enumerate(verdicts, first):
        seen = {"T": True, "F": False, "?": None}[verdict]
        observation = Observation(KEY, timing, TARGET, seen)
        for one in step(incidents, NOW + number * MINUTE, [observation]):
            events.append((number, one.event))
    return events


def test_a_longer_for_does_not_take_back_what_fires() -> None:
    incidents: dict[str, Incident] = {}
    assert minutes(incidents, 0, "TTT", TIMING) == [(2, "firing")]
    assert minutes(incidents, 3, "TT", replace(TIMING, for_seconds=3600)) == []
    assert incidents[KEY].state == "firing"


def test_a_longer_for_counts_for_one_that_is_pending() -> None:
    incidents: dict[str, Incident] = {}
    minutes(incidents, 0, "TT", TIMING)
    longer = replace(TIMING, for_seconds=300)
    assert minutes(incidents, 2, "TTT", longer) == [(4, "firing")]


def test_keep_firing_for_counts_as_it_is_now() -> None:
    for seconds, ends in ((600, 12), (120, 5)):
        incidents: dict[str, Incident] = {}
        minutes(incidents, 0, "TTTFF", TIMING)
        changed = replace(TIMING, keep_firing_for_seconds=seconds)
        assert minutes(incidents, 5, "F" * 9, changed) == [(ends, "resolved")]


def test_what_fires_keeps_its_severity_and_so_its_receivers() -> None:
    incidents: dict[str, Incident] = {}
    minutes(incidents, 0, "TTT", TIMING)
    minutes(incidents, 3, "T", replace(TIMING, severity="notice"))
    assert incidents[KEY].severity == "page"


def test_minutes_without_a_verdict_count_for_nothing() -> None:
    incidents: dict[str, Incident] = {}
    assert minutes(incidents, 0, "TT???T", TIMING) == [(5, "firing")]
    assert minutes(incidents, 6, "FF????FF", TIMING) == []
    assert minutes(incidents, 14, "F", TIMING) == [(14, "resolved")]
