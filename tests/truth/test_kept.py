"""What was worked out before is taken again while nothing that it depends on has changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from truth_judge import kept as keeping
from truth_judge.kept import kept, made_with


def test_an_answer_is_kept_until_something_else_is_asked(tmp_path: Path) -> None:
    made: list[int] = []

    def make() -> list[int]:
        made.append(1)
        return [len(made)]

    file = tmp_path / "answer.json"
    assert kept(file, ["a", 1], make) == [1]
    assert kept(file, ["a", 1], make) == [1]
    assert kept(file, ["a", 2], make) == [2]
    assert len(made) == 2 and list(tmp_path.iterdir()) == [file]


def test_a_rule_changes_the_key_of_detectors_and_not_of_the_simulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("driftwatch/detect", "driftwatch/fleet", "driftwatch/simulate", "rules"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "driftwatch/simulate/engine.py").write_text("1")
    (tmp_path / "bench/truth_judge").mkdir(parents=True)
    (tmp_path / "bench/truth_judge/whatif.py").write_text("1")
    monkeypatch.setattr(keeping, "ROOT", tmp_path)

    def keys() -> tuple[str, str]:
        made_with.cache_clear()
        return made_with(), made_with(simulator=True)

    try:
        first = keys()
        (tmp_path / "rules/speed.yaml").write_text("x")
        second = keys()
        assert first[0] != second[0] and first[1] == second[1]
        (tmp_path / "driftwatch/fleet/traffic.py").write_text("x")
        third = keys()
        assert third[0] == second[0] and third[1] != second[1]
    finally:
        made_with.cache_clear()
