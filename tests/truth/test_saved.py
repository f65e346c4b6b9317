"""Runs that were made in parts give the figures of one run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import truth
from truth_judge.facts import Episode, Finding, Stretch
from truth_judge.figures import Verdict
from truth_judge.healthy import Wander
from truth_judge.running import Ran
from truth_judge.saved import as_json, from_json, merged

A = "a:8000"
LOSS = Episode(
    "loss", 3600.0, 7200.0, 0.2, frozenset({A}), frozenset({"Slower"}),
    waited={A: [(3660.0, frozenset({"kv", "tokens"})), (3720.0, frozenset())]},
)  # fmt: skip
SAID = Finding("firing", "Slower", "page", 4200.0, 4000.0, A, speed_ratio=0.81)


def ran(draw: str) -> Ran:
    stretch = Stretch(
        "losses", draw, 0.0, 86_400.0, (A,), (LOSS,), (SAID,), {A: [(0.0, 80_000.0)]}, 60.0
    )
    return Ran(
        "grid",
        stretch,
        [Verdict("x", "y", (draw, 3))],
        [],
        [Wander(A, 200, 0.03, 0.02, None)],
        {A: 0.01},
    )


def test_what_is_written_comes_back() -> None:
    one = ran("seed 1")
    back = from_json(json.loads(json.dumps(as_json(one))))
    assert back.stretch.episodes == one.stretch.episodes
    assert back.stretch.findings == one.stretch.findings
    assert list(back.stretch.stays(A)) == list(one.stretch.stays(A))
    assert (back.explained, back.wanders, back.misfits) == (one.explained, one.wanders, one.misfits)


def test_leaves_of_older_files_have_no_day() -> None:
    old = as_json(ran("seed 1")) | {"explained": [["x", "y"]]}
    assert from_json(old).explained == [Verdict("x", "y", ("seed 1", 0))]


def test_parts_are_put_together_and_no_draw_counts_twice(tmp_path: Path) -> None:
    files = []
    for number in range(2):
        file = tmp_path / f"{number}.json"
        file.write_text(json.dumps({"seed": 1, "ran": [as_json(ran(f"seed {number}"))]}))
        files.append(file)
    together, runs = merged(files)
    assert [one.stretch.draw for one in together] == ["seed 0", "seed 1"]
    assert [run["seed"] for run in runs] == [1, 1]
    with pytest.raises(ValueError, match="is in two files"):
        merged([files[0], files[0]])
    files[1].write_text("{}")
    with pytest.raises(ValueError, match="holds no stretches"):
        merged(files)


def test_a_recorded_run_is_the_same_figures_again_when_it_is_put_together(
    tmp_path: Path, shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, again = tmp_path / "first.json", tmp_path / "again.json"
    words = ["--seed", "7", "--detection", "--only", "run_slow", "--data", str(shared_data)]
    assert truth.main([*words, "--out", str(first)]) == 0
    assert truth.main(["--merge", str(first), "--out", str(again)]) == 0
    capsys.readouterr()
    made, merged_figures = (json.loads(path.read_text()) for path in (first, again))
    for name in ("false_alarms", "detection", "not_slower", "leaves", "stretches", "ran", "seeds"):
        assert made[name] == merged_figures[name]
    # one draw under two seeds is in both: all seeds are told
    made["seed"], made["seeds"] = 8, [8, 9]
    made["ran"][0]["stretch"]["draw"] = "seed 8"
    second = tmp_path / "second.json"
    second.write_text(json.dumps(made))
    assert truth.main(["--merge", str(first), str(second), "--out", str(again)]) == 0
    assert json.loads(again.read_text())["seeds"] == [7, 8, 9]
    assert "Seed 7, 8, 9, set" in capsys.readouterr().out
