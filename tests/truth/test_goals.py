"""The table of goals: what is counted in it, and what each finding is shown with."""

from __future__ import annotations

from dataclasses import replace

from truth_judge.facts import DAY_SECONDS, Episode, Finding, Stretch
from truth_judge.figures import Verdict
from truth_judge.goals import goals
from truth_judge.running import Ran
from truth_judge.shown import shown

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
