"""What an UPDATE says first: what is otherwise, and how old the rest is."""

from __future__ import annotations

from datetime import timedelta

from page_cases import CAP

from driftwatch.incidents.follow_up import follow_up, says_less, what_changed
from driftwatch.model import Advice, KnobMove, Reason

REPLICAS = ("+3 replicas: forecast 97 % in target",)


def test_an_update_says_first_what_changed_and_of_when_the_problem_is() -> None:
    """It said 43 % ten minutes later, when nearly all missed their target."""
    page = CAP.page()
    made = page.times.evaluated_at
    sent = follow_up(page, "updated", made + timedelta(minutes=10), "advice now: other")
    problem = "first token takes 1.7 s, 97 % of it queueing"
    assert sent.summary == f"UPDATE host:8000: advice now: other; {problem}"
    assert (sent.lines[0].label, sent.lines[0].at) == ("Problem", made)


def test_a_measured_answer_after_a_replayed_one_is_not_the_same_advice() -> None:
    """Line 1 had changed from "No knob helps: +2 replicas" to "add replicas"."""
    replayed = Advice(
        action="none",
        reason=Reason("other", "it completes 2.5"),
        instead=REPLICAS,
        basis="simulation",
    )
    measured = Advice(
        action="none",
        reason=Reason("other", "it completes 2.5"),
        instead=REPLICAS,
        basis="measured",
    )
    assert what_changed(replayed, measured) is None
    assert says_less(replayed, measured)
    evidence = Advice(
        action="none", reason=Reason("other", "the KV cache binds"), instead=("add replicas",)
    )
    assert says_less(replayed, evidence) and not says_less(None, evidence)
    change = Advice(
        action="change",
        reason=Reason("other", "best"),
        moves=(KnobMove("max_num_seqs", 8.0, 40.0, "inferred"),),
    )
    assert not says_less(replayed, change)
    assert what_changed(replayed.model_copy(update={"basis": "measured"}), measured) is None
