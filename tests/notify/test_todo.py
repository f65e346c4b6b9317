"""What explain tells people to do: open incidents first, never against each other."""

from __future__ import annotations

from datetime import UTC, datetime

from page_cases import CASES

from driftwatch.model import Advice, Diagnosis, Finding, KnobMove, Reason, Target, TargetKey
from driftwatch.notify.explanation import todo
from driftwatch.notify.page import Page
from driftwatch.rulebook.book import load_rulebook

FORMS = {rule.alert: rule.page for rule in load_rulebook().rules}
AT = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
SET = Advice(
    action="change",
    reason=Reason("other", "the cap binds"),
    moves=(KnobMove("max_num_seqs", 8.0, 40.0),),
    price=("ITL",),
    undo="set it back",
    wrong_if="waiting stays",
)


def _finding(leaf: str, *missing: str, advice: Advice | None = None) -> Finding:
    diagnosis = Diagnosis("batch-size-drift", leaf, (), missing=missing)
    target = Target(TargetKey("a:1", "0"), {})
    return Finding("explain", target, AT, {}, diagnosis=diagnosis, advice=advice)


def _open(alert: str, page: str) -> Page:
    return CASES[page].page().model_copy(update={"alert": alert})


LOST = _open("GpuLost", "gpu_lost")
DRAIN = FORMS["GpuLost"].advice


def test_what_forbids_a_change_takes_the_place_of_one() -> None:
    change = _finding("batch cap", advice=SET)
    assert any(line.startswith("Change   max_num_seqs 8 → 40") for line in todo(change))
    told = todo(change, [LOST])
    assert told[0] == f"Do       {DRAIN} (GpuLost)"
    assert not any("max_num_seqs" in line for line in told)


def test_advice_that_forbids_nothing_stands_before_the_change() -> None:
    told = todo(_finding("batch cap", advice=SET), [_open("CoverageLost", "coverage_one")])
    assert told[0].startswith("Do       Check the server")
    assert told[0].endswith("(CoverageLost)")
    assert told[1].startswith("Change   max_num_seqs 8 → 40")


def test_without_a_verdict_nothing_to_set_does_not_contradict() -> None:
    blind = _finding("undetermined", "waiting_requests")
    assert todo(blind)[0] == "Do       give what is missing: waiting_requests: unknown"
    told = todo(blind, [LOST])
    assert told[0] == f"Do       {DRAIN} (GpuLost)"
    assert told[1].startswith("next:")


def test_a_page_without_a_verdict_advises_nothing() -> None:
    blind = _finding("undetermined", "waiting_requests")
    assert todo(blind, [_open("CapBinds", "undetermined")]) == todo(blind)


def test_a_tree_of_now_goes_before_the_page_of_then() -> None:
    cap = _open("BatchLimitBinding", "cap")
    fine = _finding(
        "nothing binds", advice=Advice(action="none", reason=Reason("other", "nothing binds"))
    )
    assert todo(fine, [cap]) == todo(fine)
    told = todo(_finding("undetermined", "waiting_requests"), [cap])
    assert told[0].startswith("Do       Set max_num_seqs")
    assert told[0].endswith("(BatchLimitBinding)")


def test_a_pending_incident_has_no_page_yet() -> None:
    fine = _finding(
        "nothing binds", advice=Advice(action="none", reason=Reason("other", "nothing binds"))
    )
    assert todo(fine)[:2] == ["Do       Do not change a knob", "Why      nothing binds"]


def test_what_is_measured_says_what_helps_as_its_page_does() -> None:
    """The page said +3 replicas, explain of the same minute "nothing to set" alone."""
    overrun = Advice(
        action="none",
        reason=Reason("other", "it completes 2.5 of the 5.75 req/s that arrive"),
        instead=("+3 replicas: 5.75 req/s arrive, one completes 2.5",),
        basis="measured",
    )
    said = todo(_finding("token_budget_binding", advice=overrun))
    assert said[0] == "Do       +3 replicas: 5.75 req/s arrive, one completes 2.5"
    assert said[1] == "Why      it completes 2.5 of the 5.75 req/s that arrive"
    assert said[2] == "next:    driftwatch recommend a:1"
