from __future__ import annotations

from truth_judge.facts import DAY_SECONDS, Episode, Finding, Stretch
from truth_judge.figures import Verdict, confusion, detection, unexpected

A = "a:8000"


def day(number: int, *findings: Finding, episodes: tuple[Episode, ...] = ()) -> Stretch:
    start = number * DAY_SECONDS
    return Stretch("s", "seed 1", start, start + DAY_SECONDS, (A,), episodes, findings)


def fired(at: float, rule: str, severity: str = "page") -> Finding:
    return Finding("firing", rule, severity, at, at, frozenset({A}))


def slowed(number: int, size: float, delay: float | None) -> Stretch:
    start = number * DAY_SECONDS + 3600
    episode = Episode("slowdown", start, start + 7200, size, pages=frozenset({"Slower"}))
    said = () if delay is None else (fired(start + delay, "Slower"),)
    return day(number, *said, fired(start + 5, "Limit"), episodes=(episode,))


def test_detection_is_told_by_kind_and_size_smallest_first() -> None:
    runs = [slowed(n, 0.3, 600.0 + n) for n in range(12)]
    runs += [slowed(n, 0.05, 60.0 if n == 3 else None) for n in range(12)]
    cells = detection(runs, seed=1)
    assert list(cells) == ["slowdown 0.05", "slowdown 0.3"]
    small, large = cells.values()
    assert (small["episodes"], small["found"]) == (12, 1)
    assert large["found_ratio"]["value"] == 1.0
    assert large["delay_median_seconds"]["value"] == 605.5
    assert (
        600 <= large["delay_median_seconds"]["low"] < large["delay_median_seconds"]["high"] <= 611
    )
    assert small["delay_median_seconds"]["note"].startswith("no interval")
    assert unexpected(runs) == {"Limit (page)": 24}


def test_undetermined_is_a_column_of_its_own_and_counts_as_not_said() -> None:
    told = confusion(
        [
            Verdict("kv_pressure", "kv_pressure", ("seed 1", 0)),
            Verdict("kv_pressure", "undetermined", ("seed 1", 0)),
            Verdict("engine_stuck", "kv_pressure", ("seed 1", 1)),
            Verdict("healthy", "no verdict", ("seed 1", 1)),
        ],
        seed=1,
    )
    assert told["leaves"] == ["kv_pressure", "undetermined", "no verdict"]
    assert told["matrix"]["kv_pressure"] == {"kv_pressure": 1, "undetermined": 1, "no verdict": 0}
    assert told["right_ratio"] == 0.25
    assert told["right_when_said_ratio"] == 0.5
    assert told["undetermined_ratio"] == 0.5
    assert (told["right"]["value"], told["wrong"]["value"], told["wrong"]["blocks"]) == (
        0.25,
        0.25,
        2,
    )
    none = confusion([], seed=1)
    assert none["right_ratio"] is None and none["right"]["value"] is None
