"""What the judge counts, and the table of goals."""

from __future__ import annotations

from dataclasses import replace

from truth_judge.facts import DAY_SECONDS, Episode, Finding, Stretch
from truth_judge.figures import Verdict, confusion, detection, unexpected
from truth_judge.goals import goals
from truth_judge.running import Ran
from truth_judge.shown import shown

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


DAYS = 12
LOSS = Episode(
    "loss", 1000.0, 5000.0, 0.2, frozenset({"a:8000"}),
    pages=frozenset({"SlowerAtEqualLoad"}), leaf="replica_slow",
)  # fmt: skip
FOUND = Finding("firing", "SlowerAtEqualLoad", "page", 1480.0, 1400.0, frozenset({"a:8000"}))
FALSE = replace(FOUND, at_seconds=3 * DAY_SECONDS, leaf="gpu_throttled")
NOTICE = Finding("firing", "LengthDrift", "notice", 4 * DAY_SECONDS, 0.0, frozenset({"a:8000"}))


def ran(name: str, *said: Finding, episodes: tuple[Episode, ...] = ()) -> Ran:
    stretch = Stretch(
        name, f"seed {len(name)}", 0.0, DAYS * DAY_SECONDS, ("a:8000",), episodes, said
    )
    blocks = [(stretch.draw, day) for day in range(DAYS)]
    told = [Verdict("replica_slow", "replica_slow", block) for block in blocks[1:]]
    return Ran("grid", stretch, explained=[*told, Verdict("healthy", "kv_pressure", blocks[0])])


def test_every_figure_is_counted_over_its_own_time() -> None:
    quiet = ran("mixed-quiet", FALSE, NOTICE)
    faults = ran(
        "mixed-faults", FOUND, episodes=(LOSS, replace(LOSS, start_seconds=5e5, end_seconds=5.1e5))
    )
    rows = {row["figure"]: row for row in goals([quiet, faults, ran("other", FALSE)], seed=1)}
    months = rows["quiet server-months"]["estimate"]["value"]
    assert abs(months - 2 * DAYS / 30.4375) < 0.01
    false = rows["false pages per quiet server-month"]
    assert false["count"] == 1 and abs(false["estimate"]["value"] - 1 / months) < 0.02
    assert rows["… mixed-faults"]["count"] == 0 and rows["… mixed-quiet"]["count"] == 1
    assert rows["… SlowerAtEqualLoad"]["count"] == 1
    assert rows["false notices per server-month"]["count"] == 1
    assert rows["20 % slower, found"]["estimate"]["value"] == 0.5
    assert rows["… median delay"]["count"] == 0  # the last of them: of 30 %
    assert rows["right leaf (explain)"]["estimate"]["value"] > 0.9
    assert 0 < rows["wrong leaf (explain)"]["estimate"]["value"] < 0.1


def test_false_pages_and_missed_episodes_are_shown_one_by_one() -> None:
    faults = ran("mixed-faults", FALSE, NOTICE, episodes=(LOSS,))
    (first, *_) = shown("false", [faults.stretch])
    assert "minute 4320: page SlowerAtEqualLoad, leaf gpu_throttled" in first
    assert not any("LengthDrift" in line for line in shown("false", [faults.stretch]))
    (missed,) = shown("missed", [faults.stretch])
    assert "loss 0.2, minutes 17 to 83, due: SlowerAtEqualLoad" in missed
    assert list(shown("missed", [ran("mixed-faults", FOUND, episodes=(LOSS,)).stretch])) == []
