"""What an UPDATE says first: what is otherwise, and how old the rest is."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

from driftwatch.model import Recommendation
from driftwatch.notify.follow_up import follow_up, what_changed

GOLDEN = Path(__file__).parent / "golden"
REPLICAS = ("+3 replicas: forecast 97 % in target",)


def test_an_update_says_of_when_line_1_is() -> None:
    """It said 43 % ten minutes later, when nearly all missed their target."""
    page = json.loads((GOLDEN / "cap.page.json").read_text())
    made = datetime.fromisoformat(page["times"]["evaluated_at"])
    sent = follow_up(page, "advised", made + timedelta(minutes=10), "the advice: one → other")
    told = f"the advice: one → other; how bad it is (line 1): as of {made:%H:%M} UTC"
    assert sent["changed"] == told
    assert follow_up(page, "advised", made, "the advice: one → other")["changed"].endswith("other")


def test_a_measured_answer_after_a_replayed_one_is_not_the_same_advice() -> None:
    """Line 1 had changed from "No knob helps" to "no setting could be judged"."""
    replayed = {"action": "none", "basis": "replay", "instead": REPLICAS}
    measured = Recommendation("none", "it completes 2.5", instead=REPLICAS, basis="measured")
    said = what_changed(replayed, measured)
    assert said == (
        "the advice stands, +3 replicas: measured now, no setting could be judged this time"
    )
    again = what_changed({**replayed, "basis": "measured"}, measured)
    assert again == "nothing: the replay, asked again, gives the same advice"
