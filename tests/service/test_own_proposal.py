"""Where driftwatch's own proposal stands for a baseline, nothing says that there is none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from driftwatch.evidence import BY_NAME
from driftwatch.model import Finding, Target, TargetKey
from driftwatch.notify.explanation import render_explained
from driftwatch.pipeline.unknown_reasons import OWN_PROPOSAL, reasons

END = datetime(2026, 11, 21, 9, 20, tzinfo=UTC)
ATTRIBUTED = "prompt_tokens_day_ratio"


def _row(reference: str | None) -> dict[str, Any]:
    return {"speed_reference": reference, "speed_at_equal_load_ratio": 0.77}


@pytest.mark.parametrize("reference", ["provisional, equal load", "provisional, equal demand"])
def test_reasons_say_what_a_proposal_does_not_tell(reference: str) -> None:
    found = reasons(_row(reference))
    assert found[ATTRIBUTED] == OWN_PROPOSAL
    of_baselines = {name for name, column in BY_NAME.items() if column.baseline_only}
    assert {found[name] for name in of_baselines & found.keys()} == {OWN_PROPOSAL}


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("provisional, equal load", "no baseline: the speed is against driftwatch's own proposal"),
        (None, "no baseline"),
    ],
)
def test_the_first_lines_of_explain(reference: str | None, said: str) -> None:
    row = _row(reference)
    finding = Finding(
        rule="explain",
        target=Target(TargetKey("host:8000", "0"), {}, "chat"),
        minute=END - timedelta(minutes=1),
        evidence=row,
        reasons=reasons(row),
        diagnosis=None,
        reference=None,
        since=None,
    )
    text = " ".join(render_explained(finding, END - timedelta(minutes=10), END).split())
    assert f"finished requests unknown; {said}" in text
