"""The crude program finds what is plain to see, and says nothing of a quiet pool."""

from __future__ import annotations

from pathlib import Path

import pytest
from truth_judge.fleets import made
from truth_judge.sets import Draw
from truth_judge.yardstick import judged


@pytest.mark.parametrize(("scenario", "rule"), [("slower-30", "SlowerAtEqualLoad"), ("day", None)])
def test_a_loss_of_a_third_and_a_quiet_day(scenario: str, rule: str | None, tmp_path: Path) -> None:
    case = made(Draw(scenario, 5, scenario, "shipped"), tmp_path)
    stretch = case.stretch(judged(case))
    said = {one.rule for one in stretch.findings if one.severity == "page"}
    assert said == ({rule} if rule else set())
